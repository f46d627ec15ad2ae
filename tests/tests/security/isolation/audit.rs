//! The audit log names caller and call and contains no content. A flood of refusals does not fill
//! the log.

use std::time::Instant;

use anneal_core::caller::{Bound, BoundId, Verb};
use anneal_server::GeneratedKey;
use anneal_testkit::{
    AnnealBinary, AuthorizedChannel, Folder, PageClient, Process, TestApp, authorized_channel, pb,
    user,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use serde_json::Value;
use tonic::transport::Endpoint;

use crate::isolation::BINARY;

/// A server process with API keys, whose log lines are recorded.
struct AuditedServer {
    app: TestApp,
    process: Process,
    port: u16,
    _folder: Folder,
}

impl AuditedServer {
    async fn start() -> Self {
        let (app, folder) = (TestApp::start().await, Folder::new());
        let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
        let started = anneal.try_server(&["auth.api_keys=true"]).await;
        let (process, port) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        Self {
            app,
            process,
            port,
            _folder: folder,
        }
    }

    fn channel(&self, key: &GeneratedKey) -> AuthorizedChannel {
        let channel =
            Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).expect("an address");
        authorized_channel(channel.connect_lazy(), &format!("Bearer {}", key.text))
    }

    /// Waits for the log line with these words.
    async fn wait_for_line(&self, words: &str) -> Value {
        serde_json::from_str(&self.process.wait_for_line(words).await).expect("is JSON")
    }

    /// Lines of the audit log so far.
    fn audit_lines(&self) -> Vec<String> {
        self.process
            .lines()
            .into_iter()
            .filter(|line| line.contains("\"target\":\"audit\""))
            .collect()
    }
}

/// Withdraws, restores and edits the first message. Also asks for a rewind that is refused.
async fn change_messages(
    messages: &mut MessageServiceClient<AuthorizedChannel>,
    conversation_id: &str,
) {
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        message_ids: vec![1],
        ..Default::default()
    };
    messages.withdraw_messages(ask).await.expect("withdraws");
    let ask = pb::RestoreMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        message_ids: vec![1],
        ..Default::default()
    };
    messages.restore_messages(ask).await.expect("restores");
    let ask = pb::EditMessageRequest {
        conversation_id: conversation_id.to_owned(),
        message_id: 1,
        message: Some(user("edited")),
        ..Default::default()
    };
    messages.edit_message(ask).await.expect("edits");
    let ask = pb::RewindRequest {
        conversation_id: conversation_id.to_owned(),
        after_message_id: 9,
        ..Default::default()
    };
    messages
        .rewind(ask)
        .await
        .expect_err("there is no such message");
}

#[tokio::test]
async fn admin_operator_deleting_and_changing_calls_are_in_the_audit_log() {
    const SECRET: &str = "xylophone";
    let server = AuditedServer::start().await;
    let key = server.app.key("anna", &Verb::ALL).await;
    let channel = server.channel(&key);
    let mut conversations = ConversationServiceClient::new(channel.clone());
    let ask = pb::CreateConversationRequest {
        title: SECRET.into(),
        ..Default::default()
    };
    let conversation_id = conversations
        .create_conversation(ask)
        .await
        .expect("creates")
        .into_inner()
        .conversation_id;
    let mut messages = MessageServiceClient::new(channel.clone());
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![user(SECRET)],
        ..Default::default()
    };
    messages.append_messages(ask).await.expect("appends");
    change_messages(&mut messages, &conversation_id).await;
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    let separator = messages
        .insert_separator(ask)
        .await
        .expect("inserts")
        .into_inner();
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: conversation_id.clone(),
        after_message_id: separator.after_message_id,
        ..Default::default()
    };
    messages.delete_separator(ask).await.expect("deletes");
    let ask = pb::ForkConversationRequest {
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    conversations.fork_conversation(ask).await.expect("forks");
    let mut operators = OperatorServiceClient::new(channel);
    operators
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await
        .expect("answers");
    let ask = pb::DiscardJobRequest {
        kind: pb::JobKind::CountTokens.into(),
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    operators
        .discard_job(ask)
        .await
        .expect_err("the job is not dead");
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    conversations
        .delete_conversation(ask)
        .await
        .expect("deletes");

    let (caller, tenant) = (
        format!("key:{}", key.id),
        server.app.tenant("anna").await.to_string(),
    );
    for (rpc, conversation, code) in [
        ("withdraw_messages", conversation_id.as_str(), "OK"),
        ("restore_messages", &conversation_id, "OK"),
        ("edit_message", &conversation_id, "OK"),
        ("rewind", &conversation_id, "NOT_FOUND"),
        ("delete_separator", &conversation_id, "OK"),
        ("fork_conversation", &conversation_id, "OK"),
        ("get_queue_stats", "", "OK"),
        ("discard_job", &conversation_id, "NOT_FOUND"),
        ("delete_conversation", &conversation_id, "OK"),
    ] {
        let line = server
            .wait_for_line(&format!("{rpc} ended with {code}\""))
            .await;
        let fields = [
            "target",
            "level",
            "event",
            "rpc",
            "caller",
            "tenant",
            "conversation",
            "code",
        ]
        .map(|name| &line[name]);
        assert_eq!(
            fields,
            [
                "audit",
                "INFO",
                "call",
                rpc,
                &caller,
                &tenant,
                conversation,
                code
            ],
            "{line}"
        );
    }
    let lines = server.audit_lines().join("\n");
    assert!(
        !lines.contains("append_messages") && !lines.contains("create_conversation"),
        "{lines}"
    );
    assert!(!lines.contains(SECRET), "{lines}");
}

#[tokio::test]
async fn refusals_of_bound_keys_and_sessions_of_the_page_are_in_the_audit_log() {
    let server = AuditedServer::start().await;
    let bound = Bound::User(BoundId::new("anna").expect("an id"));
    let key = server.app.bound_key("anna", &Verb::ALL, bound).await;
    let caller = Value::from(format!("key:{}", key.id));
    let list = pb::ListErasuresRequest::default();
    let refused = ErasureServiceClient::new(server.channel(&key))
        .list_erasures(list)
        .await;
    refused.expect_err("concerns the whole tenant");
    let line = server.wait_for_line("refused list_erasures").await;
    let fields = ["event", "rpc", "caller"].map(|name| &line[name]);
    let expected = [
        "credential_bound".into(),
        "list_erasures".into(),
        caller.clone(),
    ];
    assert_eq!(fields, expected.each_ref(), "{line}");
    let address = server.process.http_client().await.address();
    let mut browser = PageClient::at(address);
    browser.sign_in(&key.text).await;
    browser.post("/sign-out", &[]).await;
    for event in ["sign_in", "sign_out"] {
        let line = server.wait_for_line(&format!("{event} of key:")).await;
        let fields = ["event", "caller", "address"].map(|name| &line[name]);
        let expected = [event.into(), caller.clone(), "127.0.0.1".into()];
        assert_eq!(fields, expected.each_ref(), "{line}");
    }
}

#[tokio::test]
async fn refusals_are_audited_with_their_reason_and_rate_limited() {
    let server = AuditedServer::start().await;
    let reader = server.app.key("anna", &[Verb::Read]).await;
    let delete = pb::DeleteConversationRequest::default();
    let refused = ConversationServiceClient::new(server.channel(&reader))
        .delete_conversation(delete)
        .await;
    refused.expect_err("may only read");
    let line = server.wait_for_line("refused delete_conversation").await;
    assert_eq!(
        [&line["caller"], &line["verb"]],
        [&Value::from(format!("key:{}", reader.id)), &"admin".into()],
        "{line}"
    );

    let unknown = GeneratedKey::make(None).expect("random bytes");
    let mut unknown_caller = ConversationServiceClient::new(server.channel(&unknown));
    let begun = Instant::now();
    for _ in 0..200 {
        unknown_caller
            .list_conversations(pb::ListConversationsRequest::default())
            .await
            .expect_err("the key is unknown");
    }
    let line = server.wait_for_line("refused a credential").await;
    let fields =
        ["event", "reason", "address", "shown"].map(|name| line[name].as_str().unwrap_or_default());
    assert_eq!(
        fields,
        [
            "credential_refused",
            "unknown",
            "127.0.0.1",
            &format!("key:{}", unknown.id)
        ],
        "{line}"
    );
    // Refused credentials together write at most 20 lines a second (`server/src/audit.rs`). A
    // second that has begun counts as a whole one, and the lines of one more second are a margin.
    // Without the limit there would be 201 lines.
    let (lines, seconds) = (server.audit_lines(), begun.elapsed().as_secs() as usize + 1);
    assert!(
        lines.len() <= (20 * seconds + 20).min(200),
        "{} lines in {seconds} s",
        lines.len()
    );
    let secret = unknown.text.rsplit('_').next().expect("the secret part");
    assert!(
        !server
            .process
            .lines()
            .iter()
            .any(|line| line.contains(secret)),
        "{lines:#?}"
    );
    let operator = server.app.key("ops", &[Verb::Operator]).await;
    let request = server
        .process
        .http_client()
        .await
        .request("GET", "/metrics")
        .header("authorization", format!("Bearer {}", operator.text));
    let metrics = anneal_testkit::HttpResponse::send(request).await.text;
    for metric in [
        "anneal_auth_refused_total{reason=\"unknown\"} 200",
        "anneal_auth_refused_total{reason=\"verb_missing\"} 1",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
}
