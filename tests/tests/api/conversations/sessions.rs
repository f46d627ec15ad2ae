//! Sessions. A scope says who writes where; it resolves to a session key and the conversation that
//! is active under it. A rotation makes a new conversation the active one.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use std::collections::HashMap;

use anneal_core::{
    caller::{Caller, TenantId},
    session_key::SessionScope,
};
use anneal_store::{NewConversation, Rotation, RotationAttributes, StoreError};
use anneal_testkit::{TestApp, assert_refused, direct_scope, pb};
use pb::{ChatType, ConversationStatus::Archived};
use tonic::Code;

/// The id of the session's active conversation.
pub(crate) fn conversation_id(session: &pb::Session) -> String {
    session
        .conversation
        .as_ref()
        .expect("a conversation")
        .conversation_id
        .clone()
}

/// The scope of a sender in a group.
pub(crate) fn group_scope(group: &str, sender: &str) -> pb::SessionScope {
    pb::SessionScope {
        chat_type: "supergroup".into(),
        group_id: group.into(),
        ..direct_scope(sender)
    }
}

#[tokio::test]
async fn row_Z1_a_session_key_prefers_thread_to_group_to_sender() {
    let app = TestApp::start().await;
    let anna = app.resolve(&direct_scope("anna")).await.expect("resolves");
    assert_eq!(
        (anna.session_key.as_str(), anna.chat_type()),
        ("agent:main:telegram::direct:anna", ChatType::Unknown)
    );
    assert!(anna.created && anna.created_time.is_some() && anna.rotated_time.is_none());
    let created = anna.conversation.clone().expect("a conversation");
    assert_eq!(
        (created.agent_id.as_str(), created.user_id.as_str()),
        ("main", "anna")
    );
    assert_eq!(created.session_key, anna.session_key);

    let in_group = app
        .resolve(&group_scope("g:1", "anna"))
        .await
        .expect("resolves");
    assert_eq!(in_group.session_key, "agent:main:telegram::group:g%3A1");
    assert_eq!(in_group.chat_type(), ChatType::Group);
    assert_eq!(
        in_group
            .conversation
            .as_ref()
            .expect("a conversation")
            .user_id,
        "",
        "a group conversation has no user"
    );
    assert_eq!(
        conversation_id(
            &app.resolve(&group_scope("g:1", "bert"))
                .await
                .expect("resolves")
        ),
        conversation_id(&in_group)
    );

    let topic = pb::SessionScope {
        chat_type: "Topic".into(),
        thread_id: "7".into(),
        ..group_scope("g:1", "anna")
    };
    let in_topic = app.resolve(&topic).await.expect("resolves");
    assert_eq!(in_topic.session_key, "agent:main:telegram::thread:g%3A1:7");
    assert_eq!(in_topic.chat_type(), ChatType::Thread);

    for alias in ["dm", "private", "IM", "p2p"] {
        let private = pb::SessionScope {
            chat_type: alias.into(),
            channel: "Telegram".into(),
            ..group_scope("g:1", "anna")
        };
        let found = app.resolve(&private).await.expect("resolves");
        assert_eq!(
            (conversation_id(&found), found.chat_type(), found.created),
            (conversation_id(&anna), ChatType::Direct, false),
            "{alias}"
        );
    }
    let thread = |sender: &str| pb::SessionScope {
        thread_id: "7".into(),
        ..direct_scope(sender)
    };
    let (annas, berts) = (
        app.resolve(&thread("anna")).await,
        app.resolve(&thread("bert")).await,
    );
    let (annas, berts) = (annas.expect("resolves"), berts.expect("resolves"));
    assert_eq!(
        annas.session_key,
        "agent:main:telegram::direct:anna:thread:7"
    );
    assert_ne!(
        conversation_id(&annas),
        conversation_id(&berts),
        "two users' threads with the same id are two conversations"
    );
    let other_agent = pb::SessionScope {
        agent_id: "other".into(),
        ..direct_scope("anna")
    };
    assert_ne!(
        conversation_id(&app.resolve(&other_agent).await.expect("resolves")),
        conversation_id(&anna)
    );
}

#[tokio::test]
async fn row_Z2_rotating_gives_a_new_conversation_under_the_same_key() {
    let app = TestApp::start().await;
    let defaults = pb::CreateConversationRequest {
        system_prompt: "Be brief.".into(),
        metadata: HashMap::from([("team".into(), "blue".into())]),
        policy: Some(pb::Policy {
            hot_zone_radius: Some(3),
            ..Default::default()
        }),
        encoding: "cl100k_base".into(),
        pinned: true,
        ..Default::default()
    };
    let ask = pb::ResolveSessionRequest {
        scope: Some(direct_scope("anna")),
        defaults: Some(defaults.clone()),
        ..Default::default()
    };
    let first = app
        .conversations()
        .resolve_session(ask)
        .await
        .expect("resolves")
        .into_inner();
    app.conversation_of(&first)
        .turn("my first question", "hm")
        .await;
    let before = app.conversation_of(&first).conversation().await;
    let second = app
        .rotate(&direct_scope("anna"), "")
        .await
        .expect("rotates");
    assert_eq!(second.session_key, first.session_key);
    assert!(
        second.created
            && second.rotated_time.is_some()
            && second.created_time == first.created_time
    );
    let fresh = second.conversation.clone().expect("a conversation");
    assert_ne!(fresh.conversation_id, before.conversation_id);
    assert_eq!(
        (
            &fresh.agent_id,
            &fresh.user_id,
            &fresh.system_prompt,
            &fresh.metadata,
            &fresh.policy,
            &fresh.encoding
        ),
        (
            &before.agent_id,
            &before.user_id,
            &before.system_prompt,
            &before.metadata,
            &before.policy,
            &before.encoding
        ),
        "the new conversation starts with the settings of the previous one"
    );
    assert_eq!(
        (fresh.title.as_str(), fresh.message_count, fresh.pinned),
        ("", 0, false),
        "only the settings are copied"
    );
    assert_eq!(
        conversation_id(&app.resolve(&direct_scope("anna")).await.expect("resolves")),
        fresh.conversation_id
    );
    let old = app.conversation_of(&first).conversation().await;
    assert_eq!((old.status(), old.message_count), (Archived, 2));
    assert_ne!(old.etag, before.etag, "archiving changes the etag");

    let ask = pb::RotateSessionRequest {
        scope: Some(direct_scope("anna")),
        defaults: Some(pb::CreateConversationRequest {
            title: "Third".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let third = app
        .conversations()
        .rotate_session(ask)
        .await
        .expect("rotates")
        .into_inner();
    let third = third.conversation.expect("a conversation");
    assert_eq!(
        (
            third.title.as_str(),
            third.system_prompt.as_str(),
            third.encoding.as_str()
        ),
        ("Third", "", "o200k_base")
    );
    assert_eq!(third.user_id, "anna");
}

#[tokio::test]
async fn row_Z11_every_conversation_of_a_session_stays_listed_with_status_title_and_activity() {
    let app = TestApp::start().await;
    let mut last = None;
    for question in ["one", "two", "three"] {
        let session = app
            .rotate(&direct_scope("anna"), "")
            .await
            .expect("rotates");
        app.conversation_of(&session).append(question).await;
        last = Some(session);
    }
    let ask = pb::ListConversationsRequest {
        user_id: "anna".into(),
        page_size: 2,
        ..Default::default()
    };
    let listed = app.list(ask).await;
    let rows: Vec<_> = listed
        .iter()
        .map(|row| (row.title.as_str(), row.status().as_str_name()))
        .collect();
    let (active, archived) = ("CONVERSATION_STATUS_ACTIVE", "CONVERSATION_STATUS_ARCHIVED");
    assert_eq!(
        rows,
        [("three", active), ("two", archived), ("one", archived)]
    );
    let key = last.expect("three sessions").session_key;
    assert!(
        listed
            .iter()
            .all(|row| row.session_key == key && row.last_activity_time.is_some())
    );
    let times: Vec<_> = listed
        .iter()
        .filter_map(|row| row.last_activity_time)
        .collect();
    assert!(
        times
            .windows(2)
            .all(|pair| (pair[0].seconds, pair[0].nanos) > (pair[1].seconds, pair[1].nanos))
    );
}

#[tokio::test]
async fn a_repeated_rotation_returns_the_same_conversation_until_it_is_deleted() {
    let app = TestApp::start().await;
    let scope = direct_scope("anna");
    let first = app.rotate(&scope, "r1").await.expect("creates the session");
    assert!(first.rotated_time.is_none(), "no conversation was archived");
    assert_eq!(app.rotate(&scope, "r1").await.expect("repeats"), first);
    let second = app.rotate(&scope, "r2").await.expect("rotates");
    assert_ne!(conversation_id(&second), conversation_id(&first));
    assert_eq!(
        conversation_id(&app.rotate(&scope, "r1").await.expect("repeats")),
        conversation_id(&first),
        "the repeated answer is the same after another rotation"
    );
    assert_eq!(
        conversation_id(&app.resolve(&scope).await.expect("resolves")),
        conversation_id(&second),
        "the repeated rotation does not make the first conversation active again"
    );
    let ask = |title: &str| pb::RotateSessionRequest {
        scope: Some(scope.clone()),
        defaults: Some(pb::CreateConversationRequest {
            title: title.into(),
            ..Default::default()
        }),
        request_id: "r3".into(),
    };
    let third = app
        .conversations()
        .rotate_session(ask("a"))
        .await
        .expect("rotates")
        .into_inner();
    assert_eq!(
        app.conversations()
            .rotate_session(ask("a"))
            .await
            .expect("repeats")
            .into_inner(),
        third
    );
    let other = app.conversations().rotate_session(ask("b")).await;
    assert_refused(other, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_refused(
        app.rotate(&scope, "r3").await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    let elsewhere = app
        .rotate(&direct_scope("bert"), "r3")
        .await
        .expect("another scope has its own request ids");
    assert_ne!(conversation_id(&elsewhere), conversation_id(&third));
}

#[tokio::test]
async fn resolving_after_deletion_creates_a_new_conversation() {
    let app = TestApp::start().await;
    let first = app.resolve(&direct_scope("anna")).await.expect("resolves");
    app.conversation_of(&first).append("hello").await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation_id(&first),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let second = app.resolve(&direct_scope("anna")).await.expect("resolves");
    assert!(second.created && conversation_id(&second) != conversation_id(&first));
    assert_eq!(
        app.conversation_of(&second)
            .conversation()
            .await
            .message_count,
        0
    );
}

#[tokio::test]
async fn one_session_key_of_two_tenants_names_two_sessions() {
    let app = TestApp::start().await;
    let mine = app.resolve(&direct_scope("anna")).await.expect("resolves");
    let tenant = uuid::Uuid::now_v7();
    sqlx::query("insert into tenant (tenant_id, name) values ($1, 'other')")
        .bind(tenant)
        .execute(&mut app.db().await)
        .await
        .expect("another tenant");
    let caller = Caller::of(TenantId(tenant));
    let scope = SessionScope {
        agent: "main".into(),
        channel: "telegram".into(),
        sender: "anna".into(),
        ..SessionScope::default()
    };
    let key = scope.resolve().expect("a valid scope").key;
    assert_eq!(key.as_str(), mine.session_key);
    let new = NewConversation::default().counted();
    let theirs = app
        .store
        .resolve_session(caller, &key, &new)
        .await
        .expect("resolves");
    assert!(theirs.is_new && theirs.conversation.id.to_string() != conversation_id(&mine));
    let rotation = Rotation {
        key: &key,
        request_id: Some("r1"),
        request_digest: NewConversation::default().digest(),
        attributes: RotationAttributes::CopyOfOld(new.clone()),
    };
    let rotated = app
        .store
        .rotate_session(caller, &rotation)
        .await
        .expect("rotates");
    assert_ne!(
        conversation_id(
            &app.rotate(&direct_scope("anna"), "r1")
                .await
                .expect("rotates")
        ),
        rotated.conversation.id.to_string()
    );
    let hidden = app
        .store
        .get_conversation(Caller::of(TenantId::DEFAULT), rotated.conversation.id)
        .await;
    assert!(matches!(hidden, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn the_longest_scope_with_unusual_characters_has_a_session() {
    let app = TestApp::start().await;
    let part = ":".repeat(128);
    let strange = pb::SessionScope {
        agent_id: part.clone(),
        channel: part.clone(),
        account_id: part.clone(),
        chat_type: "🗨".into(),
        thread_id: part.clone(),
        group_id: part.clone(),
        sender_id: "\u{202e}\n'; drop table ai_session; --".into(),
    };
    let first = app.resolve(&strange).await.expect("resolves");
    assert_eq!(
        conversation_id(&app.resolve(&strange).await.expect("resolves")),
        conversation_id(&first)
    );
    assert_ne!(
        conversation_id(
            &app.rotate(&strange, &"r".repeat(128))
                .await
                .expect("rotates")
        ),
        conversation_id(&first)
    );
}
