//! `anneal import` and `anneal export` of a conversation of 200 MB: memory stays bounded, whatever the format.

use std::{io::Write as _, time::Instant};

use anneal_tests::{Anneal, Folder, House, Process, claw0, pb};
use pb::conversation_service_client::ConversationServiceClient;

use crate::BINARY;

/// Bytes of the file, in MB; `ANNEAL_LARGE_MB` sets another number.
const LARGE_MB: u64 = 200;
/// Most memory, in MiB, of the client and of the server.
const CLIENT_MEMORY: u64 = 100;
const SERVER_MEMORY: u64 = 250;

/// Writes a claw0 log of at least so many bytes; how many messages it has.
fn write_log(path: &std::path::Path, least: u64) -> i64 {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    let (mut bytes, mut messages) = (0, 0);
    while bytes < least {
        let turn = claw0(1).replace("file 0", &"a line of a log that says little. ".repeat(1_500));
        let turn = turn.replace("line 0", &"another line of the same log. ".repeat(1_500));
        file.write_all(turn.as_bytes()).expect("writes");
        bytes += turn.len() as u64;
        messages += 4;
    }
    file.flush().expect("writes");
    messages
}

/// Waits for its end, which is a good one, in bounded memory.
async fn done(what: &str, process: Process) {
    let started = Instant::now();
    let (code, most) = process.ended_with_memory().await;
    println!("{what}: {:.1} s, at most {most} MiB", started.elapsed().as_secs_f64());
    assert_eq!(code, Some(0), "{what}");
    assert!(most > 0 && most <= CLIENT_MEMORY, "{what}: {most} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_of_200_mb_comes_in_and_goes_out_in_bounded_memory() {
    let megabytes = std::env::var("ANNEAL_LARGE_MB").ok().and_then(|number| number.parse().ok()).unwrap_or(LARGE_MB);
    let (house, folder) = (House::start().await, Folder::new());
    let messages = write_log(&folder.path().join("large.jsonl"), megabytes * 1_000_000);
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let (server, port) = anneal.server().await;
    let address = format!("http://127.0.0.1:{port}");
    let mut client = ConversationServiceClient::connect(address.clone()).await.expect("connects");
    let mut file = "large.jsonl".to_owned();
    // a session of many lines, and one line that holds everything
    for format in ["claw0", "pi", "openai"] {
        if format != "claw0" {
            let listed = client.list_conversations(pb::ListConversationsRequest::default()).await.expect("lists");
            let id = listed.into_inner().conversations[0].conversation_id.clone();
            std::fs::remove_file(folder.path().join(&file)).expect("is there");
            file = format!("large.{format}");
            let export = ["export", "--address", &address, &id, "--format", format, "--output", &file];
            done(&format!("export of {format}"), anneal.start(&export)).await;
            let bytes = std::fs::metadata(folder.path().join(&file)).expect("is there").len();
            assert!(bytes > megabytes * 1_000_000, "{format}: {bytes} bytes");
        }
        let import = ["import", "--address", &address, &file, "--format", format, "--user", format];
        done(&format!("import of {format}"), anneal.start(&import)).await;
        let ask = pb::ListConversationsRequest { user_id: format.into(), ..Default::default() };
        let listed = client.list_conversations(ask).await.expect("lists").into_inner().conversations;
        assert_eq!(listed.iter().map(|row| row.message_count).collect::<Vec<_>>(), [messages], "{format}");
    }
    let server = server.most_memory();
    println!("{megabytes} MB, {messages} messages: at most {server} MiB in the server");
    assert!(server <= SERVER_MEMORY, "{server} MiB");
}
