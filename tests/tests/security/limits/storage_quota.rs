//! Quotas of the messages and bytes that a tenant stores.

use anneal_core::caller::{Caller, TenantId, Verb};
use anneal_server::LimitSettings;
use anneal_testkit::{
    AuthorizedChannel, ScriptedModel, TestApp, TestConversation, assert_refused, pb, user,
};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use serde_json::json;
use tonic::{Code, Status};

/// A tenant with a conversation.
struct Tenant {
    channel: AuthorizedChannel,
    authorization: String,
    conversation: String,
}

impl Tenant {
    async fn new(app: &TestApp, name: &str) -> Self {
        let authorization = format!("Bearer {}", app.key(name, &Verb::ALL).await.text);
        let channel = app.authorized_channel(&authorization);
        let ask = pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        };
        let made = ConversationServiceClient::new(channel.clone())
            .create_conversation(ask)
            .await;
        Self {
            conversation: made.expect("is created").into_inner().conversation_id,
            channel,
            authorization,
        }
    }

    /// Appends a message of this number of bytes. The same request id and size repeat the same
    /// request.
    async fn append(&self, request_id: &str, bytes: usize) -> Result<(), Status> {
        let ask = pb::AppendMessagesRequest {
            conversation_id: self.conversation.clone(),
            request_id: request_id.into(),
            messages: vec![user(&"x".repeat(bytes))],
            ..Default::default()
        };
        MessageServiceClient::new(self.channel.clone())
            .append_messages(ask)
            .await
            .map(drop)
    }

    /// Edits the first message so that it has this number of bytes.
    async fn edit(&self, request_id: &str, bytes: usize) -> Result<(), Status> {
        let ask = pb::EditMessageRequest {
            conversation_id: self.conversation.clone(),
            request_id: request_id.into(),
            message_id: 1,
            message: Some(user(&"y".repeat(bytes))),
            ..Default::default()
        };
        MessageServiceClient::new(self.channel.clone())
            .edit_message(ask)
            .await
            .map(drop)
    }

    async fn append_large(&self, bytes: usize) -> Result<(), Status> {
        let (conversation_id, message) = (self.conversation.clone(), Some(user("")));
        let header = Header {
            conversation_id,
            message,
            ..Default::default()
        };
        let frames = [Frame::Header(header), Frame::Chunk(vec![b'x'; bytes])];
        let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
        let frames = futures::stream::iter(frames);
        MessageServiceClient::new(self.channel.clone())
            .append_large_message(frames)
            .await
            .map(drop)
    }
}

fn delete_request(conversation: &TestConversation<'_>) -> pb::DeleteConversationRequest {
    pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    }
}

fn assert_over_quota(refused: Result<(), Status>) {
    assert_refused(
        refused,
        Code::ResourceExhausted,
        "STORAGE_QUOTA_EXCEEDED",
        "",
    );
}

#[tokio::test]
async fn a_tenant_above_its_quota_of_messages_is_refused_and_others_are_not() {
    let app = TestApp::with_keys_and_limits(LimitSettings {
        tenant_messages: 2,
        ..Default::default()
    })
    .await;
    let (eve, anna) = (
        Tenant::new(&app, "eve").await,
        Tenant::new(&app, "anna").await,
    );
    eve.append("first", 1).await.expect("two messages fit");
    eve.append("second", 1).await.expect("two messages fit");
    assert_over_quota(eve.append("third", 1).await);
    eve.append("second", 1)
        .await
        .expect("a repeated request is answered");
    assert_over_quota(eve.append_large(1).await);
    anna.append("first", 1)
        .await
        .expect("another tenant has its own quota");
}

#[tokio::test]
async fn a_fork_is_refused_if_its_messages_would_exceed_the_quota() {
    let app = TestApp::with_keys_and_limits(LimitSettings {
        tenant_messages: 5,
        ..Default::default()
    })
    .await;
    let eve = Tenant::new(&app, "eve").await;
    eve.append("first", 1).await.expect("five messages fit");
    eve.append("second", 1).await.expect("five messages fit");
    let fork = async |request_id: &str, message_id: i64| {
        let ask = pb::ForkConversationRequest {
            conversation_id: eve.conversation.clone(),
            request_id: request_id.into(),
            message_id,
            ..Default::default()
        };
        ConversationServiceClient::new(eve.channel.clone())
            .fork_conversation(ask)
            .await
            .map(drop)
    };
    fork("r", 0).await.expect("four messages are stored");
    assert_over_quota(fork("s", 2).await);
    fork("s", 1).await.expect("five messages are stored");
    assert_over_quota(fork("t", 1).await);
    fork("r", 0).await.expect("a repeated request is answered");
    assert_refused(
        fork("r", 1).await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    assert_over_quota(eve.append("third", 1).await);
}

#[tokio::test]
async fn an_edit_adds_its_content_and_the_earlier_version_stays_stored() {
    let app = TestApp::with_keys_and_limits(LimitSettings {
        tenant_content_bytes: 10_000,
        ..Default::default()
    })
    .await;
    let eve = Tenant::new(&app, "eve").await;
    eve.append("first", 5_000).await.expect("it fits");
    assert_over_quota(eve.edit("large", 6_000).await);
    eve.edit("small", 4_000).await.expect("it fits");
    eve.edit("small", 4_000)
        .await
        .expect("a repeated request is answered, and adds nothing");
    assert_over_quota(eve.edit("another", 2_000).await);
    eve.edit("small", 4_000)
        .await
        .expect("a repeated request is answered although nothing fits");
    eve.edit("tiny", 500).await.expect("it fits");
    // Another server reads from the database what is stored.
    let second_server = app.second_server().await;
    let on_second = Tenant {
        conversation: eve.conversation.clone(),
        ..Tenant::new(&second_server, "eve").await
    };
    assert_over_quota(on_second.edit("another", 2_000).await);
    on_second.edit("tinier", 100).await.expect("it fits");
}

#[tokio::test]
async fn other_servers_learn_what_a_tenant_has_stored_and_deleted() {
    let app = TestApp::with_keys_and_limits(LimitSettings {
        tenant_content_bytes: 10_000,
        ..Default::default()
    })
    .await;
    let eve = Tenant::new(&app, "eve").await;
    eve.append("first", 6_000).await.expect("it fits");
    app.run_jobs_until_idle().await;
    let second_server = app.second_server().await;
    let on_second = Tenant::new(&second_server, "eve").await;
    assert_over_quota(on_second.append("second", 6_000).await);
    on_second
        .append("third", 3_000)
        .await
        .expect("a smaller one fits");
    let ask = pb::DeleteConversationRequest {
        conversation_id: eve.conversation.clone(),
        ..Default::default()
    };
    ConversationServiceClient::new(eve.channel.clone())
        .delete_conversation(ask)
        .await
        .expect("is deleted");
    let third_server = app.second_server().await;
    let on_third = Tenant::new(&third_server, "eve").await;
    on_third
        .append("fourth", 6_000)
        .await
        .expect("the deletion is subtracted");
}

/// Workers of older versions count messages without adding them to the usage.
#[tokio::test]
async fn a_conversation_whose_messages_are_missing_from_tenant_usage_can_be_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("counted, and forgotten").await;
    app.run_jobs_until_idle().await;
    let mut db = app.db().await;
    let reset = "update tenant_usage_part set messages = 0, content_bytes = 0";
    let updated = sqlx::query(reset)
        .execute(&mut db)
        .await
        .expect("resets")
        .rows_affected();
    assert_eq!(updated, 1, "the message is counted");
    app.conversations()
        .delete_conversation(delete_request(&conversation))
        .await
        .expect("is deleted");
    let usage = app
        .store
        .read_tenant_usage(Caller::of(TenantId::DEFAULT))
        .await
        .expect("reads");
    assert_eq!((usage.messages, usage.content_bytes), (0, 0));
}

#[tokio::test]
async fn the_quota_applies_to_a_turns_prompt_and_not_to_its_answer() {
    let model = ScriptedModel::saying("Quite so.").await;
    let limits = LimitSettings {
        tenant_messages: 1,
        ..Default::default()
    };
    let app = TestApp::with_models_keys_and_limits(model.settings(&["m"]), "m", limits).await;
    let eve = Tenant::new(&app, "eve").await;
    let chat = async |message: &str| {
        let asked =
            app.http_client()
                .json("POST", "/api/agents/a/chat", &json!({"message": message}));
        let answered = asked
            .header("authorization", &eve.authorization)
            .send()
            .await
            .expect("is answered");
        (
            answered.status().as_u16(),
            answered.text().await.expect("is complete"),
        )
    };
    let (status, answer) = chat("hello").await;
    assert!(
        status == 200 && answer.contains("Quite so."),
        "{status}: {answer}"
    );
    let (status, problem) = chat("and now?").await;
    assert!(
        status == 507 && problem.contains("STORAGE_QUOTA_EXCEEDED"),
        "{status}: {problem}"
    );
}

#[tokio::test]
async fn tenant_usage_is_the_sum_of_counted_messages() {
    let app = TestApp::start().await;
    let (kept, deleted) = (app.conversation().await, app.conversation().await);
    for conversation in [&kept, &deleted] {
        conversation
            .append_all(
                (1..=20)
                    .map(|size| user(&"é\"\\".repeat(size * 100)))
                    .collect(),
            )
            .await;
    }
    app.run_jobs_until_idle().await;
    let uncounted = app.conversation().await;
    uncounted
        .append(&"nobody has counted this yet ".repeat(1_000))
        .await;
    // Compares the usage with the counted messages, and returns their number.
    let check_usage = async || {
        let usage_and_sums = "select u.messages, u.content_bytes, count(m.*) as counted_messages,
                coalesce(sum(octet_length(m.content::text)), 0)::bigint as counted_bytes
            from (
                select sum(messages)::bigint as messages, sum(content_bytes)::bigint as content_bytes
                from tenant_usage_part
            ) as u
            left join ai_message as m on m.token_count is not null
            group by u.messages, u.content_bytes";
        let row: (i64, i64, i64, i64) = sqlx::query_as(usage_and_sums)
            .fetch_one(&mut app.db().await)
            .await
            .expect("the query succeeds");
        let (messages, bytes, counted_messages, counted_bytes) = row;
        assert_eq!((messages, bytes), (counted_messages, counted_bytes));
        messages
    };
    assert_eq!(check_usage().await, 40);
    app.conversations()
        .delete_conversation(delete_request(&deleted))
        .await
        .expect("is deleted");
    assert_eq!(check_usage().await, 20);
    app.conversations()
        .delete_conversation(delete_request(&uncounted))
        .await
        .expect("is deleted");
    assert_eq!(
        check_usage().await,
        20,
        "uncounted messages are not subtracted"
    );
}
