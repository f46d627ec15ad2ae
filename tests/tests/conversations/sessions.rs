//! Sessions: chats find their conversation, /new gives them another.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use std::collections::HashMap;

use anneal_core::{
    caller::{Caller, TenantId},
    session_key::Scope,
};
use anneal_store::{NewConversation, Rotation, Start, StoreError};
use anneal_tests::{House, assert_refused, direct, pb};
use pb::{ChatType, ConversationStatus::Archived};
use tonic::Code;

/// The id of the conversation that a session leads to.
pub(crate) fn id(session: &pb::Session) -> String {
    session.conversation.as_ref().expect("a conversation").conversation_id.clone()
}

fn group(group: &str, sender: &str) -> pb::SessionScope {
    pb::SessionScope { chat_type: "supergroup".into(), group_id: group.into(), ..direct(sender) }
}

#[tokio::test]
async fn row_Z1_a_thread_comes_before_its_group_and_that_before_the_sender() {
    let house = House::start().await;
    let anna = house.resolve(&direct("anna")).await.expect("resolves");
    assert_eq!((anna.session_key.as_str(), anna.chat_type()), ("agent:main:telegram::direct:anna", ChatType::Unknown));
    assert!(anna.created && anna.created_time.is_some() && anna.rotated_time.is_none());
    let made = anna.conversation.clone().expect("a conversation");
    assert_eq!((made.agent_id.as_str(), made.user_id.as_str()), ("main", "anna"));
    assert_eq!(made.session_key, anna.session_key);

    let in_group = house.resolve(&group("g:1", "anna")).await.expect("resolves");
    assert_eq!(in_group.session_key, "agent:main:telegram::group:g%3A1");
    assert_eq!(in_group.chat_type(), ChatType::Group);
    assert_eq!(in_group.conversation.as_ref().expect("a conversation").user_id, "", "a group is nobody's own");
    assert_eq!(id(&house.resolve(&group("g:1", "bert")).await.expect("resolves")), id(&in_group));

    let topic = pb::SessionScope { chat_type: "Topic".into(), thread_id: "7".into(), ..group("g:1", "anna") };
    let in_topic = house.resolve(&topic).await.expect("resolves");
    assert_eq!(in_topic.session_key, "agent:main:telegram::thread:g%3A1:7");
    assert_eq!(in_topic.chat_type(), ChatType::Thread);

    for alias in ["dm", "private", "IM", "p2p"] {
        let private = pb::SessionScope { chat_type: alias.into(), channel: "Telegram".into(), ..group("g:1", "anna") };
        let again = house.resolve(&private).await.expect("resolves");
        assert_eq!((id(&again), again.chat_type(), again.created), (id(&anna), ChatType::Direct, false), "{alias}");
    }
    let thread = |sender: &str| pb::SessionScope { thread_id: "7".into(), ..direct(sender) };
    let (annas, berts) = (house.resolve(&thread("anna")).await, house.resolve(&thread("bert")).await);
    let (annas, berts) = (annas.expect("resolves"), berts.expect("resolves"));
    assert_eq!(annas.session_key, "agent:main:telegram::direct:anna:thread:7");
    assert_ne!(id(&annas), id(&berts), "two people's threads with one id are two conversations");
    let other_agent = pb::SessionScope { agent_id: "other".into(), ..direct("anna") };
    assert_ne!(id(&house.resolve(&other_agent).await.expect("resolves")), id(&anna));
}

#[tokio::test]
async fn row_Z2_rotating_gives_a_new_conversation_under_the_same_key() {
    let house = House::start().await;
    let defaults = pb::CreateConversationRequest {
        system_prompt: "Be brief.".into(),
        metadata: HashMap::from([("team".into(), "blue".into())]),
        policy: Some(pb::Policy { hot_zone_radius: Some(3), ..Default::default() }),
        encoding: "cl100k_base".into(),
        pinned: true,
        ..Default::default()
    };
    let ask = pb::ResolveSessionRequest {
        scope: Some(direct("anna")),
        defaults: Some(defaults.clone()),
        ..Default::default()
    };
    let first = house.conversations().resolve_session(ask).await.expect("resolves").into_inner();
    house.talk(&first).turn("my first question", "hm").await;
    let before = house.talk(&first).conversation().await;
    let second = house.rotate(&direct("anna"), "").await.expect("rotates");
    assert_eq!(second.session_key, first.session_key);
    assert!(second.created && second.rotated_time.is_some() && second.created_time == first.created_time);
    let fresh = second.conversation.clone().expect("a conversation");
    assert_ne!(fresh.conversation_id, before.conversation_id);
    assert_eq!(
        (&fresh.agent_id, &fresh.user_id, &fresh.system_prompt, &fresh.metadata, &fresh.policy, &fresh.encoding),
        (&before.agent_id, &before.user_id, &before.system_prompt, &before.metadata, &before.policy, &before.encoding),
        "it starts with the settings of the one before"
    );
    assert_eq!((fresh.title.as_str(), fresh.message_count, fresh.pinned), ("", 0, false), "and nothing else of it");
    assert_eq!(id(&house.resolve(&direct("anna")).await.expect("resolves")), fresh.conversation_id);
    let old = house.talk(&first).conversation().await;
    assert_eq!((old.status(), old.message_count), (Archived, 2));
    assert_ne!(old.etag, before.etag, "whoever has read it learns that it was archived");

    let ask = pb::RotateSessionRequest {
        scope: Some(direct("anna")),
        defaults: Some(pb::CreateConversationRequest { title: "Third".into(), ..Default::default() }),
        ..Default::default()
    };
    let third = house.conversations().rotate_session(ask).await.expect("rotates").into_inner();
    let third = third.conversation.expect("a conversation");
    assert_eq!(
        (third.title.as_str(), third.system_prompt.as_str(), third.encoding.as_str()),
        ("Third", "", "o200k_base")
    );
    assert_eq!(third.user_id, "anna");
}

#[tokio::test]
async fn row_Z11_every_conversation_of_a_session_stays_listed_with_status_title_and_activity() {
    let house = House::start().await;
    let mut last = None;
    for question in ["one", "two", "three"] {
        let session = house.rotate(&direct("anna"), "").await.expect("rotates");
        house.talk(&session).append(question).await;
        last = Some(session);
    }
    let ask = pb::ListConversationsRequest { user_id: "anna".into(), page_size: 2, ..Default::default() };
    let listed = house.list(ask).await;
    let rows: Vec<_> = listed.iter().map(|row| (row.title.as_str(), row.status().as_str_name())).collect();
    let (active, archived) = ("CONVERSATION_STATUS_ACTIVE", "CONVERSATION_STATUS_ARCHIVED");
    assert_eq!(rows, [("three", active), ("two", archived), ("one", archived)]);
    let key = last.expect("three sessions").session_key;
    assert!(listed.iter().all(|row| row.session_key == key && row.last_activity_time.is_some()));
    let times: Vec<_> = listed.iter().filter_map(|row| row.last_activity_time).collect();
    assert!(times.windows(2).all(|pair| (pair[0].seconds, pair[0].nanos) > (pair[1].seconds, pair[1].nanos)));
}

#[tokio::test]
async fn a_repeated_rotation_gives_the_same_conversation_for_its_life() {
    let house = House::start().await;
    let scope = direct("anna");
    let first = house.rotate(&scope, "r1").await.expect("makes the first");
    assert!(first.rotated_time.is_none(), "there was nothing to rotate");
    assert_eq!(house.rotate(&scope, "r1").await.expect("repeats"), first);
    let second = house.rotate(&scope, "r2").await.expect("rotates");
    assert_ne!(id(&second), id(&first));
    assert_eq!(id(&house.rotate(&scope, "r1").await.expect("repeats")), id(&first), "also when it is no longer active");
    assert_eq!(id(&house.resolve(&scope).await.expect("resolves")), id(&second), "and it does not come back by that");
    let ask = |title: &str| pb::RotateSessionRequest {
        scope: Some(scope.clone()),
        defaults: Some(pb::CreateConversationRequest { title: title.into(), ..Default::default() }),
        request_id: "r3".into(),
    };
    let third = house.conversations().rotate_session(ask("a")).await.expect("rotates").into_inner();
    assert_eq!(house.conversations().rotate_session(ask("a")).await.expect("repeats").into_inner(), third);
    let other = house.conversations().rotate_session(ask("b")).await;
    assert_refused(other, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_refused(house.rotate(&scope, "r3").await, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let elsewhere = house.rotate(&direct("bert"), "r3").await.expect("another scope has its own request ids");
    assert_ne!(id(&elsewhere), id(&third));
}

#[tokio::test]
async fn a_deleted_conversation_gives_way_to_a_new_one() {
    let house = House::start().await;
    let first = house.resolve(&direct("anna")).await.expect("resolves");
    house.talk(&first).append("hello").await;
    let ask = pb::DeleteConversationRequest { conversation_id: id(&first), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let second = house.resolve(&direct("anna")).await.expect("resolves");
    assert!(second.created && id(&second) != id(&first));
    assert_eq!(house.talk(&second).conversation().await.message_count, 0);
}

#[tokio::test]
async fn what_another_tenant_has_under_the_same_key_is_not_there() {
    let house = House::start().await;
    let mine = house.resolve(&direct("anna")).await.expect("resolves");
    let tenant = uuid::Uuid::now_v7();
    sqlx::query("insert into tenant (tenant_id, name) values ($1, 'other')")
        .bind(tenant)
        .execute(&mut house.db().await)
        .await
        .expect("another tenant");
    let caller = Caller::of(TenantId(tenant));
    let scope = Scope { agent: "main".into(), channel: "telegram".into(), sender: "anna".into(), ..Scope::default() };
    let key = scope.place().expect("a place").key;
    assert_eq!(key.as_str(), mine.session_key);
    let new = NewConversation::default().counted();
    let theirs = house.store.resolve_session(caller, &key, &new).await.expect("resolves");
    assert!(theirs.made && theirs.conversation.id.to_string() != id(&mine));
    let rotation = Rotation {
        key: &key,
        request_id: Some("r1"),
        asked: NewConversation::default().digest(),
        start: Start::AsBefore(new.clone()),
    };
    let rotated = house.store.rotate_session(caller, &rotation).await.expect("rotates");
    assert_ne!(id(&house.rotate(&direct("anna"), "r1").await.expect("rotates")), rotated.conversation.id.to_string());
    let gone = house.store.conversation(Caller::of(TenantId::DEFAULT), rotated.conversation.id).await;
    assert!(matches!(gone, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn scopes_that_make_no_place_are_refused_with_their_field() {
    let house = House::start().await;
    let long = "a".repeat(129);
    let (field, limit) = ("INVALID_FIELD", "LIMIT_EXCEEDED");
    let cases = [
        (pb::SessionScope { agent_id: String::new(), ..direct("u") }, field, "scope.agent_id"),
        (pb::SessionScope::default(), field, "scope.agent_id"),
        (direct(""), field, "scope.sender_id"),
        (pb::SessionScope { thread_id: "1".into(), ..direct("") }, field, "scope.sender_id"),
        (pb::SessionScope { chat_type: "dm".into(), ..group("g", "") }, field, "scope.sender_id"),
        (group("", "u"), field, "scope.group_id"),
        (pb::SessionScope { chat_type: "Forum-Topic".into(), ..direct("u") }, field, "scope.group_id"),
        (pb::SessionScope { agent_id: long.clone(), ..direct("u") }, limit, "scope.agent_id"),
        (pb::SessionScope { channel: long.clone(), ..direct("u") }, limit, "scope.channel"),
        (pb::SessionScope { account_id: long.clone(), ..direct("u") }, limit, "scope.account_id"),
        (pb::SessionScope { chat_type: long.clone(), ..direct("u") }, limit, "scope.chat_type"),
        (pb::SessionScope { thread_id: long.clone(), ..direct("u") }, limit, "scope.thread_id"),
        (group(&long, "u"), limit, "scope.group_id"),
        (direct(&long), limit, "scope.sender_id"),
        (direct("u\0"), field, "scope.sender_id"),
        (pb::SessionScope { channel: "\0".into(), ..direct("u") }, field, "scope.channel"),
    ];
    for (scope, reason, blamed) in cases {
        assert_refused(house.resolve(&scope).await, Code::InvalidArgument, reason, blamed);
        assert_refused(house.rotate(&scope, "").await, Code::InvalidArgument, reason, blamed);
    }
    let none = house.conversations().resolve_session(pb::ResolveSessionRequest::default()).await;
    assert_refused(none, Code::InvalidArgument, field, "scope");
    let defaults = |defaults: pb::CreateConversationRequest| pb::ResolveSessionRequest {
        scope: Some(direct("u")),
        defaults: Some(defaults),
        ..Default::default()
    };
    let new = pb::CreateConversationRequest::default;
    let bad = pb::Policy { keep_recent_turns: Some(0), ..Default::default() };
    for (ask, reason, blamed) in [
        (pb::CreateConversationRequest { request_id: "r".into(), ..new() }, field, "defaults.request_id"),
        (pb::CreateConversationRequest { agent_id: "other".into(), ..new() }, field, "defaults.agent_id"),
        (pb::CreateConversationRequest { user_id: long.clone(), ..new() }, limit, "defaults.user_id"),
        (pb::CreateConversationRequest { policy: Some(bad), ..new() }, field, "defaults.policy.keep_recent_turns"),
    ] {
        let refused = house.conversations().resolve_session(defaults(ask)).await;
        assert_refused(refused, Code::InvalidArgument, reason, blamed);
    }
    assert_eq!(house.list(pb::ListConversationsRequest::default()).await.len(), 0, "what is refused makes nothing");
    let named = pb::CreateConversationRequest { agent_id: "main".into(), user_id: "owner".into(), ..new() };
    let made = house.conversations().resolve_session(defaults(named)).await.expect("resolves").into_inner();
    assert_eq!(made.conversation.expect("a conversation").user_id, "owner");
}

#[tokio::test]
async fn the_longest_and_strangest_scope_has_a_session() {
    let house = House::start().await;
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
    let first = house.resolve(&strange).await.expect("resolves");
    assert_eq!(id(&house.resolve(&strange).await.expect("resolves")), id(&first));
    assert_ne!(id(&house.rotate(&strange, &"r".repeat(128)).await.expect("rotates")), id(&first));
}
