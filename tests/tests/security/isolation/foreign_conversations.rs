//! Every RPC answers a foreign conversation, which belongs to another tenant, like a missing one,
//! byte for byte. The list of RPCs comes from the descriptors, so that a new RPC is covered. A name
//! that two tenants both use, such as a request id, stands for a different thing in each.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    AuthorizedChannel, TestApp, assert_refused, call_raw, every_rpc, pb, text, user, valid_request,
};
use pb::{
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use uuid::Uuid;

/// What a caller receives: the answer, or code, message and details of the refusal.
pub(crate) type Outcome = Result<Option<Vec<u8>>, (tonic::Code, String, Vec<u8>)>;

/// Calls an RPC and returns what the caller receives.
pub(crate) async fn observe(channel: &AuthorizedChannel, path: &str, request: Vec<u8>) -> Outcome {
    let answered = call_raw(channel.clone(), path, request).await;
    answered.map_err(|status| {
        (
            status.code(),
            status.message().to_owned(),
            status.details().to_vec(),
        )
    })
}

/// Two tenants of one app.
pub(crate) struct TwoTenants {
    pub(crate) app: TestApp,
    pub(crate) anna: AuthorizedChannel,
    pub(crate) bert: AuthorizedChannel,
    pub(crate) annas_authorization: String,
    /// Bert's conversation, with 16 messages, of which the first has two versions, checkpoints and
    /// a separator after the last message.
    pub(crate) foreign: String,
}

/// Starts an app with the two tenants.
pub(crate) async fn start_two_tenants() -> TwoTenants {
    let auth = AuthSettings {
        api_keys: true,
        ..Default::default()
    };
    create_two_tenants(TestApp::with_auth(ServerSettings::default(), auth).await).await
}

/// Creates the tenants in this app.
pub(crate) async fn create_two_tenants(app: TestApp) -> TwoTenants {
    let annas_authorization = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let anna = app.authorized_channel(&annas_authorization);
    let bert = app.authorized_channel(&format!(
        "Bearer {}",
        app.key("bert", &Verb::ALL).await.text
    ));
    let ask = pb::CreateConversationRequest {
        title: "secret".into(),
        ..Default::default()
    };
    let foreign = create_long_conversation(&app, &bert, ask).await;
    TwoTenants {
        app,
        anna,
        bert,
        annas_authorization,
        foreign,
    }
}

/// Creates a conversation with 16 messages, of which the first has two versions, checkpoints and a
/// separator after the last message.
pub(crate) async fn create_long_conversation(
    app: &TestApp,
    channel: &AuthorizedChannel,
    attributes: pb::CreateConversationRequest,
) -> String {
    let policy = pb::Policy {
        max_message_count: Some(6),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        policy: Some(policy),
        ..attributes
    };
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let mut messages = MessageServiceClient::new(channel.clone());
    for n in 0..8 {
        let exchange = vec![
            user(&format!("secret {n}")),
            text(pb::Role::Assistant, "I keep it."),
        ];
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            messages: exchange,
            ..Default::default()
        };
        messages.append_messages(ask).await.expect("appends");
        if n == 0 {
            // Before there is a checkpoint, which would no longer hold afterwards.
            let ask = pb::EditMessageRequest {
                conversation_id: conversation_id.clone(),
                message_id: 1,
                message: Some(user("secret zero")),
                ..Default::default()
            };
            messages.edit_message(ask).await.expect("edits");
        }
        app.run_jobs_until_idle().await;
    }
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    messages
        .insert_separator(ask)
        .await
        .expect("inserts a separator");
    conversation_id
}

#[tokio::test]
async fn a_foreign_conversation_answers_every_call_exactly_as_a_missing_one() {
    let TwoTenants {
        app,
        anna,
        bert,
        foreign,
        ..
    } = start_two_tenants().await;
    let mut asked = 0;
    for rpc in every_rpc() {
        if !rpc.names_conversation {
            continue;
        }
        let ask = |id: &str| valid_request(&rpc.name, id, "r");
        let outcome = observe(&anna, &rpc.path, ask(&foreign)).await;
        asked += 1;
        assert_eq!(
            outcome,
            observe(&anna, &rpc.path, ask(&Uuid::now_v7().to_string())).await,
            "{}",
            rpc.name
        );
        if rpc.name == "ListJobs" {
            assert_eq!(outcome, Ok(Some(Vec::new())), "no job is listed");
        } else {
            assert_eq!(
                outcome.expect_err(&rpc.name).0,
                tonic::Code::NotFound,
                "{}",
                rpc.name
            );
        }
    }
    assert!(asked >= 20, "{asked} calls name a conversation");
    // The conversation is unchanged for its owner.
    let ask = pb::GetConversationRequest {
        conversation_id: foreign.clone(),
    };
    let kept = ConversationServiceClient::new(bert.clone())
        .get_conversation(ask)
        .await
        .expect("is there")
        .into_inner();
    assert_eq!((kept.title.as_str(), kept.message_count), ("secret", 16));
    let ask = pb::ListCheckpointsRequest {
        conversation_id: foreign,
        ..Default::default()
    };
    let listed = ContextServiceClient::new(bert)
        .list_checkpoints(ask)
        .await
        .expect("lists")
        .into_inner();
    assert!(!listed.checkpoints.is_empty());
    drop(app);
}

#[tokio::test]
async fn equal_names_of_two_tenants_are_distinct() {
    let TwoTenants {
        app,
        anna,
        bert,
        foreign,
        ..
    } = start_two_tenants().await;
    let by = |channel: &AuthorizedChannel| ConversationServiceClient::new(channel.clone());
    let scope = pb::SessionScope {
        agent_id: "a".into(),
        channel: "c".into(),
        sender_id: "x".into(),
        ..Default::default()
    };
    let ask = pb::ResolveSessionRequest {
        scope: Some(scope),
        ..Default::default()
    };
    let hers = by(&anna)
        .resolve_session(ask.clone())
        .await
        .expect("resolves")
        .into_inner();
    let his = by(&bert)
        .resolve_session(ask)
        .await
        .expect("resolves")
        .into_inner();
    assert_ne!(hers, his);
    let ask = pb::CreateConversationRequest {
        request_id: "one".into(),
        ..Default::default()
    };
    let hers = by(&anna)
        .create_conversation(ask.clone())
        .await
        .expect("creates")
        .into_inner()
        .conversation_id;
    let his = by(&bert)
        .create_conversation(ask)
        .await
        .expect("creates")
        .into_inner()
        .conversation_id;
    assert_ne!(hers, his);
    let listed = by(&anna)
        .list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("lists");
    let listed = listed.into_inner().conversations;
    assert!(
        listed
            .iter()
            .all(|one| one.conversation_id != foreign && one.title.is_empty()),
        "{listed:?}"
    );
    // A page token of another tenant is invalid.
    let ask = pb::ListConversationsRequest {
        page_size: 1,
        ..Default::default()
    };
    let page_token = by(&bert)
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner()
        .next_page_token;
    assert!(!page_token.is_empty());
    let ask = pb::ListConversationsRequest {
        page_token,
        ..Default::default()
    };
    by(&bert)
        .list_conversations(ask.clone())
        .await
        .expect("the token is Bert's");
    let refused = by(&anna).list_conversations(ask).await;
    assert_refused(
        refused,
        tonic::Code::InvalidArgument,
        "INVALID_FIELD",
        "page_token",
    );
    drop(app);
}
