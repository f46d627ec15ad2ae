//! The audit log says who did what, and holds no content; a flood of refusals does not fill it.

use std::time::Instant;

use anneal_core::caller::Verb;
use anneal_server::NewSecret;
use anneal_tests::{Anneal, Folder, Guest, House, Process, guest_on, pb, user};
use pb::{
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use serde_json::Value;
use tonic::transport::Endpoint;

use crate::BINARY;

/// A server with keys, as a process whose log is kept.
struct Audited {
    house: House,
    server: Process,
    port: u16,
    _folder: Folder,
}

impl Audited {
    async fn start() -> Self {
        let (house, folder) = (House::start().await, Folder::new());
        let anneal = Anneal::new(BINARY, &folder, &house.url);
        let started = anneal.try_server(&["auth.api_keys=true"]).await;
        let (server, port) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        Self { house, server, port, _folder: folder }
    }

    fn guest(&self, key: &NewSecret) -> Guest {
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).expect("an address");
        guest_on(channel.connect_lazy(), &format!("Bearer {}", key.text))
    }

    /// The line of the audit log with these words, once it is written.
    async fn line(&self, words: &str) -> Value {
        serde_json::from_str(&self.server.said(words).await).expect("is JSON")
    }

    fn audited(&self) -> Vec<String> {
        self.server.lines().into_iter().filter(|line| line.contains("\"target\":\"audit\"")).collect()
    }
}

#[tokio::test]
async fn calls_of_admins_and_operators_and_what_takes_away_are_in_the_audit_log() {
    const SECRET: &str = "xylophone";
    let audited = Audited::start().await;
    let key = audited.house.key("anna", &Verb::ALL).await;
    let guest = audited.guest(&key);
    let mut conversations = ConversationServiceClient::new(guest.clone());
    let ask = pb::CreateConversationRequest { title: SECRET.into(), ..Default::default() };
    let conversation_id = conversations.create_conversation(ask).await.expect("creates").into_inner().conversation_id;
    let mut messages = MessageServiceClient::new(guest.clone());
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![user(SECRET)],
        ..Default::default()
    };
    messages.append_messages(ask).await.expect("appends");
    let ask = pb::InsertSeparatorRequest { conversation_id: conversation_id.clone(), ..Default::default() };
    let separator = messages.insert_separator(ask).await.expect("inserts").into_inner();
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: conversation_id.clone(),
        after_message_id: separator.after_message_id,
        ..Default::default()
    };
    messages.delete_separator(ask).await.expect("deletes");
    let mut operators = OperatorServiceClient::new(guest);
    operators.get_queue_stats(pb::GetQueueStatsRequest {}).await.expect("answers");
    let ask = pb::DiscardJobRequest {
        kind: pb::JobKind::CountTokens.into(),
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    operators.discard_job(ask).await.expect_err("the job is not dead");
    let ask = pb::DeleteConversationRequest { conversation_id: conversation_id.clone(), ..Default::default() };
    conversations.delete_conversation(ask).await.expect("deletes");

    let (caller, tenant) = (format!("key:{}", key.id), audited.house.tenant("anna").await.to_string());
    for (rpc, about, code) in [
        ("delete_separator", conversation_id.as_str(), "OK"),
        ("get_queue_stats", "", "OK"),
        ("discard_job", &conversation_id, "NOT_FOUND"),
        ("delete_conversation", &conversation_id, "OK"),
    ] {
        let line = audited.line(&format!("{rpc} ended with {code}\"")).await;
        let said =
            ["target", "level", "event", "rpc", "caller", "tenant", "conversation", "code"].map(|name| &line[name]);
        assert_eq!(said, ["audit", "INFO", "call", rpc, &caller, &tenant, about, code], "{line}");
    }
    let lines = audited.audited().join("\n");
    assert!(!lines.contains("append_messages") && !lines.contains("create_conversation"), "{lines}");
    assert!(!lines.contains(SECRET), "{lines}");
}

#[tokio::test]
async fn refusals_are_in_the_audit_log_with_their_reason_and_a_flood_of_them_is_cut() {
    let audited = Audited::start().await;
    let reader = audited.house.key("anna", &[Verb::Read]).await;
    let delete = pb::DeleteConversationRequest::default();
    let refused = ConversationServiceClient::new(audited.guest(&reader)).delete_conversation(delete).await;
    refused.expect_err("may only read");
    let line = audited.line("refused delete_conversation").await;
    assert_eq!(
        [&line["caller"], &line["verb"]],
        [&Value::from(format!("key:{}", reader.id)), &"admin".into()],
        "{line}"
    );

    let unknown = NewSecret::make().expect("random bytes");
    let mut stranger = ConversationServiceClient::new(audited.guest(&unknown));
    let begun = Instant::now();
    for _ in 0..200 {
        stranger.list_conversations(pb::ListConversationsRequest::default()).await.expect_err("nobody knows it");
    }
    let line = audited.line("refused a credential").await;
    let said = ["event", "reason", "address", "shown"].map(|name| line[name].as_str().unwrap_or_default());
    assert_eq!(said, ["credential_refused", "unknown", "127.0.0.1", &format!("key:{}", unknown.id)], "{line}");
    let (lines, seconds) = (audited.audited(), begun.elapsed().as_secs() as usize + 1);
    assert!(lines.len() <= (20 * seconds + 20).min(200), "{} lines in {seconds} s", lines.len());
    let secret = unknown.text.rsplit('_').next().expect("the secret part");
    assert!(!audited.server.lines().iter().any(|line| line.contains(secret)), "{lines:#?}");
    let operator = audited.house.key("ops", &[Verb::Operator]).await;
    let asked = audited
        .server
        .door()
        .await
        .request("GET", "/metrics")
        .header("authorization", format!("Bearer {}", operator.text));
    let figures = anneal_tests::Answered::to(asked).await.text;
    for figure in ["auth_refused_total{reason=\"unknown\"} 200", "auth_refused_total{reason=\"verb_missing\"} 1"] {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
}
