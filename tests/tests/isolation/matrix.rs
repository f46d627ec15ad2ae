//! Every RPC × a foreign conversation: the answer is that to a missing one, to the byte. The list of RPCs is read from the
//! descriptors, so that a new one cannot be forgotten.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Guest, House, assert_refused, call_raw, every_rpc, pb, sound_request, text, user};
use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use uuid::Uuid;

/// What a caller learns: the answer, or code, words and details of the refusal.
pub(crate) type Learnt = Result<Option<Vec<u8>>, (tonic::Code, String, Vec<u8>)>;

pub(crate) async fn learn(guest: &Guest, path: &str, request: Vec<u8>) -> Learnt {
    let answered = call_raw(guest.clone(), path, request).await;
    answered.map_err(|status| (status.code(), status.message().to_owned(), status.details().to_vec()))
}

/// Two tenants of one house.
pub(crate) struct Two {
    pub(crate) house: House,
    pub(crate) anna: Guest,
    pub(crate) bert: Guest,
    /// What Anna shows.
    pub(crate) credential: String,
    /// Bert's conversation, with everything in it that can be.
    pub(crate) foreign: String,
}

pub(crate) async fn two_tenants() -> Two {
    let auth = AuthSettings { api_keys: true, ..Default::default() };
    two_tenants_of(House::guarded(ServerSettings::default(), auth).await).await
}

/// The same in this house.
pub(crate) async fn two_tenants_of(house: House) -> Two {
    let credential = format!("Bearer {}", house.key("anna", &Verb::ALL).await.text);
    let anna = house.showing(&credential);
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
    Two { house, anna, bert, credential, foreign }
}

#[tokio::test]
async fn a_foreign_conversation_answers_every_call_exactly_as_a_missing_one() {
    let Two { house, anna, bert, foreign, .. } = two_tenants().await;
    let mut asked = 0;
    for rpc in every_rpc() {
        if !rpc.names_conversation {
            continue;
        }
        let ask = |id: &str| sound_request(&rpc.name, id, "r");
        let learnt = learn(&anna, &rpc.path, ask(&foreign)).await;
        asked += 1;
        assert_eq!(learnt, learn(&anna, &rpc.path, ask(&Uuid::now_v7().to_string())).await, "{}", rpc.name);
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
    let Two { house, anna, bert, foreign, .. } = two_tenants().await;
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
    // A place in another's list is none in one's own.
    let ask = pb::ListConversationsRequest { page_size: 1, ..Default::default() };
    let page_token = by(&bert).list_conversations(ask).await.expect("lists").into_inner().next_page_token;
    assert!(!page_token.is_empty());
    let ask = pb::ListConversationsRequest { page_token, ..Default::default() };
    by(&bert).list_conversations(ask.clone()).await.expect("it is his");
    let refused = by(&anna).list_conversations(ask).await;
    assert_refused(refused, tonic::Code::InvalidArgument, "INVALID_FIELD", "page_token");
    drop(house);
}
