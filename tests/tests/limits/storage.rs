//! What one tenant may store.

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_tests::{Guest, House, ScriptedModel, Talk, assert_refused, pb, user};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use serde_json::json;
use tonic::{Code, Status};

/// A tenant with a conversation.
struct Tenant {
    guest: Guest,
    authorization: String,
    conversation: String,
}

impl Tenant {
    async fn new(house: &House, name: &str) -> Self {
        let authorization = format!("Bearer {}", house.key(name, &Verb::ALL).await.text);
        let guest = house.showing(&authorization);
        let ask = pb::CreateConversationRequest { agent_id: "a".into(), ..Default::default() };
        let made = ConversationServiceClient::new(guest.clone()).create_conversation(ask).await;
        Self { conversation: made.expect("is made").into_inner().conversation_id, guest, authorization }
    }

    /// Appends a message of so many bytes, again and again the same one under one request id.
    async fn append(&self, request_id: &str, bytes: usize) -> Result<(), Status> {
        let ask = pb::AppendMessagesRequest {
            conversation_id: self.conversation.clone(),
            request_id: request_id.into(),
            messages: vec![user(&"x".repeat(bytes))],
            ..Default::default()
        };
        MessageServiceClient::new(self.guest.clone()).append_messages(ask).await.map(drop)
    }

    async fn append_large(&self, bytes: usize) -> Result<(), Status> {
        let (conversation_id, message) = (self.conversation.clone(), Some(user("")));
        let header = Header { conversation_id, message, ..Default::default() };
        let frames = [Frame::Header(header), Frame::Chunk(vec![b'x'; bytes])];
        let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
        let frames = futures::stream::iter(frames);
        MessageServiceClient::new(self.guest.clone()).append_large_message(frames).await.map(drop)
    }
}

fn deletion(talk: &Talk<'_>) -> pb::DeleteConversationRequest {
    pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() }
}

fn assert_over_quota(refused: Result<(), Status>) {
    assert_refused(refused, Code::ResourceExhausted, "STORAGE_QUOTA_EXCEEDED", "");
}

#[tokio::test]
async fn a_tenant_above_its_quota_of_messages_is_refused_and_others_are_not() {
    let house = House::limited(LimitSettings { tenant_messages: 2, ..Default::default() }).await;
    let (eve, anna) = (Tenant::new(&house, "eve").await, Tenant::new(&house, "anna").await);
    eve.append("first", 1).await.expect("there is room for two");
    eve.append("second", 1).await.expect("there is room for two");
    assert_over_quota(eve.append("third", 1).await);
    eve.append("second", 1).await.expect("what is stored is answered again");
    assert_over_quota(eve.append_large(1).await);
    anna.append("first", 1).await.expect("others have quotas of their own");
    let chat = house.web().json("POST", "/api/agents/a/chat", &json!({"message": "hello"}));
    let chat = chat.header("authorization", &eve.authorization).send().await.expect("is answered");
    assert_ne!(chat.status(), 200, "no model is configured, and nothing more is stored");
}

#[tokio::test]
async fn other_servers_learn_from_workers_what_a_tenant_has_stored_and_deleted() {
    let house = House::limited(LimitSettings { tenant_content_bytes: 10_000, ..Default::default() }).await;
    let eve = Tenant::new(&house, "eve").await;
    eve.append("first", 6_000).await.expect("there is room");
    house.run_jobs_until_idle().await;
    let second_server = house.beside().await;
    let elsewhere = Tenant::new(&second_server, "eve").await;
    assert_over_quota(elsewhere.append("second", 6_000).await);
    elsewhere.append("third", 3_000).await.expect("there is room for less");
    let ask = pb::DeleteConversationRequest { conversation_id: eve.conversation.clone(), ..Default::default() };
    ConversationServiceClient::new(eve.guest.clone()).delete_conversation(ask).await.expect("is deleted");
    let third_server = house.beside().await;
    let there = Tenant::new(&third_server, "eve").await;
    there.append("fourth", 6_000).await.expect("what is deleted makes room");
}

/// Workers of older versions count messages without adding them to what their tenant has stored.
#[tokio::test]
async fn a_conversation_can_be_deleted_whose_messages_its_tenant_s_usage_does_not_include() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("counted, and forgotten").await;
    house.run_jobs_until_idle().await;
    let mut db = house.db().await;
    let forgets = "update tenant_usage set messages = 0, content_bytes = 0";
    let updated = sqlx::query(forgets).execute(&mut db).await.expect("forgets").rows_affected();
    assert_eq!(updated, 1, "the worker has counted the message");
    house.conversations().delete_conversation(deletion(&talk)).await.expect("is deleted");
    let usage = "select messages, content_bytes from tenant_usage";
    let usage: (i64, i64) = sqlx::query_as(usage).fetch_one(&mut db).await.expect("asks");
    assert_eq!(usage, (0, 0));
}

#[tokio::test]
async fn the_user_s_words_of_a_turn_count_and_its_answer_is_stored_whatever_the_quota() {
    let model = ScriptedModel::saying("Quite so.").await;
    let limits = LimitSettings { tenant_messages: 1, ..Default::default() };
    let house = House::calling_limited(model.settings(&["m"]), "m", limits).await;
    let eve = Tenant::new(&house, "eve").await;
    let chat = async |message: &str| {
        let asked = house.web().json("POST", "/api/agents/a/chat", &json!({"message": message}));
        let answered = asked.header("authorization", &eve.authorization).send().await.expect("is answered");
        (answered.status().as_u16(), answered.text().await.expect("is whole"))
    };
    let (status, told) = chat("hello").await;
    assert!(status == 200 && told.contains("Quite so."), "{status}: {told}");
    let (status, problem) = chat("and now?").await;
    assert!(status == 507 && problem.contains("STORAGE_QUOTA_EXCEEDED"), "{status}: {problem}");
}

#[tokio::test]
async fn what_a_tenant_has_stored_is_what_its_counted_messages_are() {
    let house = House::start().await;
    let (kept, deleted) = (house.conversation().await, house.conversation().await);
    for talk in [&kept, &deleted] {
        talk.append_all((1..=20).map(|size| user(&"é\"\\".repeat(size * 100))).collect()).await;
    }
    house.run_jobs_until_idle().await;
    let uncounted = house.conversation().await;
    uncounted.append("nobody has counted this yet").await;
    let usage = async || {
        let stored = "select u.messages, u.content_bytes, count(m.*) as stored,
                coalesce(sum(octet_length(m.content::text)), 0)::bigint as bytes
            from tenant_usage as u left join ai_message as m on m.tenant_id = u.tenant_id and m.token_count is not null
            group by u.messages, u.content_bytes";
        let row: (i64, i64, i64, i64) = sqlx::query_as(stored).fetch_one(&mut house.db().await).await.expect("asks");
        assert_eq!((row.0, row.1), (row.2, row.3));
        row.0
    };
    assert_eq!(usage().await, 40);
    house.conversations().delete_conversation(deletion(&deleted)).await.expect("is deleted");
    assert_eq!(usage().await, 20);
    house.conversations().delete_conversation(deletion(&uncounted)).await.expect("is deleted");
    assert_eq!(usage().await, 20, "what was never counted is not taken away");
}
