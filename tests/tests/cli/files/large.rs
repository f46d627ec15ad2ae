//! `anneal import` and `anneal export` of a conversation of 200 MB in three formats: the memory of
//! client and server stays bounded.

use std::{io::Write as _, time::Instant};

use anneal_testkit::{AnnealBinary, Folder, Process, TestApp, claw0_session, pb};
use pb::conversation_service_client::ConversationServiceClient;

use crate::files::BINARY;

/// Size of the file in MB. The variable `ANNEAL_LARGE_MB` sets another size.
const LARGE_MB: u64 = 200;
/// Upper limit of the client's memory in MiB.
const CLIENT_MEMORY_MIB: u64 = 100;
/// Upper limit of the server's memory in MiB.
const SERVER_MEMORY_MIB: u64 = 250;

/// Writes a claw0 log of at least `min_bytes`. Returns the number of its messages.
fn write_log(path: &std::path::Path, min_bytes: u64) -> i64 {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    let (mut bytes, mut messages) = (0, 0);
    while bytes < min_bytes {
        let turn = claw0_session(1).replace(
            "file 0",
            &"a line of a log that says little. ".repeat(1_500),
        );
        let turn = turn.replace("line 0", &"another line of the same log. ".repeat(1_500));
        file.write_all(turn.as_bytes()).expect("writes");
        bytes += turn.len() as u64;
        messages += 4;
    }
    file.flush().expect("writes");
    messages
}

/// Waits for the process to end. Asserts that it succeeded and stayed within its memory limit.
async fn wait_for_success(name: &str, process: Process) {
    let started = Instant::now();
    let (code, memory) = process.wait_for_exit_with_memory().await;
    println!(
        "{name}: {:.1} s, at most {memory} MiB",
        started.elapsed().as_secs_f64()
    );
    assert_eq!(code, Some(0), "{name}");
    assert!(
        memory > 0 && memory <= CLIENT_MEMORY_MIB,
        "{name}: {memory} MiB"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_of_200_mb_is_imported_and_exported_in_bounded_memory() {
    let megabytes = std::env::var("ANNEAL_LARGE_MB")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(LARGE_MB);
    let (app, folder) = (TestApp::start().await, Folder::new());
    let messages = write_log(&folder.path().join("large.jsonl"), megabytes * 1_000_000);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, port) = anneal.server().await;
    let address = format!("http://127.0.0.1:{port}");
    let mut client = ConversationServiceClient::connect(address.clone())
        .await
        .expect("connects");
    let mut file = "large.jsonl".to_owned();
    // claw0 and pi have many lines. The OpenAI file is one line with all messages.
    for format in ["claw0", "pi", "openai"] {
        if format != "claw0" {
            let listed = client
                .list_conversations(pb::ListConversationsRequest::default())
                .await
                .expect("lists");
            let id = listed.into_inner().conversations[0].conversation_id.clone();
            std::fs::remove_file(folder.path().join(&file)).expect("exists");
            file = format!("large.{format}");
            let export = [
                "export",
                "--address",
                &address,
                &id,
                "--format",
                format,
                "--output",
                &file,
            ];
            wait_for_success(&format!("export of {format}"), anneal.start(&export)).await;
            let bytes = std::fs::metadata(folder.path().join(&file))
                .expect("exists")
                .len();
            assert!(bytes > megabytes * 1_000_000, "{format}: {bytes} bytes");
        }
        let import = [
            "import",
            "--address",
            &address,
            &file,
            "--format",
            format,
            "--user",
            format,
        ];
        wait_for_success(&format!("import of {format}"), anneal.start(&import)).await;
        let ask = pb::ListConversationsRequest {
            user_id: format.into(),
            ..Default::default()
        };
        let listed = client
            .list_conversations(ask)
            .await
            .expect("lists")
            .into_inner()
            .conversations;
        assert_eq!(
            listed
                .iter()
                .map(|row| row.message_count)
                .collect::<Vec<_>>(),
            [messages],
            "{format}"
        );
    }
    let memory = server.peak_memory();
    println!("{megabytes} MB, {messages} messages: at most {memory} MiB in the server");
    assert!(memory <= SERVER_MEMORY_MIB, "{memory} MiB");
}
