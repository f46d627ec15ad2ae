//! Contexts of conversations with many messages: what one costs must not grow faster than the conversation, and it must not
//! be worked out where others wait.

use std::time::Duration;

use anneal_tests::{pb, user};
use futures::future::join_all;
use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::besieged::Besieged;

/// How long each attack lasts.
const LASTS: Duration = Duration::from_secs(3);
/// Messages of the attacker's conversation.
const MESSAGES: u32 = 100_000;
/// Contexts under way at once: as many as the server has async threads.
const AT_ONCE: usize = 2;

/// A conversation of the attacker's with so many messages that say all the same.
async fn conversation(server: &Besieged, said: pb::NewMessage) -> String {
    let guest = server.guest(&server.eve);
    let mut conversations = ConversationServiceClient::new(guest.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    let conversation_id = made.await.expect("creates").into_inner().conversation_id;
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![said],
        ..Default::default()
    };
    MessageServiceClient::new(guest).append_messages(ask).await.expect("appends");
    // Through the door it would take a minute.
    let id = conversation_id.parse::<Uuid>().expect("a UUID");
    let sql = format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest, content_bytes)
         select tenant_id, conversation_id, n, role, turn, token_estimate, text_bytes, content, content_digest, content_bytes
         from ai_message cross join generate_series(2, {MESSAGES}) as n where conversation_id = '{id}';
         update ai_conversation set last_message_id = {MESSAGES} where conversation_id = '{id}'"
    );
    // What the filling leaves to do is none of the attack.
    for sql in [sql.as_str(), "vacuum analyze ai_message", "checkpoint"] {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut server.house.db().await).await.expect("fills");
    }
    conversation_id
}

/// Asks for the context again and again.
async fn build(server: &Besieged, ask: &pb::BuildContextRequest) {
    let contexts = (0..AT_ONCE).map(|_| async {
        let guest = server.guest(&server.eve);
        let mut client = ContextServiceClient::new(guest).max_decoding_message_size(usize::MAX);
        loop {
            // Too many at once may be refused, and one that takes too long ends.
            let _ = client.build_context(ask.clone()).await;
        }
    });
    join_all(contexts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_of_many_short_messages_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    for (what, said) in [("equal texts", user("a")), ("equal pictures", anneal_tests::media("https://a.example/a.png"))]
    {
        let conversation_id = conversation(&server, said).await;
        for format in [pb::Format::Unspecified, pb::Format::AnthropicMessages] {
            let ask = pb::BuildContextRequest {
                conversation_id: conversation_id.clone(),
                format: format.into(),
                ..Default::default()
            };
            let what = format!("{what} as {}", format.as_str_name());
            server.endures(&what, LASTS, build(&server, &ask)).await;
        }
    }
}
