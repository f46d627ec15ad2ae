//! Requests that are small on the wire and large in memory, and large ones by the hundred.

use std::time::Duration;

use anneal_tests::{call_raw, pb, user};
use futures::future::join_all;
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};

use crate::besieged::Besieged;

/// How long each attack lasts.
const LASTS: Duration = Duration::from_secs(4);
/// A request stays below the limit of 4 MiB.
const REQUEST_BYTES: usize = 4_000_000;

/// A field of this number with these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

/// The field without bytes, as often as a request may have it.
fn empty(number: u8) -> Vec<u8> {
    field(number, b"").repeat(REQUEST_BYTES / 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn millions_of_empty_fields_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    // Numbers of fields: NewMessage has parts (2) and metadata (3), ToolResultPart is 3 of a part and has media (4).
    let requests = [
        ("messages", "/anneal.v1.MessageService/AppendMessages", empty(3)),
        ("parts", "/anneal.v1.MessageService/AppendMessages", field(3, &empty(2))),
        ("labels", "/anneal.v1.MessageService/AppendMessages", field(3, &empty(3))),
        ("media", "/anneal.v1.MessageService/AppendMessages", field(3, &field(2, &field(3, &empty(4))))),
        ("messages of the present", "/anneal.v1.ContextService/BuildContext", empty(2)),
        ("messages of a turn", "/anneal.v1.ChatService/Chat", empty(3)),
        ("tools", "/anneal.v1.ChatService/Chat", empty(6)),
        ("unknown fields", "/anneal.v1.ContextService/BuildContext", empty(15)),
    ];
    for (what, path, request) in requests {
        let attack = join_all((0..8).map(|_| async {
            loop {
                let refused = call_raw(server.guest(&server.eve), path, request.clone()).await;
                let refused = refused.expect_err("nobody takes it");
                assert!(refused.message().len() < 2_000, "{refused:?}");
            }
        }));
        server.endures(what, LASTS, async { drop(attack.await) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_by_the_hundred_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    let text = "A line of prose, as \"long\" as any.\n".repeat(REQUEST_BYTES / 35);
    let attack = join_all((0..200).map(|_| async {
        let guest = server.guest(&server.eve);
        loop {
            let made = ConversationServiceClient::new(guest.clone())
                .create_conversation(pb::CreateConversationRequest::default())
                .await;
            let Ok(made) = made else { continue };
            let conversation_id = made.into_inner().conversation_id;
            let ask = pb::AppendMessagesRequest { conversation_id, messages: vec![user(&text)], ..Default::default() };
            // Some are refused: the attacker takes what it gets.
            let _ = MessageServiceClient::new(guest.clone()).append_messages(ask).await;
        }
    }));
    server.endures("200 appends of 4 MB at once", LASTS, async { drop(attack.await) }).await;
}
