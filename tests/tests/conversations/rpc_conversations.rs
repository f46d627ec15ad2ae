//! ConversationService: create, get, list, update, delete.

use std::collections::HashMap;

use anneal_tests::{House, assert_refused, pb, user};
use pb::ConversationStatus::{Active, Archived};
use tonic::Code;

fn described() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        request_id: "c1".into(),
        agent_id: "helper".into(),
        user_id: "ada".into(),
        title: "Cooling 冷却".into(),
        pinned: true,
        metadata: HashMap::from([("team".into(), "blue".into())]),
        system_prompt: "Be brief.".into(),
        policy: Some(pb::Policy { max_message_count: Some(0), hot_zone_radius: Some(3), ..Default::default() }),
        encoding: "cl100k_base".into(),
        model: String::new(),
    }
}

#[tokio::test]
async fn a_conversation_is_what_it_was_created_as() {
    let house = House::start().await;
    let ask = described();
    let made = house.conversations().create_conversation(ask.clone()).await.expect("creates").into_inner();
    assert_eq!(
        (&made.agent_id, &made.user_id, &made.title, made.pinned, &made.metadata, &made.system_prompt),
        (&ask.agent_id, &ask.user_id, &ask.title, true, &ask.metadata, &ask.system_prompt),
    );
    assert_eq!((&made.policy, made.encoding.as_str(), made.status()), (&ask.policy, "cl100k_base", Active));
    assert_eq!((made.message_count, made.turn), (0, 0));
    assert_eq!(made.created_time, made.last_activity_time);
    let get = pb::GetConversationRequest { conversation_id: made.conversation_id.clone() };
    assert_eq!(house.conversations().get_conversation(get).await.expect("is there").into_inner(), made);
    let again = house.conversations().create_conversation(ask.clone()).await.expect("repeats").into_inner();
    assert_eq!(again, made);
    let other = pb::CreateConversationRequest { title: "another".into(), ..ask };
    let reused = house.conversations().create_conversation(other).await;
    assert_refused(reused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn the_model_chooses_the_encoding_unless_it_is_named() {
    let house = House::start().await;
    let cases = [
        ("", "", "o200k_base"),
        ("", "gpt-4", "cl100k_base"),
        ("", "gpt-4o", "o200k_base"),
        ("o200k_base", "gpt-4", "o200k_base"),
        ("", "no-such-model", "o200k_base"),
    ];
    for (encoding, model, chosen) in cases {
        let ask =
            pb::CreateConversationRequest { encoding: encoding.into(), model: model.into(), ..Default::default() };
        let talk = house.conversation_with(ask).await;
        assert_eq!(talk.conversation().await.encoding, chosen, "{model}");
    }
}

async fn titles(house: &House, ask: pb::ListConversationsRequest) -> Vec<String> {
    let mut titles = Vec::new();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListConversationsRequest { page_token, ..ask.clone() };
        let page = house.conversations().list_conversations(ask.clone()).await.expect("lists").into_inner();
        assert!(ask.page_size == 0 || page.conversations.len() <= ask.page_size as usize);
        titles.extend(page.conversations.into_iter().map(|row| row.title));
        if page.next_page_token.is_empty() {
            return titles;
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn lists_show_the_newest_activity_first_and_filter() {
    let house = House::start().await;
    let mut talks = Vec::new();
    for n in 0..7 {
        let ask = pb::CreateConversationRequest {
            title: format!("{}% {n}", if n < 4 { "old" } else { "new" }),
            agent_id: format!("agent-{}", n % 2),
            user_id: format!("user-{}", n % 3),
            system_prompt: "secret".into(),
            ..Default::default()
        };
        talks.push(house.conversation_with(ask).await);
    }
    talks[1].turn("hello", "hi").await;
    let all = ["old% 1", "new% 6", "new% 5", "new% 4", "old% 3", "old% 2", "old% 0"];
    let ask = pb::ListConversationsRequest::default;
    assert_eq!(titles(&house, ask()).await, all);
    for page_size in [1, 2, 3, 7, 8] {
        assert_eq!(titles(&house, pb::ListConversationsRequest { page_size, ..ask() }).await, all);
    }
    let by_agent = pb::ListConversationsRequest { agent_id: "agent-1".into(), page_size: 2, ..ask() };
    assert_eq!(titles(&house, by_agent).await, ["old% 1", "new% 5", "old% 3"]);
    let by_user = pb::ListConversationsRequest { user_id: "user-0".into(), ..ask() };
    assert_eq!(titles(&house, by_user).await, ["new% 6", "old% 3", "old% 0"]);
    let by_title = pb::ListConversationsRequest { title_prefix: "new%".into(), page_size: 1, ..ask() };
    assert_eq!(titles(&house, by_title).await, ["new% 6", "new% 5", "new% 4"]);
    assert_eq!(titles(&house, pb::ListConversationsRequest { title_prefix: "%".into(), ..ask() }).await.len(), 0);
    let page = house.conversations().list_conversations(ask()).await.expect("lists").into_inner();
    assert!(page.conversations.iter().all(|row| row.system_prompt.is_empty()), "lists leave prompts out");
    let first = &page.conversations[0];
    assert_eq!((first.message_count, first.token_total.expect("a total").estimated_messages), (2, 2));
    let archive = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: talks[2].id.clone(),
            status: Archived.into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["status".into()] }),
        ..Default::default()
    };
    house.conversations().update_conversation(archive).await.expect("archives");
    let by_status = |status: pb::ConversationStatus| pb::ListConversationsRequest { status: status.into(), ..ask() };
    assert_eq!(titles(&house, by_status(Archived)).await, ["old% 2"]);
    assert_eq!(titles(&house, by_status(Active)).await.len(), 6);
    let odd = pb::ListConversationsRequest { status: 99, ..ask() };
    let refused = house.conversations().list_conversations(odd).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "status");
}

#[tokio::test]
async fn an_update_changes_what_the_mask_names_and_nothing_else() {
    let house = House::start().await;
    let talk = house.conversation_with(described()).await;
    let before = talk.conversation().await;
    let update = async |paths: &[&str], etag: &str, request_id: &str, title: &str| {
        let conversation = pb::Conversation {
            conversation_id: talk.id.clone(),
            title: title.into(),
            status: Archived.into(),
            pinned: false,
            metadata: HashMap::from([("k".into(), "v".into())]),
            system_prompt: "Be long.".into(),
            policy: None,
            ..Default::default()
        };
        let mask = prost_types::FieldMask { paths: paths.iter().map(ToString::to_string).collect() };
        let ask = pb::UpdateConversationRequest {
            conversation: Some(conversation),
            update_mask: Some(mask),
            etag: etag.into(),
            request_id: request_id.into(),
        };
        house.conversations().update_conversation(ask).await.map(tonic::Response::into_inner)
    };
    let changed = update(&["title"], &before.etag, "u1", "New").await.expect("updates");
    assert_ne!(changed.etag, before.etag);
    assert_eq!(changed, pb::Conversation { title: "New".into(), etag: changed.etag.clone(), ..before.clone() });
    assert_eq!(update(&["title"], &before.etag, "u1", "New").await.expect("repeats"), changed);
    assert_refused(update(&["title"], &before.etag, "u1", "Other").await, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_refused(update(&["title"], &before.etag, "", "Other").await, Code::Aborted, "ETAG_MISMATCH", "");
    for etag in ["garbage", "\0", "1e3", "99999999999999999999"] {
        assert_refused(update(&["title"], etag, "", "Other").await, Code::InvalidArgument, "INVALID_FIELD", "etag");
    }
    for paths in [&[][..], &["titel"], &["conversation_id"], &["title", "encoding"], &["title,pinned"], &["*"]] {
        assert_refused(update(paths, "", "", "Other").await, Code::InvalidArgument, "INVALID_FIELD", "update_mask");
    }
    let nul = update(&["title"], "", "", "a\0").await;
    assert_refused(nul, Code::InvalidArgument, "INVALID_FIELD", "conversation.title");
    assert_eq!(talk.conversation().await, changed, "what is refused changes nothing");
    let rest =
        update(&["status", "pinned", "metadata", "system_prompt", "policy"], "", "", "x").await.expect("updates");
    assert_eq!((rest.status(), rest.pinned, rest.system_prompt.as_str()), (Archived, false, "Be long."));
    assert_eq!(rest.policy.unwrap_or_default(), pb::Policy::default());
    assert_eq!((rest.title.as_str(), rest.metadata.len()), ("New", 1));
    assert_eq!(rest.last_activity_time, before.last_activity_time);
    talk.append("an archived conversation takes messages").await;
    let none = pb::UpdateConversationRequest::default();
    let refused = house.conversations().update_conversation(none).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "conversation");
}

#[tokio::test]
async fn a_deleted_conversation_is_gone_and_its_request_ids_with_it() {
    let house = House::start().await;
    let talk = house.conversation_with(described()).await;
    talk.append("a").request_id("r1").await;
    let ask = || pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask()).await.expect("deletes");
    let again = house.conversations().delete_conversation(ask()).await;
    assert_refused(again, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    assert_eq!(house.run_jobs_until_idle().await, 0, "its jobs are gone");
    let made = house.conversation_with(described()).await;
    assert_eq!(made.conversation().await.message_count, 0);
    assert!(!made.append("a").request_id("r1").await.replayed);
}

/// Sessions of this house's database that hold a transaction open and do nothing.
async fn idle_transactions(house: &House) -> i64 {
    let sql = "select count(*) from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%'";
    sqlx::query_scalar(sql).fetch_one(&mut house.db().await).await.expect("counts")
}

#[tokio::test]
async fn a_refused_change_holds_no_lock_when_it_is_answered() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("one"), user("two")]).request_id("r").await;
    let update = async |etag: &str| {
        let conversation =
            pb::Conversation { conversation_id: talk.id.clone(), title: "x".into(), ..Default::default() };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["title".into()] });
        let (conversation, etag) = (Some(conversation), etag.to_owned());
        let ask = pb::UpdateConversationRequest { conversation, update_mask, etag, ..Default::default() };
        house.conversations().update_conversation(ask).await.map(|_| ())
    };
    let held = async |name: &str, refused: Result<(), tonic::Status>| {
        refused.expect_err(name);
        assert_eq!(idle_transactions(&house).await, 0, "{name}");
    };
    held("an etag", update("7").await).await;
    let ask =
        pb::DeleteSeparatorRequest { conversation_id: talk.id.clone(), after_message_id: 9, ..Default::default() };
    held("a separator", house.messages().delete_separator(ask).await.map(|_| ())).await;
    let ask = pb::ImportCheckpointRequest {
        conversation_id: talk.id.clone(),
        last_message_id: 99,
        summary: "so far".into(),
        ..Default::default()
    };
    held("a checkpoint", house.contexts().import_checkpoint(ask).await.map(|_| ())).await;
    held("a body", talk.append("else").request_id("r").send().await.map(|_| ())).await;
    held("a place", talk.append("else").expecting(7).send().await.map(|_| ())).await;
    update("").await.expect("nobody is in the way");
}
