//! ZeroClaw databases as ZeroClaw writes them.

use crate::shared::{self, heads, messages, remarks};
use anneal_core::message::Part;
use anneal_formats::{FileEvent, Format, ImportOutcome, Summary, detect};

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn summaries(found: &[FileEvent]) -> Vec<Summary> {
    let summaries = found.iter().filter_map(|one| match one {
        FileEvent::Summary(summary) => Some(summary.clone()),
        _ => None,
    });
    summaries.collect()
}

#[test]
fn zeroclaw_sessions_are_read_with_their_newest_summary() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(file.path()).expect("opens");
    database
        .execute_batch(
            "create table session_index (session_key text primary key, active_session_id text);
             create table sessions (id text primary key, status text, title text, updated_at text);
             create table session_messages (id integer primary key, session_id text, role text, content text, created_at text, meta_json text);
             create table session_state (session_id text, key text, value text);
             insert into session_index values ('agent:main:tg:direct:1', 's1');
             insert into sessions values ('s1', 'active', 'Greetings', '2026');
             insert into session_messages values (1, 's1', 'user', 'a', '', '{\"lang\":\"en\",\"n\":1.50}'), (2, 's1', 'assistant', 'b', '', null),
               (3, 's1', 'assistant', '[Session Compaction Summary]' || char(10) || 'old', '', null), (4, 's1', 'user', 'c', '', null),
               (5, 's1', 'assistant', 'd', '', 'broken'), (6, 's1', 'assistant', '[Session Compaction Summary]' || char(10) || 'new', '', null),
               (7, 's1', 'user', 'e' || char(0) || 'f', '', null), (9, 's2', 'user', 'other', '', null);
             insert into session_state values ('s1', 'compaction_after_message_id', '5');",
        )
        .expect("fills");
    drop(database);
    assert_eq!(detect(file.path()).expect("is known"), Format::ZeroClaw);
    let found = shared::read_all(file.path(), Format::ZeroClaw);
    let heads = heads(&found);
    assert_eq!(
        (
            heads[0].identity.as_str(),
            heads[0].title.as_str(),
            heads[1].identity.as_str()
        ),
        ("s1", "Greetings", "s2")
    );
    assert_eq!(
        heads[0].metadata["zeroclaw.session_key"],
        "agent:main:tg:direct:1"
    );
    assert_eq!(heads[0].metadata["zeroclaw.status"], "active");
    let actual: Vec<Part> = messages(&found)
        .into_iter()
        .flat_map(|message| message.parts)
        .collect();
    assert_eq!(actual, ["a", "b", "c", "d", "e\0f", "other"].map(text));
    assert_eq!(messages(&found)[0].metadata["n"], "1.50");
    // Of the rows up to 5, all but the old summary are messages.
    assert_eq!(
        summaries(&found)
            .iter()
            .map(|one| (one.covers, one.text.as_str()))
            .collect::<Vec<_>>(),
        [(4, "new")]
    );
}

#[test]
fn an_older_database_with_its_summary_in_the_state_is_read_and_not_changed() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(file.path()).expect("opens");
    database
        .execute_batch(
            "create table session_messages (session_id text, role text, content text);
             create table session_state (session_id text, compaction_after_message_id int, compaction_summary text);
             insert into session_messages values ('s', 'user', 'a'), ('s', 'assistant', 'b'), ('s', 'wizard', 'w'), ('s', 'user', 'c');
             insert into session_state values ('s', 2, 'so far');",
        )
        .expect("fills");
    drop(database);
    let before = std::fs::read(file.path()).expect("reads");
    let found = shared::read_all(file.path(), Format::ZeroClaw);
    assert_eq!(
        (messages(&found).len(), summaries(&found)[0].covers),
        (3, 2)
    );
    assert_eq!(remarks(&found)[0].outcome, ImportOutcome::Refused);
    assert_eq!(std::fs::read(file.path()).expect("reads"), before);
}

#[test]
fn generated_columns_become_labels() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(file.path()).expect("opens");
    database
        .execute_batch(
            "create table sessions (id text primary key, shouted text generated always as (upper(title)), title text);
             create table session_messages (id integer primary key, session_id text, role text, content text,
               letters integer generated always as (length(content)) stored);
             insert into sessions (id, title) values ('s', 'Greetings');
             insert into session_messages (session_id, role, content) values ('s', 'user', 'hello');",
        )
        .expect("fills");
    drop(database);
    let found = shared::read_all(file.path(), Format::ZeroClaw);
    assert_eq!(heads(&found)[0].title, "Greetings");
    assert_eq!(heads(&found)[0].metadata["zeroclaw.shouted"], "GREETINGS");
    assert_eq!(messages(&found)[0].metadata["zeroclaw.letters"], "5");
    assert!(remarks(&found).is_empty());
}

#[test]
fn sessions_are_found_by_an_index_and_rows_without_session_are_remarked_on() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(file.path()).expect("opens");
    database
        .execute_batch(
            "create table sessions (id text primary key, title text);
             create table session_messages (id integer primary key, session_id text, role text, content text);
             create index of_session on session_messages (session_id, id);
             with recursive n (n) as (select 1 union all select n + 1 from n where n < 20000)
               insert into session_messages (session_id, role, content) select 's' || n, 'user', 'a' from n;
             insert into sessions select distinct session_id, 't' from session_messages;
             insert into session_messages (session_id, role, content) values (null, 'user', 'lost'), (cast(x'ff' as text), 'user', 'b');",
        )
        .expect("fills");
    drop(database);
    let started = std::time::Instant::now();
    let found = shared::read_all(file.path(), Format::ZeroClaw);
    // The session whose id is not UTF-8 is read as well.
    assert_eq!(
        (heads(&found).len(), messages(&found).len()),
        (20_001, 20_001)
    );
    // Sequential scans would read 400 million rows.
    assert!(
        started.elapsed() < std::time::Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    let actual: Vec<(ImportOutcome, String)> = remarks(&found)
        .into_iter()
        .map(|remark| (remark.outcome, remark.what))
        .collect();
    assert_eq!(
        actual,
        [(
            ImportOutcome::Refused,
            "rows without a session: 1".to_owned()
        )]
    );
}
