//! One tenant reads as much as it can: ranges of a large message, sessions, long contexts and large
//! pages. Some of its calls it cancels or leaves unread. It also appends large messages.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anneal_core::{
    caller::{Caller, ConversationId},
    message::{Message, Part, Role},
};
use anneal_store::Append;
use anneal_testkit::{pb, status_details};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{join, join_all},
    stream::iter,
};
use pb::{
    append_large_message_request::{Frame, Header},
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::{sync::Notify, time::timeout};
use uuid::Uuid;

use crate::limits::{
    attacked_server::{AttackedServer, flood_duration, hold},
    neighbor::connect,
};

const MIB: usize = 1024 * 1024;
/// Bytes of a large message. AppendLargeMessage accepts up to 64 MiB.
const LARGE: usize = 63 * MIB;
/// Duration of an attack. Some attacks last a multiple of it.
const ATTACK_DURATION: Duration = Duration::from_secs(6);

/// Creates a conversation of the attacker whose messages have texts of these sizes in bytes. The
/// test process stores them, so that the server's memory is that of the reads alone.
async fn create_conversation(server: &AttackedServer, sizes: &[usize]) -> String {
    create_conversation_of_lines(server, "A line of prose, as \"long\" as any.\n", sizes).await
}

/// As [`create_conversation`], with texts that repeat this line.
async fn create_conversation_of_lines(
    server: &AttackedServer,
    line: &str,
    sizes: &[usize],
) -> String {
    let mut conversations = ConversationServiceClient::new(server.channel(&server.eve));
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        ..Default::default()
    };
    let made = conversations
        .create_conversation(ask)
        .await
        .expect("creates");
    let id = made.into_inner().conversation_id;
    let store = &server.app.store;
    let tenant = store
        .find_tenant("eve")
        .await
        .expect("the query succeeds")
        .expect("the tenant exists");
    let conversation = ConversationId(Uuid::parse_str(&id).expect("an id"));
    for size in sizes {
        let text = line.repeat(size / line.len());
        let message = Message {
            role: Role::User,
            parts: vec![Part::Text { text }],
            metadata: BTreeMap::default(),
        };
        let append = Append::new(conversation, None, None, &[message], None);
        store
            .append(Caller::of(tenant), &append)
            .await
            .expect("is stored");
    }
    id
}

fn message_client(
    server: &AttackedServer,
) -> MessageServiceClient<anneal_testkit::AuthorizedChannel> {
    MessageServiceClient::new(connect(server.grpc, &server.eve))
        .max_decoding_message_size(usize::MAX)
}

/// Counts the successful answers to the attacker, who must be slowed down and not blocked.
#[derive(Default)]
struct Answers(AtomicUsize);

impl Answers {
    /// Counts this answer if it is a success.
    fn count<T, E>(&self, answer: &Result<T, E>) {
        self.0
            .fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
    }

    fn assert_some(&self, what: &str) {
        let answers = self.0.load(Ordering::Relaxed);
        println!("{what}: {answers} answers to the attacker");
        assert!(answers > 0, "{what}: no call of the attacker was answered");
    }
}

/// Reads the message endlessly, one byte per call. Each reader starts at another byte.
async fn read_bytes(
    server: &AttackedServer,
    (conversation_id, reader): (&str, usize),
    answers: &Answers,
) {
    let mut client = message_client(server);
    for place in 0.. {
        let offset = ((reader * MIB + place) % LARGE) as i64;
        let range = Some(pb::ByteRange { offset, length: 1 });
        let ask = pb::GetMessageRequest {
            conversation_id: conversation_id.to_owned(),
            message_id: 1,
            range,
            ..Default::default()
        };
        // Some calls are refused.
        answers.count(&client.get_message(ask).await);
    }
}

async fn attack_with_byte_readers(readers: usize) {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation(&server, &[LARGE]).await;
    let (what, answers) = (
        format!("{readers} readers of single bytes"),
        Answers::default(),
    );
    let attack = join_all((0..readers).map(|reader| read_bytes(&server, (&id, reader), &answers)));
    server
        .run_attack(&what, ATTACK_DURATION, async { drop(attack.await) })
        .await;
    answers.assert_some(&what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_readers_of_single_bytes_of_a_large_message_do_not_delay_other_tenants() {
    attack_with_byte_readers(16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_readers_of_single_bytes_of_a_large_message_do_not_delay_other_tenants() {
    attack_with_byte_readers(64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_whole_large_messages_do_not_delay_other_tenants() {
    // The second message consists of line ends. Each is stored as an escape of two bytes, so 47 MiB
    // of them nearly reach the limit of stored content, 96 MiB.
    for (line, size) in [("A line of prose.\n", LARGE), ("\n", 47 * MIB)] {
        let server = AttackedServer::start(&[]).await;
        let id = create_conversation_of_lines(&server, line, &[size]).await;
        let (what, answers) = (
            format!("8 readers of messages of {line:?}"),
            Answers::default(),
        );
        let attack = join_all((0..8).map(|_| async {
            let mut client = message_client(&server);
            loop {
                let ask = pb::GetMessageRequest {
                    conversation_id: id.clone(),
                    message_id: 1,
                    ..Default::default()
                };
                answers.count(&client.get_message(ask).await);
            }
        }));
        server
            .run_attack(&what, ATTACK_DURATION, async { drop(attack.await) })
            .await;
        answers.assert_some(&what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_sessions_with_large_messages_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation_of_lines(&server, "A line of prose.\n", &[40 * MIB]).await;
    let path = format!("/api/agents/a/sessions/{id}");
    let answers = Answers::default();
    let attack = join_all((0..8).map(|_| async {
        let web = server.http_client();
        loop {
            let answer = web
                .request("GET", &path)
                .header("authorization", &server.eve)
                .send()
                .await;
            let Ok(answer) = answer else { continue };
            let is_found = answer.status().is_success();
            let whole = answer.bytes().await;
            if is_found {
                answers.count(&whole);
            }
        }
    }));
    server
        .run_attack("8 readers of a session of 40 MiB", ATTACK_DURATION, async {
            drop(attack.await);
        })
        .await;
    answers.assert_some("whole sessions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_session_readers_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation_of_lines(&server, "A line of prose.\n", &[40 * MIB]).await;
    let path = format!("/api/agents/a/sessions/{id}");
    let (stopped, first_stopped) = (AtomicUsize::new(0), Notify::new());
    let readers = join_all((0..16).map(|_| async {
        let web = server.http_client();
        loop {
            let answer = web
                .request("GET", &path)
                .header("authorization", &server.eve)
                .send()
                .await;
            let Ok(mut answer) = answer else { continue };
            let mut taken = 0;
            while let Ok(Some(chunk)) = answer.chunk().await {
                taken += chunk.len();
                // Nearly all of the session's 40 MiB.
                if taken > 38 * MIB {
                    stopped.fetch_add(1, Ordering::Relaxed);
                    first_stopped.notify_one();
                    std::future::pending::<()>().await;
                }
            }
        }
    }));
    let attack = async {
        tokio::select! {
            _ = readers => {}
            () = first_stopped.notified().then(hold) => {}
        }
    };
    server
        .run_attack(
            "readers that stop before the end",
            2 * ATTACK_DURATION + flood_duration(),
            attack,
        )
        .await;
    assert!(stopped.into_inner() > 0, "no reader got to 38 MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_large_answer_gives_its_memory_to_other_readers() {
    let server = AttackedServer::start(&[]).await;
    let eves = create_conversation(&server, &[LARGE]).await;
    let tenant = server
        .app
        .store
        .find_tenant("anna")
        .await
        .expect("the query succeeds")
        .expect("the tenant exists");
    let mut conversations = ConversationServiceClient::new(server.channel(&server.anna));
    let made = conversations
        .create_conversation(pb::CreateConversationRequest::default())
        .await
        .expect("creates");
    let annas = made.into_inner().conversation_id;
    // The line has 17 bytes.
    let text = "A line of prose.\n".repeat(LARGE / 17);
    let message = Message {
        role: Role::User,
        parts: vec![Part::Text { text }],
        metadata: BTreeMap::default(),
    };
    let conversation = ConversationId(Uuid::parse_str(&annas).expect("an id"));
    let append = Append::new(conversation, None, None, &[message], None);
    server
        .app
        .store
        .append(Caller::of(tenant), &append)
        .await
        .expect("is stored");

    // A stream that is requested and not read.
    let mut reader = ContextServiceClient::new(connect(server.grpc, &server.eve));
    let ask = pb::BuildContextRequest {
        conversation_id: eves,
        ..Default::default()
    };
    let _unread = reader
        .stream_context(ask)
        .await
        .expect("is answered")
        .into_inner();

    let channel = connect(server.grpc, &server.anna);
    let mut reader = MessageServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let ask = pb::GetMessageRequest {
        conversation_id: annas,
        message_id: 1,
        ..Default::default()
    };
    // A read waits five seconds for the memory before it is refused, so six refusals are half a
    // minute.
    let begun = std::time::Instant::now();
    let mut refused = 0;
    while let Err(status) = reader.get_message(ask.clone()).await {
        assert_eq!(status_details(&status).reason, "OVERLOADED", "{status:?}");
        refused += 1;
        assert!(
            refused < 6,
            "the unread answer keeps its memory: refused {refused} times in {:?}",
            begun.elapsed()
        );
    }
    assert!(refused > 0, "the unread answer held no memory");
}

/// Appends messages of `mib` MiB endlessly, one after another. Each repeats one line.
async fn append_large(
    server: &AttackedServer,
    conversation_id: &str,
    (line, mib): (&str, usize),
    answers: &Answers,
) {
    let mut client = message_client(server);
    loop {
        let part = pb::part::Part::Text(pb::TextPart::default());
        let parts = vec![pb::Part { part: Some(part) }];
        let message = Some(pb::NewMessage {
            role: pb::Role::User.into(),
            parts,
            ..Default::default()
        });
        let conversation_id = conversation_id.to_owned();
        let header = Frame::Header(Header {
            conversation_id,
            message,
            ..Default::default()
        });
        let chunk = Frame::Chunk(line.repeat(MIB / line.len()).into_bytes());
        let frames = std::iter::once(header).chain(std::iter::repeat_n(chunk, mib));
        let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
        answers.count(&client.append_large_message(iter(frames)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_appends_at_once_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation(&server, &[]).await;
    // A control character is stored as six bytes, so 15 MiB of them nearly reach the limit of
    // stored content, 96 MiB.
    for (line, mib) in [("A line of prose.\n", LARGE / MIB), ("\u{1}", 15)] {
        let (what, answers) = (
            format!("8 appends of {mib} MiB of {line:?}"),
            Answers::default(),
        );
        let attack = join_all((0..8).map(|_| append_large(&server, &id, (line, mib), &answers)));
        // The messages are stored one after another, each in 2 to 5 s, because the database
        // compresses them.
        server
            .run_attack(&what, 4 * ATTACK_DURATION, async { drop(attack.await) })
            .await;
        answers.assert_some(&what);
    }
}

/// Streams contexts endlessly, one after another.
async fn read_contexts(
    server: &AttackedServer,
    (conversation_id, budget_tokens): (&str, Option<u64>),
    answers: &Answers,
) {
    let channel = connect(server.grpc, &server.eve);
    let mut client = ContextServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    loop {
        let conversation_id = conversation_id.to_owned();
        let ask = pb::BuildContextRequest {
            conversation_id,
            budget_tokens,
            ..Default::default()
        };
        let answer = client.stream_context(ask).await;
        answers.count(&answer);
        if let Ok(pieces) = answer {
            pieces.into_inner().for_each(|_| async {}).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_readers_of_the_longest_contexts_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation(&server, &[4 * MIB; 32]).await;
    for (what, budget) in [
        ("16 whole contexts of 128 MiB", None),
        ("16 contexts of 128 MiB, fitted to a budget", Some(100_000)),
    ] {
        let answers = Answers::default();
        let attack = join_all((0..16).map(|_| read_contexts(&server, (&id, budget), &answers)));
        server
            .run_attack(what, ATTACK_DURATION, async { drop(attack.await) })
            .await;
        // An unoptimized build exceeds the call's deadline when it fits such a context to a budget.
        if budget.is_none() {
            answers.assert_some(what);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_release_their_memory_and_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation(&server, &[4 * MIB; 32]).await;
    let cancel_after = |deadline: Duration| {
        let (server, id, answers) = (&server, &id, Answers::default());
        async move {
            loop {
                let _ = timeout(
                    deadline,
                    read_contexts(server, (id, Some(100_000)), &answers),
                )
                .await;
                let _ = timeout(deadline, read_bytes(server, (id, 0), &answers)).await;
            }
        }
    };
    let attack =
        join_all((0..32).map(|reader| cancel_after(Duration::from_millis(5 * (reader + 1)))));
    server
        .run_attack("cancelled reads", ATTACK_DURATION, async {
            drop(attack.await);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_pages_and_made_up_keys_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let id = create_conversation(&server, &[[4 * MIB; 8].as_slice(), &[LARGE]].concat()).await;
    let answers = Answers::default();
    let pages = join_all((0..32).map(|_| async {
        let mut client = message_client(&server);
        loop {
            for newest_first in [true, false] {
                let conversation_id = id.clone();
                let ask = pb::ListMessagesRequest {
                    conversation_id,
                    page_size: 500,
                    newest_first,
                    ..Default::default()
                };
                answers.count(&client.list_messages(ask).await);
            }
        }
    }));
    let made_up_keys = join_all((0..32).map(|_| async {
        loop {
            let key = format!("Bearer anneal_{}_secret", Uuid::new_v4().simple());
            let ask = pb::GetConversationRequest {
                conversation_id: id.clone(),
            };
            let _ = ConversationServiceClient::new(connect(server.grpc, &key))
                .get_conversation(ask)
                .await;
        }
    }));
    server
        .run_attack("large pages, and made-up keys", ATTACK_DURATION, async {
            drop(join(pages, made_up_keys).await);
        })
        .await;
    answers.assert_some("large pages");
}
