//! ConversationService: creating, getting, listing, updating and deleting conversations.

use std::collections::HashMap;

use anneal_testkit::{TestApp, assert_refused, pb, user};
use pb::ConversationStatus::{Active, Archived};
use tonic::Code;

fn full_create_request() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        request_id: "c1".into(),
        agent_id: "helper".into(),
        user_id: "ada".into(),
        title: "Cooling 冷却".into(),
        pinned: true,
        metadata: HashMap::from([("team".into(), "blue".into())]),
        system_prompt: "Be brief.".into(),
        policy: Some(pb::Policy {
            max_message_count: Some(0),
            hot_zone_radius: Some(3),
            ..Default::default()
        }),
        encoding: "cl100k_base".into(),
        model: String::new(),
        chat_options: None,
    }
}

#[tokio::test]
async fn a_conversation_has_the_fields_of_its_create_request() {
    let app = TestApp::start().await;
    let ask = full_create_request();
    let created = app
        .conversations()
        .create_conversation(ask.clone())
        .await
        .expect("creates")
        .into_inner();
    assert_eq!(
        (
            &created.agent_id,
            &created.user_id,
            &created.title,
            created.pinned,
            &created.metadata,
            &created.system_prompt
        ),
        (
            &ask.agent_id,
            &ask.user_id,
            &ask.title,
            true,
            &ask.metadata,
            &ask.system_prompt
        ),
    );
    assert_eq!(
        (&created.policy, created.encoding.as_str(), created.status()),
        (&ask.policy, "cl100k_base", Active)
    );
    assert_eq!((created.message_count, created.turn), (0, 0));
    assert_eq!(created.created_time, created.last_activity_time);
    let get = pb::GetConversationRequest {
        conversation_id: created.conversation_id.clone(),
    };
    assert_eq!(
        app.conversations()
            .get_conversation(get)
            .await
            .expect("is there")
            .into_inner(),
        created
    );
    let again = app
        .conversations()
        .create_conversation(ask.clone())
        .await
        .expect("repeats")
        .into_inner();
    assert_eq!(again, created);
    let other = pb::CreateConversationRequest {
        title: "another".into(),
        ..ask
    };
    let reused = app.conversations().create_conversation(other).await;
    assert_refused(reused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn the_model_chooses_the_encoding_unless_the_request_names_one() {
    let app = TestApp::start().await;
    let cases = [
        ("", "", "o200k_base"),
        ("", "gpt-4", "cl100k_base"),
        ("", "gpt-4o", "o200k_base"),
        ("o200k_base", "gpt-4", "o200k_base"),
        ("", "no-such-model", "o200k_base"),
    ];
    for (encoding, model, chosen) in cases {
        let ask = pb::CreateConversationRequest {
            encoding: encoding.into(),
            model: model.into(),
            ..Default::default()
        };
        let conversation = app.conversation_with(ask).await;
        assert_eq!(
            conversation.conversation().await.encoding,
            chosen,
            "{model}"
        );
    }
}

/// Lists conversations page by page. Returns their titles.
async fn list_titles(app: &TestApp, ask: pb::ListConversationsRequest) -> Vec<String> {
    let mut titles = Vec::new();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListConversationsRequest {
            page_token,
            ..ask.clone()
        };
        let page = app
            .conversations()
            .list_conversations(ask.clone())
            .await
            .expect("lists")
            .into_inner();
        assert!(ask.page_size == 0 || page.conversations.len() <= ask.page_size as usize);
        titles.extend(page.conversations.into_iter().map(|row| row.title));
        if page.next_page_token.is_empty() {
            return titles;
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn lists_are_ordered_by_newest_activity_and_filtered_by_the_requests_fields() {
    let app = TestApp::start().await;
    let mut conversations = Vec::new();
    for n in 0..7 {
        let ask = pb::CreateConversationRequest {
            title: format!("{}% {n}", if n < 4 { "old" } else { "new" }),
            agent_id: format!("agent-{}", n % 2),
            user_id: format!("user-{}", n % 3),
            system_prompt: "secret".into(),
            ..Default::default()
        };
        conversations.push(app.conversation_with(ask).await);
    }
    conversations[1].turn("hello", "hi").await;
    let all = [
        "old% 1", "new% 6", "new% 5", "new% 4", "old% 3", "old% 2", "old% 0",
    ];
    let ask = pb::ListConversationsRequest::default;
    assert_eq!(list_titles(&app, ask()).await, all);
    for page_size in [1, 2, 3, 7, 8] {
        assert_eq!(
            list_titles(&app, pb::ListConversationsRequest { page_size, ..ask() }).await,
            all
        );
    }
    let by_agent = pb::ListConversationsRequest {
        agent_id: "agent-1".into(),
        page_size: 2,
        ..ask()
    };
    assert_eq!(
        list_titles(&app, by_agent).await,
        ["old% 1", "new% 5", "old% 3"]
    );
    let by_user = pb::ListConversationsRequest {
        user_id: "user-0".into(),
        ..ask()
    };
    assert_eq!(
        list_titles(&app, by_user).await,
        ["new% 6", "old% 3", "old% 0"]
    );
    let by_title = pb::ListConversationsRequest {
        title_prefix: "new%".into(),
        page_size: 1,
        ..ask()
    };
    assert_eq!(
        list_titles(&app, by_title).await,
        ["new% 6", "new% 5", "new% 4"]
    );
    assert_eq!(
        list_titles(
            &app,
            pb::ListConversationsRequest {
                title_prefix: "%".into(),
                ..ask()
            }
        )
        .await
        .len(),
        0
    );
    let page = app
        .conversations()
        .list_conversations(ask())
        .await
        .expect("lists")
        .into_inner();
    assert!(
        page.conversations
            .iter()
            .all(|row| row.system_prompt.is_empty()),
        "lists omit system prompts"
    );
    let first = &page.conversations[0];
    assert_eq!(
        (
            first.message_count,
            first.token_total.expect("a total").estimated_messages
        ),
        (2, 0)
    );
    let archive = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversations[2].id.clone(),
            status: Archived.into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["status".into()],
        }),
        ..Default::default()
    };
    app.conversations()
        .update_conversation(archive)
        .await
        .expect("archives");
    let by_status = |status: pb::ConversationStatus| pb::ListConversationsRequest {
        status: status.into(),
        ..ask()
    };
    assert_eq!(list_titles(&app, by_status(Archived)).await, ["old% 2"]);
    assert_eq!(list_titles(&app, by_status(Active)).await.len(), 6);
    let unknown_status = pb::ListConversationsRequest {
        status: 99,
        ..ask()
    };
    let refused = app.conversations().list_conversations(unknown_status).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "status");
}

#[tokio::test]
async fn an_update_changes_only_the_fields_of_its_mask() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with(full_create_request()).await;
    let before = conversation.conversation().await;
    let update = async |paths: &[&str], etag: &str, request_id: &str, title: &str| {
        let changed_fields = pb::Conversation {
            conversation_id: conversation.id.clone(),
            title: title.into(),
            status: Archived.into(),
            pinned: false,
            metadata: HashMap::from([("k".into(), "v".into())]),
            system_prompt: "Be long.".into(),
            policy: None,
            ..Default::default()
        };
        let mask = prost_types::FieldMask {
            paths: paths.iter().map(ToString::to_string).collect(),
        };
        let ask = pb::UpdateConversationRequest {
            conversation: Some(changed_fields),
            update_mask: Some(mask),
            etag: etag.into(),
            request_id: request_id.into(),
        };
        app.conversations()
            .update_conversation(ask)
            .await
            .map(tonic::Response::into_inner)
    };
    let changed = update(&["title"], &before.etag, "u1", "New")
        .await
        .expect("updates");
    assert_ne!(changed.etag, before.etag);
    assert_eq!(
        changed,
        pb::Conversation {
            title: "New".into(),
            etag: changed.etag.clone(),
            ..before.clone()
        }
    );
    assert_eq!(
        update(&["title"], &before.etag, "u1", "New")
            .await
            .expect("repeats"),
        changed
    );
    assert_refused(
        update(&["title"], &before.etag, "u1", "Other").await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    assert_refused(
        update(&["title"], &before.etag, "", "Other").await,
        Code::Aborted,
        "ETAG_MISMATCH",
        "",
    );
    for etag in ["garbage", "\0", "1e3", "99999999999999999999"] {
        assert_refused(
            update(&["title"], etag, "", "Other").await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "etag",
        );
    }
    for paths in [
        &[][..],
        &["titel"],
        &["conversation_id"],
        &["title", "encoding"],
        &["title,pinned"],
        &["*"],
    ] {
        assert_refused(
            update(paths, "", "", "Other").await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "update_mask",
        );
    }
    let nul = update(&["title"], "", "", "a\0").await;
    assert_refused(
        nul,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation.title",
    );
    assert_eq!(
        conversation.conversation().await,
        changed,
        "a refused request changes nothing"
    );
    let updated = update(
        &["status", "pinned", "metadata", "system_prompt", "policy"],
        "",
        "",
        "x",
    )
    .await
    .expect("updates");
    assert_eq!(
        (
            updated.status(),
            updated.pinned,
            updated.system_prompt.as_str()
        ),
        (Archived, false, "Be long.")
    );
    assert_eq!(updated.policy.unwrap_or_default(), pb::Policy::default());
    assert_eq!((updated.title.as_str(), updated.metadata.len()), ("New", 1));
    assert_eq!(updated.last_activity_time, before.last_activity_time);
    conversation
        .append("an archived conversation takes messages")
        .await;
}

#[tokio::test]
async fn an_update_without_a_conversation_is_refused() {
    let app = TestApp::start().await;
    let none = pb::UpdateConversationRequest::default();
    let refused = app.conversations().update_conversation(none).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation",
    );
}

#[tokio::test]
async fn deleting_a_conversation_deletes_its_request_ids() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with(full_create_request()).await;
    conversation.append("a").request_id("r1").await;
    let ask = || pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask())
        .await
        .expect("deletes");
    let again = app.conversations().delete_conversation(ask()).await;
    assert_refused(again, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    assert_eq!(app.run_jobs_until_idle().await, 0, "its jobs are deleted");
    let created = app.conversation_with(full_create_request()).await;
    assert_eq!(created.conversation().await.message_count, 0);
    assert!(!created.append("a").request_id("r1").await.replayed);
}

/// Counts this app's database sessions that are idle in a transaction.
async fn count_idle_transactions(app: &TestApp) -> i64 {
    let sql = "select count(*) from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%'";
    sqlx::query_scalar(sql)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

#[tokio::test]
async fn a_refused_change_releases_its_lock_before_it_is_answered() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("one"), user("two")])
        .request_id("r")
        .await;
    let update = async |etag: &str| {
        let changed = pb::Conversation {
            conversation_id: conversation.id.clone(),
            title: "x".into(),
            ..Default::default()
        };
        let update_mask = Some(prost_types::FieldMask {
            paths: vec!["title".into()],
        });
        let (changed, etag) = (Some(changed), etag.to_owned());
        let ask = pb::UpdateConversationRequest {
            conversation: changed,
            update_mask,
            etag,
            ..Default::default()
        };
        app.conversations()
            .update_conversation(ask)
            .await
            .map(|_| ())
    };
    let assert_released = async |name: &str, refused: Result<(), tonic::Status>| {
        refused.expect_err(name);
        assert_eq!(count_idle_transactions(&app).await, 0, "{name}");
    };
    assert_released("another etag", update("7").await).await;
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: conversation.id.clone(),
        after_message_id: 9,
        ..Default::default()
    };
    assert_released(
        "a missing separator",
        app.messages().delete_separator(ask).await.map(|_| ()),
    )
    .await;
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        last_message_id: 99,
        summary: "so far".into(),
        ..Default::default()
    };
    assert_released(
        "a checkpoint beyond the newest message",
        app.contexts().import_checkpoint(ask).await.map(|_| ()),
    )
    .await;
    assert_released(
        "a used request id with another body",
        conversation
            .append("else")
            .request_id("r")
            .send()
            .await
            .map(|_| ()),
    )
    .await;
    assert_released(
        "another expected last message",
        conversation
            .append("else")
            .expecting(7)
            .send()
            .await
            .map(|_| ()),
    )
    .await;
    update("").await.expect("no lock is held");
}
