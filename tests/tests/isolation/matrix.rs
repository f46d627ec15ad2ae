//! Every RPC × a foreign conversation: the answer is that to a missing one, to the byte. The list of RPCs is read from the
//! descriptors, so that a new one cannot be forgotten.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Guest, House, call_raw, every_rpc, pb, text, user};
use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use prost::Message as _;
use uuid::Uuid;

/// A sound request of an RPC that names this conversation; None: it names none.
fn request(rpc: &str, id: &str) -> Option<Vec<u8>> {
    use pb::append_large_message_request::{Frame, Header};
    let conversation_id = || id.to_owned();
    let scope = || pb::SessionScope {
        agent_id: "a".into(),
        channel: "c".into(),
        sender_id: "anna".into(),
        ..Default::default()
    };
    macro_rules! ask {
        ($ask:ident { $($field:ident: $value:expr),* $(,)? }) => {{
            let ask = pb::$ask { conversation_id: conversation_id(), $($field: $value,)* ..Default::default() };
            ask.encode_to_vec()
        }};
    }
    let bytes = match rpc {
        "GetConversation" => pb::GetConversationRequest { conversation_id: conversation_id() }.encode_to_vec(),
        "UpdateConversation" => {
            let conversation =
                pb::Conversation { conversation_id: conversation_id(), title: "mine".into(), ..Default::default() };
            let update_mask = Some(prost_types::FieldMask { paths: vec!["title".into()] });
            pb::UpdateConversationRequest { conversation: Some(conversation), update_mask, ..Default::default() }
                .encode_to_vec()
        }
        "DeleteConversation" => ask!(DeleteConversationRequest {}),
        "AppendMessages" => ask!(AppendMessagesRequest { messages: vec![user("hello")], request_id: "r".into() }),
        "AppendLargeMessage" => {
            let message = Some(text(pb::Role::User, ""));
            let header = Header { conversation_id: conversation_id(), message, ..Default::default() };
            pb::AppendLargeMessageRequest { frame: Some(Frame::Header(header)) }.encode_to_vec()
        }
        "ListMessages" => ask!(ListMessagesRequest {}),
        "GetMessage" => ask!(GetMessageRequest { message_id: 1 }),
        "InsertSeparator" => ask!(InsertSeparatorRequest { request_id: "s".into() }),
        "DeleteSeparator" => ask!(DeleteSeparatorRequest { after_message_id: 2 }),
        "WatchConversation" => ask!(WatchConversationRequest {}),
        "BuildContext" | "StreamContext" => ask!(BuildContextRequest {}),
        "GetContextUsage" => ask!(GetContextUsageRequest {}),
        "Compact" => ask!(CompactRequest { request_id: "c".into() }),
        "ListCheckpoints" => ask!(ListCheckpointsRequest {}),
        "ImportCheckpoint" => ask!(ImportCheckpointRequest { last_message_id: 1, summary: "so far".into() }),
        "ReportUsage" => ask!(ReportUsageRequest { model: "m".into(), input_tokens: 10 }),
        "Chat" => ask!(ChatRequest { messages: vec![user("hello")], request_id: "t".into() }),
        "RequeueJob" => ask!(RequeueJobRequest { kind: pb::JobKind::Checkpoint.into() }),
        "DiscardJob" => ask!(DiscardJobRequest { kind: pb::JobKind::Checkpoint.into() }),
        "VerifyConversation" => pb::VerifyConversationRequest { conversation_id: conversation_id() }.encode_to_vec(),
        "ListJobs" => ask!(ListJobsRequest {}),
        "ResolveSession" => pb::ResolveSessionRequest { scope: Some(scope()), ..Default::default() }.encode_to_vec(),
        "RotateSession" => {
            pb::RotateSessionRequest { scope: Some(scope()), request_id: "n".into(), ..Default::default() }
                .encode_to_vec()
        }
        _ => return None,
    };
    Some(bytes)
}

/// What a caller learns: the answer, or code, words and details of the refusal.
type Learnt = Result<Option<Vec<u8>>, (tonic::Code, String, Vec<u8>)>;

async fn learn(guest: &Guest, path: &str, request: Vec<u8>) -> Learnt {
    let answered = call_raw(guest.clone(), path, request).await;
    answered.map_err(|status| (status.code(), status.message().to_owned(), status.details().to_vec()))
}

struct Two {
    house: House,
    anna: Guest,
    bert: Guest,
    /// Bert's conversation, with everything in it that can be.
    foreign: String,
}

async fn two_tenants() -> Two {
    let house = House::guarded(ServerSettings::default(), AuthSettings { api_keys: true, ..Default::default() }).await;
    let anna = house.showing(&format!("Bearer {}", house.key("anna", &Verb::ALL).await.text));
    let bert = house.showing(&format!("Bearer {}", house.key("bert", &Verb::ALL).await.text));
    let policy = pb::Policy { max_message_count: Some(6), keep_recent_turns: Some(1), ..Default::default() };
    let ask = pb::CreateConversationRequest { policy: Some(policy), title: "secret".into(), ..Default::default() };
    let made = ConversationServiceClient::new(bert.clone()).create_conversation(ask).await.expect("creates");
    let foreign = made.into_inner().conversation_id;
    let mut messages = MessageServiceClient::new(bert.clone());
    for n in 0..8 {
        let said = vec![user(&format!("secret {n}")), text(pb::Role::Assistant, "I keep it.")];
        let ask = pb::AppendMessagesRequest { conversation_id: foreign.clone(), messages: said, ..Default::default() };
        messages.append_messages(ask).await.expect("appends");
        house.run_jobs_until_idle().await;
    }
    let ask = pb::InsertSeparatorRequest { conversation_id: foreign.clone(), ..Default::default() };
    messages.insert_separator(ask).await.expect("separates");
    Two { house, anna, bert, foreign }
}

#[tokio::test]
async fn a_foreign_conversation_answers_every_call_exactly_as_a_missing_one() {
    let Two { house, anna, bert, foreign } = two_tenants().await;
    let mut asked = 0;
    for rpc in every_rpc() {
        let Some(of_foreign) = request(&rpc.name, &foreign) else {
            assert!(
                !rpc.names_conversation,
                "{} names a conversation: what does it answer to a foreign one?",
                rpc.name
            );
            continue;
        };
        let missing = request(&rpc.name, &Uuid::now_v7().to_string()).expect("the same request");
        let learnt = learn(&anna, &rpc.path, of_foreign.clone()).await;
        if !rpc.names_conversation {
            continue;
        }
        asked += 1;
        assert_eq!(learnt, learn(&anna, &rpc.path, missing).await, "{}", rpc.name);
        if rpc.name == "ListJobs" {
            assert_eq!(learnt, Ok(Some(Vec::new())), "no job to be seen");
        } else {
            assert_eq!(learnt.expect_err(&rpc.name).0, tonic::Code::NotFound, "{}", rpc.name);
        }
    }
    assert!(asked >= 20, "{asked} calls name a conversation");
    // Nothing of it was touched, and its owner has it.
    let ask = pb::GetConversationRequest { conversation_id: foreign.clone() };
    let kept = ConversationServiceClient::new(bert.clone()).get_conversation(ask).await.expect("is there").into_inner();
    assert_eq!((kept.title.as_str(), kept.message_count), ("secret", 16));
    let ask = pb::ListCheckpointsRequest { conversation_id: foreign, ..Default::default() };
    let made = ContextServiceClient::new(bert).list_checkpoints(ask).await.expect("lists").into_inner();
    assert!(!made.checkpoints.is_empty());
    drop(house);
}

#[tokio::test]
async fn the_same_names_under_two_tenants_are_two_things() {
    let Two { house, anna, bert, foreign } = two_tenants().await;
    let by = |guest: &Guest| ConversationServiceClient::new(guest.clone());
    let scope =
        pb::SessionScope { agent_id: "a".into(), channel: "c".into(), sender_id: "x".into(), ..Default::default() };
    let ask = pb::ResolveSessionRequest { scope: Some(scope), ..Default::default() };
    let hers = by(&anna).resolve_session(ask.clone()).await.expect("resolves").into_inner();
    let his = by(&bert).resolve_session(ask).await.expect("resolves").into_inner();
    assert_ne!(hers, his);
    let ask = pb::CreateConversationRequest { request_id: "one".into(), ..Default::default() };
    let hers = by(&anna).create_conversation(ask.clone()).await.expect("creates").into_inner().conversation_id;
    let his = by(&bert).create_conversation(ask).await.expect("creates").into_inner().conversation_id;
    assert_ne!(hers, his);
    let listed = by(&anna).list_conversations(pb::ListConversationsRequest::default()).await.expect("lists");
    let listed = listed.into_inner().conversations;
    assert!(listed.iter().all(|one| one.conversation_id != foreign && one.title.is_empty()), "{listed:?}");
    // A place in another's list leads to nothing of theirs.
    let ask = pb::ListConversationsRequest { page_size: 1, ..Default::default() };
    let page_token = by(&bert).list_conversations(ask).await.expect("lists").into_inner().next_page_token;
    assert!(!page_token.is_empty());
    let ask = pb::ListConversationsRequest { page_token, ..Default::default() };
    if let Ok(page) = by(&anna).list_conversations(ask).await {
        assert!(page.into_inner().conversations.iter().all(|one| one.conversation_id != foreign));
    }
    drop(house);
}
