//! Requests that are small on the wire and large in memory, and hundreds of large ones.

use std::time::Duration;

use anneal_testkit::{call_raw, pb, user};
use futures::future::join_all;
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};

use crate::limits::attacked_server::AttackedServer;

/// Duration of each attack.
const ATTACK_DURATION: Duration = Duration::from_secs(4);
/// Bytes of a request: below the limit of 4 MiB.
const REQUEST_BYTES: usize = 4_000_000;

/// An encoded field with this number and these bytes. The low three bits of its tag are the wire
/// type: 2, a length and that many bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

/// The empty field, repeated until the request is full.
fn repeated_empty(number: u8) -> Vec<u8> {
    field(number, b"").repeat(REQUEST_BYTES / 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn millions_of_empty_fields_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    // Field numbers: AppendMessagesRequest has messages (3). NewMessage has parts (2) and metadata
    // (3). ToolResultPart is 3 in Part and has media (4). The cases name the other fields.
    let requests = [
        (
            "messages",
            "/anneal.v1.MessageService/AppendMessages",
            repeated_empty(3),
        ),
        (
            "parts",
            "/anneal.v1.MessageService/AppendMessages",
            field(3, &repeated_empty(2)),
        ),
        (
            "labels",
            "/anneal.v1.MessageService/AppendMessages",
            field(3, &repeated_empty(3)),
        ),
        (
            "media",
            "/anneal.v1.MessageService/AppendMessages",
            field(3, &field(2, &field(3, &repeated_empty(4)))),
        ),
        (
            "messages of the current input",
            "/anneal.v1.ContextService/BuildContext",
            repeated_empty(2),
        ),
        (
            "messages of a turn",
            "/anneal.v1.ChatService/Chat",
            repeated_empty(3),
        ),
        ("tools", "/anneal.v1.ChatService/Chat", repeated_empty(6)),
        (
            "unknown fields",
            "/anneal.v1.ContextService/BuildContext",
            repeated_empty(15),
        ),
    ];
    for (what, path, request) in requests {
        let attack = join_all((0..8).map(|_| async {
            loop {
                let refused = call_raw(server.channel(&server.eve), path, request.clone()).await;
                let refused = refused.expect_err("it is refused");
                assert!(refused.message().len() < 2_000, "{refused:?}");
            }
        }));
        server
            .run_attack(what, ATTACK_DURATION, async { drop(attack.await) })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_large_requests_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    // The line has 35 bytes.
    let text = "A line of prose, as \"long\" as any.\n".repeat(REQUEST_BYTES / 35);
    let attack = join_all((0..200).map(|_| async {
        let channel = server.channel(&server.eve);
        loop {
            let made = ConversationServiceClient::new(channel.clone())
                .create_conversation(pb::CreateConversationRequest::default())
                .await;
            let Ok(made) = made else { continue };
            let conversation_id = made.into_inner().conversation_id;
            let ask = pb::AppendMessagesRequest {
                conversation_id,
                messages: vec![user(&text)],
                ..Default::default()
            };
            // Some calls are refused.
            let _ = MessageServiceClient::new(channel.clone())
                .append_messages(ask)
                .await;
        }
    }));
    server
        .run_attack("200 appends of 4 MB at once", ATTACK_DURATION, async {
            drop(attack.await);
        })
        .await;
}
