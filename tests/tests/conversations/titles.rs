//! Titles: from the first thing that the user says, unless somebody sets one.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use std::{path::Path, time::Duration};

use anneal_store::{Migrations, StoreSettings};
use anneal_tests::{House, Talk, assistant, empty_database, media, pb, user};
use pb::append_large_message_request::{Frame, Header};
use sqlx::{Connection as _, PgConnection, migrate::Migrator};

async fn title(talk: &Talk<'_>) -> String {
    talk.conversation().await.title
}

async fn set_title(talk: &Talk<'_>, title: &str) {
    let conversation = pb::Conversation { conversation_id: talk.id.clone(), title: title.into(), ..Default::default() };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask { paths: vec!["title".into()] }),
        ..Default::default()
    };
    talk.house.conversations().update_conversation(ask).await.expect("updates");
}

#[tokio::test]
async fn row_P8_a_conversation_is_called_by_the_first_thirty_characters_of_its_first_question() {
    let house = House::start().await;
    let talk = house.conversation().await;
    assert_eq!(title(&talk).await, "");
    talk.append_all(vec![assistant("Welcome!"), media("https://example.com/a.png"), user(" \n ")]).await;
    assert_eq!(title(&talk).await, "", "nothing was said yet");
    let etag = talk.conversation().await.etag;
    talk.append_all(vec![user("How do I\nkeep 🇨🇭 flags in one piece, please?"), assistant("So."), user("Thanks")])
        .await;
    assert_eq!(title(&talk).await, "How do I keep 🇨🇭 flags in one p");
    assert_eq!(talk.conversation().await.etag, etag, "a title that is made is no update");
    talk.append("Another question").await;
    assert_eq!(title(&talk).await, "How do I keep 🇨🇭 flags in one p");
    assert_eq!(talk.said().await[3].1, "How do I\nkeep 🇨🇭 flags in one piece, please?", "what was said stays");
    let named =
        house.list(pb::ListConversationsRequest { title_prefix: "How do I k".into(), ..Default::default() }).await;
    assert_eq!(named.len(), 1, "it is found by its title");
}

#[tokio::test]
async fn a_title_that_was_set_stays_even_an_empty_one() {
    let house = House::start().await;
    let given =
        house.conversation_with(pb::CreateConversationRequest { title: "Mine".into(), ..Default::default() }).await;
    given.append("a question").await;
    assert_eq!(title(&given).await, "Mine");
    set_title(&given, "").await;
    given.append("a second question").await;
    assert_eq!(title(&given).await, "", "nobody asked for another one");
    let renamed = house.conversation().await;
    renamed.append("a question").await;
    set_title(&renamed, "Renamed").await;
    renamed.append("more").await;
    assert_eq!(title(&renamed).await, "Renamed");
    let emptied = house.conversation().await;
    set_title(&emptied, "").await;
    emptied.append("a question").await;
    assert_eq!(title(&emptied).await, "");
}

#[tokio::test]
async fn a_repeated_or_refused_append_gives_no_title() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let refused = talk.append("never stored").expecting(7).send().await;
    assert!(refused.is_err());
    assert_eq!(title(&talk).await, "");
    talk.append("first").request_id("r1").await;
    assert!(talk.append("other words").request_id("r1").send().await.is_err());
    assert!(talk.append("first").request_id("r1").await.replayed);
    assert_eq!((title(&talk).await, talk.conversation().await.message_count), ("first".into(), 1));
}

#[tokio::test]
async fn a_streamed_message_and_a_hostile_one_give_titles_as_well() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let header = Header { conversation_id: talk.id.clone(), message: Some(user("")), ..Default::default() };
    let frames = [Frame::Header(header), Frame::Chunk(b"Large words ".repeat(100_000))];
    let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    house.messages().append_large_message(futures::stream::iter(frames)).await.expect("appends");
    assert_eq!(title(&talk).await, "Large words Large words Large");

    let zalgo = house.conversation().await;
    zalgo.append(&format!("\0\u{202e}Z{}", "\u{301}".repeat(50_000))).await;
    let made = title(&zalgo).await;
    assert!(made.starts_with('Z') && made.len() <= 512, "{} bytes", made.len());
    zalgo.verify().await;
}

/// A database as it was before titles were made: conversations with a title, with a message, and with nothing.
async fn before_titles() -> String {
    let url = empty_database().await;
    let mut db = PgConnection::connect(&url).await.expect("connects");
    let all = Migrator::new(Path::new("../migrations")).await.expect("there are migrations");
    let old = all.iter().filter(|migration| migration.version <= 5).cloned().collect();
    Migrator::with_migrations(old).run(&mut db).await.expect("migrates");
    let rows = "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding, last_message_id, last_role, turn)
         select '00000000-0000-7000-8000-000000000001', id::uuid, '', '', title, false, '{}', '', 0, '{}', 1, last, 2, 1
         from (values ('00000000-0000-7000-9000-000000000001', 'Named', 0), ('00000000-0000-7000-9000-000000000002', '', 1),
            ('00000000-0000-7000-9000-000000000003', '', 0)) as old (id, title, last);
         insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest)
         values ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-9000-000000000002', 1, 2, 1, 2, 5,
            '[{\"type\":\"text\",\"text\":\"hello\"}]', '\\x00')";
    sqlx::raw_sql(rows).execute(&mut db).await.expect("stores");
    url
}

#[tokio::test]
async fn conversations_older_than_made_titles_are_named_only_where_nothing_was_said() {
    let url = before_titles().await;
    let mut db = PgConnection::connect(&url).await.expect("connects");
    let versions = "select xmin::text from ai_conversation where last_message_id > 0 or title <> '' order by 1";
    let before: Vec<String> = sqlx::query_scalar(versions).fetch_all(&mut db).await.expect("answers");
    let mut migration = db.begin().await.expect("begins");
    let sessions = include_str!("../../../migrations/0006_sessions.sql");
    sqlx::raw_sql(sessions).execute(&mut *migration).await.expect("migrates");
    let after: Vec<String> = sqlx::query_scalar(versions).fetch_all(&mut *migration).await.expect("answers");
    assert_eq!(before, after, "what needs no change is not written anew");
    migration.rollback().await.expect("rolls back");
    let mut migrations = Migrations::connect(&StoreSettings::at(&url)).await.expect("connects");
    migrations.run(Duration::from_secs(30)).await.expect("migrates");

    let house = House::at(&url).await;
    for (number, named) in [(1, "Named"), (2, ""), (3, "a question")] {
        let talk = Talk { house: &house, id: format!("00000000-0000-7000-9000-00000000000{number}") };
        talk.append("a question").await;
        assert_eq!(title(&talk).await, named, "of {number}");
    }
    let new = house.conversation().await;
    new.append("another question").await;
    assert_eq!(title(&new).await, "another question");
}
