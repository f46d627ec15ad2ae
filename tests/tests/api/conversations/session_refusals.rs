//! Requests for sessions are refused if their scope or their defaults are invalid.

use anneal_testkit::{TestApp, assert_refused, direct_scope, pb};
use tonic::Code;

use crate::conversations::sessions::group_scope;

// Reasons of refusals.
const FIELD: &str = "INVALID_FIELD";
const LIMIT: &str = "LIMIT_EXCEEDED";

/// Invalid scopes. With each, the reason of its refusal and the field that the refusal names.
/// `long` is longer than any field may be.
fn invalid_scopes(long: &str) -> [(pb::SessionScope, &'static str, &'static str); 16] {
    [
        (
            pb::SessionScope {
                agent_id: String::new(),
                ..direct_scope("u")
            },
            FIELD,
            "scope.agent_id",
        ),
        (pb::SessionScope::default(), FIELD, "scope.agent_id"),
        (direct_scope(""), FIELD, "scope.sender_id"),
        (
            pb::SessionScope {
                thread_id: "1".into(),
                ..direct_scope("")
            },
            FIELD,
            "scope.sender_id",
        ),
        (
            pb::SessionScope {
                chat_type: "dm".into(),
                ..group_scope("g", "")
            },
            FIELD,
            "scope.sender_id",
        ),
        (group_scope("", "u"), FIELD, "scope.group_id"),
        (
            pb::SessionScope {
                chat_type: "Forum-Topic".into(),
                ..direct_scope("u")
            },
            FIELD,
            "scope.group_id",
        ),
        (
            pb::SessionScope {
                agent_id: long.to_owned(),
                ..direct_scope("u")
            },
            LIMIT,
            "scope.agent_id",
        ),
        (
            pb::SessionScope {
                channel: long.to_owned(),
                ..direct_scope("u")
            },
            LIMIT,
            "scope.channel",
        ),
        (
            pb::SessionScope {
                account_id: long.to_owned(),
                ..direct_scope("u")
            },
            LIMIT,
            "scope.account_id",
        ),
        (
            pb::SessionScope {
                chat_type: long.to_owned(),
                ..direct_scope("u")
            },
            LIMIT,
            "scope.chat_type",
        ),
        (
            pb::SessionScope {
                thread_id: long.to_owned(),
                ..direct_scope("u")
            },
            LIMIT,
            "scope.thread_id",
        ),
        (group_scope(long, "u"), LIMIT, "scope.group_id"),
        (direct_scope(long), LIMIT, "scope.sender_id"),
        (direct_scope("u\0"), FIELD, "scope.sender_id"),
        (
            pb::SessionScope {
                channel: "\0".into(),
                ..direct_scope("u")
            },
            FIELD,
            "scope.channel",
        ),
    ]
}

#[tokio::test]
async fn invalid_scopes_are_refused_and_name_their_field() {
    let app = TestApp::start().await;
    for (scope, reason, field) in invalid_scopes(&"a".repeat(129)) {
        assert_refused(
            app.resolve(&scope).await,
            Code::InvalidArgument,
            reason,
            field,
        );
        assert_refused(
            app.rotate(&scope, "").await,
            Code::InvalidArgument,
            reason,
            field,
        );
    }
    let without_scope = app
        .conversations()
        .resolve_session(pb::ResolveSessionRequest::default())
        .await;
    assert_refused(without_scope, Code::InvalidArgument, FIELD, "scope");
    assert_no_conversations(&app).await;
}

#[tokio::test]
async fn invalid_defaults_are_refused_and_name_their_field() {
    let app = TestApp::start().await;
    let resolve_with = |defaults: pb::CreateConversationRequest| pb::ResolveSessionRequest {
        scope: Some(direct_scope("u")),
        defaults: Some(defaults),
        ..Default::default()
    };
    let new = pb::CreateConversationRequest::default;
    let invalid_policy = pb::Policy {
        keep_recent_turns: Some(0),
        ..Default::default()
    };
    for (defaults, reason, field) in [
        (
            pb::CreateConversationRequest {
                request_id: "r".into(),
                ..new()
            },
            FIELD,
            "defaults.request_id",
        ),
        (
            pb::CreateConversationRequest {
                agent_id: "other".into(),
                ..new()
            },
            FIELD,
            "defaults.agent_id",
        ),
        (
            pb::CreateConversationRequest {
                user_id: "a".repeat(129),
                ..new()
            },
            LIMIT,
            "defaults.user_id",
        ),
        (
            pb::CreateConversationRequest {
                policy: Some(invalid_policy),
                ..new()
            },
            FIELD,
            "defaults.policy.keep_recent_turns",
        ),
    ] {
        let ask = resolve_with(defaults);
        let refused = app.conversations().resolve_session(ask).await;
        assert_refused(refused, Code::InvalidArgument, reason, field);
    }
    assert_no_conversations(&app).await;
    let valid = pb::CreateConversationRequest {
        agent_id: "main".into(),
        user_id: "owner".into(),
        ..new()
    };
    let created = app
        .conversations()
        .resolve_session(resolve_with(valid))
        .await
        .expect("resolves")
        .into_inner();
    assert_eq!(
        created.conversation.expect("a conversation").user_id,
        "owner"
    );
}

async fn assert_no_conversations(app: &TestApp) {
    let all = app.list(pb::ListConversationsRequest::default()).await;
    assert_eq!(all.len(), 0, "a refused request creates nothing");
}
