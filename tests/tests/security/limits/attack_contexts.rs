//! Contexts of conversations with 100,000 messages. Building them must neither delay other tenants
//! nor block the server's async threads.

use std::time::Duration;

use anneal_testkit::{pb, user};
use futures::future::join_all;
use pb::{
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::limits::attacked_server::AttackedServer;

/// Duration of each attack.
const ATTACK_DURATION: Duration = Duration::from_secs(3);
/// Messages of the attacker's conversation.
const MESSAGES: u32 = 100_000;
/// Concurrent requests: as many as a server on two cores has async threads.
const AT_ONCE: usize = 2;

/// Creates a conversation of the attacker with [`MESSAGES`] copies of this message.
async fn create_conversation(server: &AttackedServer, message: pb::NewMessage) -> String {
    let channel = server.channel(&server.eve);
    let mut conversations = ConversationServiceClient::new(channel.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    let conversation_id = made.await.expect("creates").into_inner().conversation_id;
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![message],
        ..Default::default()
    };
    MessageServiceClient::new(channel)
        .append_messages(ask)
        .await
        .expect("appends");
    // The copies are inserted by SQL: over gRPC they would take a minute.
    let id = conversation_id.parse::<Uuid>().expect("a UUID");
    let sql = format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest, content_bytes)
         select tenant_id, conversation_id, n, role, turn, token_estimate, text_bytes, content, content_digest, content_bytes
         from ai_message cross join generate_series(2, {MESSAGES}) as n where conversation_id = '{id}';
         update ai_conversation set last_message_id = {MESSAGES} where conversation_id = '{id}'"
    );
    // Vacuum and checkpoint now, so that they do not run during the attack.
    for sql in [sql.as_str(), "vacuum analyze ai_message", "checkpoint"] {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut server.app.db().await)
            .await
            .expect("fills");
    }
    conversation_id
}

/// Builds the context again and again, until the future is dropped.
async fn build_endlessly(server: &AttackedServer, ask: &pb::BuildContextRequest) {
    let contexts = (0..AT_ONCE).map(|_| async {
        let channel = server.channel(&server.eve);
        let mut client = ContextServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        loop {
            // Calls above the limit may be refused, and calls that take too long are ended.
            let _ = client.build_context(ask.clone()).await;
        }
    });
    join_all(contexts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_of_many_short_messages_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    for (what, message) in [
        ("equal texts", user("a")),
        (
            "equal pictures",
            anneal_testkit::media("https://a.example/a.png"),
        ),
    ] {
        let conversation_id = create_conversation(&server, message).await;
        for format in [pb::Format::Unspecified, pb::Format::AnthropicMessages] {
            let ask = pb::BuildContextRequest {
                conversation_id: conversation_id.clone(),
                format: format.into(),
                ..Default::default()
            };
            let what = format!("{what} as {}", format.as_str_name());
            server
                .run_attack(&what, ATTACK_DURATION, build_endlessly(&server, &ask))
                .await;
        }
    }
}
