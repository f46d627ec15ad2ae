//! Older tables with unexpected content. Odd rows are moved or deleted, and counted. Rows and
//! tables that cannot be moved stop the migration: it names them and leaves them unchanged.

use anneal_testkit::{
    AnnealBinary, Folder, OldRow, OldTables, empty_database, read_migrated_conversations,
};
use sqlx::{Connection as _, PgConnection};

use crate::BINARY;

#[tokio::test]
async fn rows_that_the_new_schema_cannot_hold_stop_the_migration_with_a_reason() {
    let rows = [
        OldRow::message("USER", "one", 100),
        OldRow::message("ASSISTANT", "two", 101),
    ];
    let cases = [
        (
            "update ai_message set role = 'TOOL' where id = 2",
            "1 messages have a role that is not known (the first has id 2)",
        ),
        (
            "update ai_message set type = 'BLOCK'",
            "2 rows of ai_message have a type that is not known (the first has id 1)",
        ),
        (
            "update ai_message set content = repeat('x', 64 * 1024 * 1024 + 1) where id = 2",
            "1 messages are longer than 64 MiB (the first has id 2)",
        ),
        (
            "update ai_message set created_ts = 9000000000000000000 where id = 1",
            "1 rows of ai_message have no time that can be read (the first has id 1)",
        ),
        (
            "alter table ai_message drop constraint ai_message_pkey; update ai_message set id = 1",
            "1 rows of ai_message have the id of another",
        ),
        (
            "create table attachment (message_id integer references ai_message)",
            "cannot be dropped: constraint attachment_message_id_fkey on table attachment depends on ai_message\n",
        ),
        (
            "create view titles as select title from ai_conversation",
            "view titles depends on ai_conversation",
        ),
        (
            "create table kept () inherits (ai_message)",
            "table kept depends on ai_message",
        ),
        (
            "create table note (id bigint default nextval('ai_message_id_seq'))",
            "default value for column id of table note depends on ai_message",
        ),
        (
            "create function newest() returns text begin atomic; select title from ai_conversation order by id; end",
            "function newest() depends on ai_conversation",
        ),
        (
            "create table copies (of ai_message)",
            "column of of table copies depends on ai_message",
        ),
        (
            "alter table ai_conversation alter creator_id type text using repeat('x', 129)",
            "1 conversations have a creator_id of more than 128 bytes (the first has id 1)",
        ),
        (
            "update ai_conversation set title = repeat('x', 4100)",
            "1 conversations have a title, uid or status too long for a label (4 kB) (the first has id 1)",
        ),
        (
            "update ai_message set uid = repeat('x', 4100) where id = 2",
            "1 rows of ai_message have a uid too long for a label (4 kB) (the first has id 2)",
        ),
        (
            "alter table ai_message drop column metadata",
            "table ai_message has no column metadata",
        ),
        (
            "alter table ai_conversation rename to chats",
            "there is no table ai_conversation beside the others",
        ),
    ];
    for (change, sentence) in cases {
        let mut old = OldTables::with(1, &rows).await;
        old.run(change).await;
        let before = old.state().await;
        let folder = Folder::new();
        let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
        for arguments in [&["migrate"][..], &["migrate", "--dry-run"]] {
            let refused = anneal.run(arguments).await;
            assert!(
                refused.code == Some(1) && refused.err.contains(sentence),
                "{sentence}: {refused:?}"
            );
        }
        assert_eq!(old.state().await, before, "{sentence}");
    }
}

#[tokio::test]
async fn a_table_of_another_system_with_the_same_name_is_refused_and_left_unchanged() {
    let url = empty_database().await;
    let mut db = PgConnection::connect(&url).await.expect("connects");
    let other_table = "create table ai_message (id integer, subject text); insert into ai_message values (1, 'mail')";
    sqlx::raw_sql(other_table)
        .execute(&mut db)
        .await
        .expect("runs");
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &url);
    for arguments in [
        &["migrate"][..],
        &["migrate", "--check"],
        &["migrate", "--dry-run"],
    ] {
        let refused = anneal.run(arguments).await;
        assert!(
            refused.code == Some(1)
                && refused
                    .err
                    .contains("neither anneal's tables nor the older ones"),
            "{refused:?}"
        );
    }
    let mails: i64 = sqlx::query_scalar("select count(*) from ai_message where subject = 'mail'")
        .fetch_one(&mut db)
        .await
        .expect("answers");
    assert_eq!(mails, 1);
}

/// The tables have checkpoints and summary caches of an earlier, unfinished migration, unknown
/// columns, messages without a conversation, unknown statuses, and metadata of any JSON type.
#[tokio::test]
async fn half_migrated_tables_and_odd_rows_are_moved_and_counted() {
    let rows = [
        OldRow::message("USER", "one", 100),
        OldRow::message("ASSISTANT", "two", 101),
        OldRow::message("USER", "three", 102),
        OldRow {
            conversation: 9,
            ..OldRow::message("USER", "lost", 103)
        },
    ];
    let mut old = OldTables::with(2, &rows).await;
    old.run(
        "create table ai_conversation_checkpoint (
            id serial primary key, conversation_id int not null references ai_conversation(id) on delete cascade,
            last_message_id int not null, summary text not null, token_usage int not null default 0,
            created_ts bigint not null);
         create index idx_ai_conversation_checkpoint_cid_lastmsg
            on ai_conversation_checkpoint (conversation_id, last_message_id desc);
         insert into ai_conversation_checkpoint (conversation_id, last_message_id, summary, created_ts)
            values (1, 1, 'said one', 1), (1, 2, 'said two', 1);
         alter table ai_message add column summary_cache text, add column emotion text;
         alter table ai_conversation add column parrot text;
         update ai_message set summary_cache = 'short', emotion = 'calm' where id = 1;
         update ai_message set metadata = jsonb_build_object('a', 1, 'b', jsonb_build_array('x'), 'c', null) where id = 1;
         update ai_message set metadata = jsonb_build_object('long', repeat('x', 5000)) where id = 2;
         update ai_message set metadata = '\"word\"' where id = 3;
         update ai_conversation set row_status = 'DELETED', parrot = 'ara' where id = 2",
    )
    .await;
    let folder = Folder::new();
    let ran = AnnealBinary::new(BINARY, &folder, &old.url)
        .run(&["migrate"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "conversations: 2",
        "messages: 3",
        "summaries deleted: 2",
        "  of these in the table of checkpoints: 2",
        "summaries of single large messages, deleted: 1",
        "messages of conversations that do not exist, deleted: 1",
        "conversations of unknown status, archived: 1",
        "rows with too much metadata for labels, of which only the old ids are kept: 1",
    ] {
        assert!(ran.out.contains(&format!("  {line}\n")), "{line}: {ran:?}");
    }
    assert_eq!(
        read_migrated_conversations(&old.url).await[&1]
            .messages
            .len(),
        3
    );
    let labels = [
        (
            "1",
            r#"{"a": "1", "b": "[\"x\"]", "emotion": "calm", "legacy_id": "1", "legacy_uid": "m1"}"#,
        ),
        ("2", r#"{"legacy_id": "2", "legacy_uid": "m2"}"#),
        (
            "3",
            r#"{"metadata": "word", "legacy_id": "3", "legacy_uid": "m3"}"#,
        ),
    ];
    for (id, expected) in labels {
        let query = format!(
            "select count(*) from ai_message where metadata = '{expected}' and metadata ->> 'legacy_id' = '{id}'"
        );
        assert_eq!(old.number(&query).await, 1, "{expected}");
    }
    let conversation = "select count(*) from ai_conversation where status = 2
        and metadata = '{\"parrot\": \"ara\", \"legacy_id\": \"2\", \"legacy_uid\": \"c2\", \"legacy_row_status\": \"DELETED\",
            \"legacy_updated_ts\": \"1700000002\"}'";
    assert_eq!(old.number(conversation).await, 1);
}

/// Both older tables are in the schema that is first in the search path. A later schema has another
/// system's table of checkpoints.
#[tokio::test]
async fn tables_of_other_schemas_on_the_search_path_are_left_unchanged() {
    let mut old = OldTables::with(2, &[OldRow::message("USER", "one", 100)]).await;
    old.run(
        "create schema app; alter table ai_conversation set schema app; alter table ai_message set schema app;
         create table ai_conversation_checkpoint (id integer primary key, game text);
         create table legacy_ai_conversation_checkpoint (id integer);
         insert into ai_conversation_checkpoint values (1, 'chess')",
    )
    .await;
    set_search_path(&mut old, "app, public").await;
    let folder = Folder::new();
    let ran = AnnealBinary::new(BINARY, &folder, &old.url)
        .run(&["migrate"])
        .await;
    assert!(
        ran.code == Some(0) && ran.out.contains("  conversations: 2\n"),
        "{ran:?}"
    );
    let foreign = "select count(*) from public.ai_conversation_checkpoint where game = 'chess'";
    assert_eq!(old.number(foreign).await, 1);
    let ours = "select count(*) from app.ai_message as m join app.ai_conversation as c using (conversation_id)
        where m.content -> 0 ->> 'text' = 'one' and to_regclass('app.ai_conversation_checkpoint') is not null
          and to_regclass('public.legacy_ai_conversation_checkpoint') is not null";
    assert_eq!(old.number(ours).await, 1);
    assert_eq!(ran.err.matches("failed").count(), 0, "{ran:?}");
}

#[tokio::test]
async fn older_tables_in_a_later_schema_of_the_search_path_are_reported() {
    let mut old = OldTables::with(2, &[OldRow::message("USER", "one", 100)]).await;
    old.run("create schema app").await;
    set_search_path(&mut old, "app, public").await;
    let before = old.state().await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    for arguments in [
        &["migrate"][..],
        &["migrate", "--check"],
        &["migrate", "--dry-run"],
    ] {
        let refused = anneal.run(arguments).await;
        let sentence = "there are older tables in schema public, which is on the search_path but not first in it";
        assert!(
            refused.code == Some(1) && refused.err.contains(sentence),
            "{refused:?}"
        );
    }
    assert_eq!(old.state().await, before);
    set_search_path(&mut old, "app").await;
    let ran = anneal.run(&["migrate"]).await;
    assert!(ran.code == Some(0) && !ran.out.contains("older"), "{ran:?}");
    assert_eq!(old.state().await, before, "they are left unchanged");
}

/// Sets the search path of new sessions.
async fn set_search_path(old: &mut OldTables, path: &str) {
    old.run(&format!(
        "do $$ begin execute format('alter database %I set search_path = {path}', current_database()); end $$"
    ))
    .await;
}

#[tokio::test]
async fn a_title_above_the_limit_is_shortened_visibly_and_kept_whole_as_a_label() {
    let mut old = OldTables::with(2, &[OldRow::message("USER", "one", 100)]).await;
    // 171 characters of three bytes: 513 bytes, one more than the limit. The ellipsis has three
    // bytes too, so 169 characters fit beside it.
    old.run("update ai_conversation set title = repeat('港', 171) where id = 1")
        .await;
    let folder = Folder::new();
    let ran = AnnealBinary::new(BINARY, &folder, &old.url)
        .run(&["migrate"])
        .await;
    let line = "  titles of more than 512 bytes, shortened (whole in the label legacy_title): 1\n";
    assert!(ran.code == Some(0) && ran.out.contains(line), "{ran:?}");
    let query = "select count(*) from ai_conversation
        where title = repeat('港', 169) || '…' and metadata ->> 'legacy_title' = repeat('港', 171)";
    assert_eq!(old.number(query).await, 1);
    assert_eq!(
        old.number("select count(*) from ai_conversation where metadata ? 'legacy_title'")
            .await,
        1
    );
}

/// A function that fails shadows PostgreSQL's `pg_advisory_unlock`. The effect is that of a
/// connection that is lost before the lock is released.
#[tokio::test]
async fn a_lock_that_cannot_be_released_does_not_hide_the_result() {
    let mut old = OldTables::with(2, &[OldRow::message("USER", "one", 100)]).await;
    old.run(
        "create function pg_advisory_unlock(key bigint) returns boolean language plpgsql as
         'begin raise exception ''not released''; end'",
    )
    .await;
    set_search_path(&mut old, "public, pg_catalog").await;
    let folder = Folder::new();
    let ran = AnnealBinary::new(BINARY, &folder, &old.url)
        .run(&["migrate"])
        .await;
    assert!(
        ran.code == Some(0) && ran.out.contains("moved the rows of the older tables"),
        "{ran:?}"
    );
    assert_eq!(read_migrated_conversations(&old.url).await.len(), 2);
}
