//! A conversation's title is taken from its first user message unless a caller has set one.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use std::{path::Path, time::Duration};

use anneal_store::{Migrations, StoreSettings};
use anneal_testkit::{TestApp, TestConversation, assistant, empty_database, media, pb, user};
use pb::append_large_message_request::{Frame, Header};
use sqlx::{Connection as _, PgConnection, migrate::Migrator};

async fn read_title(conversation: &TestConversation<'_>) -> String {
    conversation.conversation().await.title
}

async fn set_title(conversation: &TestConversation<'_>, title: &str) {
    let changed = pb::Conversation {
        conversation_id: conversation.id.clone(),
        title: title.into(),
        ..Default::default()
    };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(changed),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".into()],
        }),
        ..Default::default()
    };
    conversation
        .app
        .conversations()
        .update_conversation(ask)
        .await
        .expect("updates");
}

#[tokio::test]
async fn row_P8_a_title_is_the_first_thirty_characters_of_the_first_question() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    assert_eq!(read_title(&conversation).await, "");
    conversation
        .append_all(vec![
            assistant("Welcome!"),
            media("https://example.com/a.png"),
            user(" \n "),
        ])
        .await;
    assert_eq!(
        read_title(&conversation).await,
        "",
        "there is no user message with text yet"
    );
    let etag = conversation.conversation().await.etag;
    conversation
        .append_all(vec![
            user("How do I\nkeep 🇨🇭 flags in one piece, please?"),
            assistant("So."),
            user("Thanks"),
        ])
        .await;
    assert_eq!(
        read_title(&conversation).await,
        "How do I keep 🇨🇭 flags in one p"
    );
    assert_eq!(
        conversation.conversation().await.etag,
        etag,
        "a title taken from a message does not change the etag"
    );
    conversation.append("Another question").await;
    assert_eq!(
        read_title(&conversation).await,
        "How do I keep 🇨🇭 flags in one p"
    );
    assert_eq!(
        conversation.texts_by_role().await[3].1,
        "How do I\nkeep 🇨🇭 flags in one piece, please?",
        "the message is unchanged"
    );
    let found = app
        .list(pb::ListConversationsRequest {
            title_prefix: "How do I k".into(),
            ..Default::default()
        })
        .await;
    assert_eq!(found.len(), 1, "lists find the conversation by its title");
}

#[tokio::test]
async fn a_title_set_by_the_user_is_kept_even_if_empty() {
    let app = TestApp::start().await;
    let created_with_title = app
        .conversation_with(pb::CreateConversationRequest {
            title: "Mine".into(),
            ..Default::default()
        })
        .await;
    created_with_title.append("a question").await;
    assert_eq!(read_title(&created_with_title).await, "Mine");
    set_title(&created_with_title, "").await;
    created_with_title.append("a second question").await;
    assert_eq!(
        read_title(&created_with_title).await,
        "",
        "an explicitly empty title stays"
    );
    let renamed = app.conversation().await;
    renamed.append("a question").await;
    set_title(&renamed, "Renamed").await;
    renamed.append("more").await;
    assert_eq!(read_title(&renamed).await, "Renamed");
    let emptied = app.conversation().await;
    set_title(&emptied, "").await;
    emptied.append("a question").await;
    assert_eq!(read_title(&emptied).await, "");
}

#[tokio::test]
async fn a_repeated_or_refused_append_sets_no_title() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let refused = conversation
        .append("never stored")
        .expecting(7)
        .send()
        .await;
    assert!(refused.is_err());
    assert_eq!(read_title(&conversation).await, "");
    conversation.append("first").request_id("r1").await;
    assert!(
        conversation
            .append("other words")
            .request_id("r1")
            .send()
            .await
            .is_err()
    );
    assert!(conversation.append("first").request_id("r1").await.replayed);
    assert_eq!(
        (
            read_title(&conversation).await,
            conversation.conversation().await.message_count
        ),
        ("first".into(), 1)
    );
}

#[tokio::test]
async fn titles_of_streamed_messages_and_of_many_combining_characters_are_cut() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let header = Header {
        conversation_id: conversation.id.clone(),
        message: Some(user("")),
        ..Default::default()
    };
    let frames = [
        Frame::Header(header),
        Frame::Chunk(b"Large words ".repeat(100_000)),
    ];
    let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    app.messages()
        .append_large_message(futures::stream::iter(frames))
        .await
        .expect("appends");
    assert_eq!(
        read_title(&conversation).await,
        "Large words Large words Large",
        "the thirtieth character is a space, which is trimmed"
    );

    let zalgo = app.conversation().await;
    zalgo
        .append(&format!("\0\u{202e}Z{}", "\u{301}".repeat(50_000)))
        .await;
    let title = read_title(&zalgo).await;
    assert!(
        title.starts_with('Z') && title.len() <= 512,
        "a title has at most 512 bytes: {}",
        title.len()
    );
    zalgo.verify().await;
}

/// Creates a database with the schema from before titles were taken from messages. It has a
/// conversation with a title, one with a message, and one with neither.
async fn create_database_before_titles() -> String {
    let url = empty_database().await;
    let mut db = PgConnection::connect(&url).await.expect("connects");
    let all = Migrator::new(Path::new("../migrations"))
        .await
        .expect("there are migrations");
    // Since migration 6, titles are taken from messages.
    let old = all
        .iter()
        .filter(|migration| migration.version <= 5)
        .cloned()
        .collect();
    Migrator::with_migrations(old)
        .run(&mut db)
        .await
        .expect("migrates");
    let rows = "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding, last_message_id, last_role, turn)
         select '00000000-0000-7000-8000-000000000001', id::uuid, '', '', title, false, '{}', '', 0, '{}', 1, last_message_id, 2, 1
         from (values ('00000000-0000-7000-9000-000000000001', 'Named', 0), ('00000000-0000-7000-9000-000000000002', '', 1),
            ('00000000-0000-7000-9000-000000000003', '', 0)) as old (id, title, last_message_id);
         insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest)
         values ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-9000-000000000002', 1, 2, 1, 2, 5,
            '[{\"type\":\"text\",\"text\":\"hello\"}]', '\\x00')";
    sqlx::raw_sql(rows).execute(&mut db).await.expect("stores");
    url
}

#[tokio::test]
async fn older_conversations_get_a_title_only_if_they_had_neither_title_nor_message() {
    let url = create_database_before_titles().await;
    let mut db = PgConnection::connect(&url).await.expect("connects");
    // `xmin` changes when a row is rewritten.
    let versions = "select xmin::text from ai_conversation where last_message_id > 0 or title <> '' order by 1";
    let before: Vec<String> = sqlx::query_scalar(versions)
        .fetch_all(&mut db)
        .await
        .expect("answers");
    let mut transaction = db.begin().await.expect("begins");
    let migration_6 = include_str!("../../../../migrations/0006_sessions.sql");
    sqlx::raw_sql(migration_6)
        .execute(&mut *transaction)
        .await
        .expect("migrates");
    let after: Vec<String> = sqlx::query_scalar(versions)
        .fetch_all(&mut *transaction)
        .await
        .expect("answers");
    assert_eq!(before, after, "unchanged rows are not rewritten");
    transaction.rollback().await.expect("rolls back");
    let mut migrations = Migrations::connect(&StoreSettings::at(&url))
        .await
        .expect("connects");
    migrations
        .run(Duration::from_secs(30))
        .await
        .expect("migrates");

    let app = TestApp::on_database(&url).await;
    for (number, title) in [(1, "Named"), (2, ""), (3, "a question")] {
        let conversation = TestConversation {
            app: &app,
            id: format!("00000000-0000-7000-9000-00000000000{number}"),
        };
        conversation.append("a question").await;
        assert_eq!(
            read_title(&conversation).await,
            title,
            "conversation {number}"
        );
    }
    let new = app.conversation().await;
    new.append("another question").await;
    assert_eq!(read_title(&new).await, "another question");
}
