//! Databases with the tables of older systems, and the expected result of their migration, computed
//! without the store.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::empty_database;

/// A row of the older `ai_message`.
#[derive(Debug, Clone)]
pub struct OldRow {
    /// The old id of its conversation.
    pub conversation: i64,
    /// MESSAGE, SEPARATOR or SUMMARY.
    pub kind: &'static str,
    /// USER, ASSISTANT or SYSTEM.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// The value of `source` in the metadata. Empty: the metadata has no `source`.
    pub source: &'static str,
    /// The creation time, in seconds since 1970.
    pub created: i64,
}

impl OldRow {
    /// A message of conversation 1.
    pub fn message(role: &'static str, content: &str, created: i64) -> Self {
        Self {
            conversation: 1,
            kind: "MESSAGE",
            role,
            content: content.into(),
            source: "",
            created,
        }
    }

    /// A separator or summary of conversation 1.
    pub fn mark(kind: &'static str, source: &'static str, created: i64) -> Self {
        Self {
            conversation: 1,
            kind,
            role: "SYSTEM",
            content: "---".into(),
            source,
            created,
        }
    }
}

/// A database with the tables of the older system.
pub struct OldTables {
    /// The database's URL.
    pub url: String,
    db: PgConnection,
}

impl OldTables {
    /// The old tables with this many conversations and these rows. Row ids count from 1, in the
    /// order of the rows.
    pub async fn with(conversations: i64, rows: &[OldRow]) -> Self {
        Self::with_types("bigint", "text", conversations, rows).await
    }

    /// The old tables with other column types. `time` is the type of times: `bigint` (seconds),
    /// `millis` (a `bigint` of milliseconds) or `timestamptz`. `word` is the type of enum columns:
    /// `text`, or `legacy_word`, an enum type of the old schema.
    pub async fn with_types(time: &str, word: &str, conversations: i64, rows: &[OldRow]) -> Self {
        let url = empty_database().await;
        let db = PgConnection::connect(&url)
            .await
            .expect("the connection succeeds");
        let mut old = Self { url, db };
        let value = |seconds: &str| match time {
            "timestamptz" => format!("to_timestamp({seconds})"),
            "millis" => format!("({seconds})::bigint * 1000"),
            _ => seconds.to_owned(),
        };
        let column = if time == "millis" { "bigint" } else { time };
        old.run(&format!(
            "create type legacy_word as enum
                ('MESSAGE', 'SEPARATOR', 'SUMMARY', 'USER', 'ASSISTANT', 'SYSTEM', 'NORMAL', 'ARCHIVED');
             create table ai_conversation (
                id serial primary key, uid text not null unique, creator_id integer not null, title text not null default '',
                pinned boolean not null default false, created_ts {column} not null, updated_ts {column} not null,
                row_status {word} not null);
             create table ai_message (
                id serial primary key, uid text not null unique,
                conversation_id integer not null,
                type {word} not null, role {word} not null, content text not null, metadata jsonb not null default '{{}}',
                created_ts {column} not null);
             create index idx_ai_message_conversation on ai_message (conversation_id, created_ts);
             insert into ai_conversation (uid, creator_id, title, pinned, created_ts, updated_ts, row_status)
             select 'c' || n, n % 7, case when n % 3 > 0 then '对话 ' || n else '' end, n % 5 = 0, {}, {},
                (case when n % 10 = 0 then 'ARCHIVED' else 'NORMAL' end)::{word}
             from generate_series(1, {conversations}) as n",
            value("1600000000 + n"),
            value("1700000000 + n"),
        ))
        .await;
        let insert = format!(
            "insert into ai_message (uid, conversation_id, type, role, content, metadata, created_ts)
             select 'm' || place, conversation, kind::{word}, role::{word}, content,
                case when source = '' then '{{}}' else jsonb_build_object('source', source) end, {}
             from unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
                with ordinality as row (conversation, kind, role, content, source, created, place)
             order by place",
            value("created"),
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(
                rows.iter()
                    .map(|row| row.conversation as i32)
                    .collect::<Vec<_>>(),
            )
            .bind(rows.iter().map(|row| row.kind).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.role).collect::<Vec<_>>())
            .bind(
                rows.iter()
                    .map(|row| row.content.as_str())
                    .collect::<Vec<_>>(),
            )
            .bind(rows.iter().map(|row| row.source).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.created).collect::<Vec<_>>())
            .execute(&mut old.db)
            .await
            .expect("the rows are inserted");
        old
    }

    /// Runs SQL in the database.
    pub async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut self.db)
            .await
            .expect("the statement runs");
    }

    /// Runs a query that returns one number.
    pub async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut self.db)
            .await
            .expect("the query succeeds")
    }

    /// A text that describes the whole database: tables, sequences, indexes, columns, constraints,
    /// the names of functions (those that other sessions have created in `pg_temp` included), and a
    /// digest of each table's rows.
    pub async fn state(&mut self) -> String {
        let mut state: String = sqlx::query_scalar(
            "select string_agg(what, E'\n' order by what) from (
                select c.oid::text || c.relname || c.relkind::text || coalesce(pg_get_indexdef(i.indexrelid), '') as what
                from pg_class as c left join pg_index as i on i.indexrelid = c.oid
                where c.relnamespace = 'public'::regnamespace
                union all select conrelid::text || conname::text || pg_get_constraintdef(oid) from pg_constraint
                where connamespace = 'public'::regnamespace
                union all select attrelid::text || attname::text || format_type(atttypid, atttypmod) from pg_attribute
                where attnum > 0 and attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
                union all select proname::text from pg_proc
                where pronamespace = 'public'::regnamespace or pg_is_other_temp_schema(pronamespace)
            ) as all_of_it",
        )
        .fetch_one(&mut self.db)
        .await
        .expect("the query succeeds");
        let tables = "select oid::regclass::text from pg_class
            where relkind = 'r' and relnamespace = 'public'::regnamespace order by 1";
        let tables: Vec<String> = sqlx::query_scalar(tables)
            .fetch_all(&mut self.db)
            .await
            .expect("the query succeeds");
        for table in tables {
            let digest = format!(
                "select coalesce(md5(string_agg(r::text, '|' order by r::text)), '') from {table} as r"
            );
            let digest: String = sqlx::query_scalar(AssertSqlSafe(digest))
                .fetch_one(&mut self.db)
                .await
                .expect("the query succeeds");
            state = format!("{state}\n{table} {digest}");
        }
        state
    }
}

/// A message after its migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedMessage {
    /// user, assistant or system.
    pub role: String,
    /// The text.
    pub text: String,
    /// The creation time, in seconds since 1970.
    pub created: i64,
    /// The id of its row in the older `ai_message`.
    pub old_id: String,
}

/// A conversation after its migration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigratedConversation {
    /// The messages, in order.
    pub messages: Vec<MigratedMessage>,
    /// The id of the message before each separator of the user.
    pub separators: Vec<i64>,
}

/// The expected result of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpectedMigration {
    /// The conversations by their old ids.
    pub conversations: BTreeMap<i64, MigratedConversation>,
    /// The lines that `anneal migrate` must print: the text, and the number.
    pub lines: Vec<(&'static str, usize)>,
}

/// Computes what the migration must make of these rows, by the rules of docs/operations.md.
pub fn expected_migration(conversations: i64, rows: &[OldRow]) -> ExpectedMigration {
    let mut expected = ExpectedMigration::default();
    // Numbers of old rows.
    let (mut user_separator_rows, mut system_separator_rows, mut summary_rows) = (0, 0, 0);
    for conversation in 1..=conversations {
        let mut conversation_rows: Vec<(i64, usize, &OldRow)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.conversation == conversation)
            .map(|(place, row)| (row.created, place + 1, row))
            .collect();
        conversation_rows.sort_by_key(|(created, id, _)| (*created, *id));
        let mut migrated = MigratedConversation::default();
        for (place, (created, id, row)) in conversation_rows.iter().enumerate() {
            let summary_follows = conversation_rows
                .get(place + 1)
                .is_some_and(|(_, _, next)| next.kind == "SUMMARY");
            match row.kind {
                "SUMMARY" => summary_rows += 1,
                "SEPARATOR" if row.source == "system" || summary_follows => {
                    system_separator_rows += 1;
                }
                "SEPARATOR" => {
                    user_separator_rows += 1;
                    migrated.separators.push(migrated.messages.len() as i64);
                }
                _ => {
                    migrated.messages.push(MigratedMessage {
                        role: row.role.to_lowercase(),
                        text: row.content.clone(),
                        created: *created,
                        old_id: id.to_string(),
                    });
                }
            }
        }
        // Several separators at one place become one.
        migrated.separators.dedup();
        expected.conversations.insert(conversation, migrated);
    }
    let messages_by = |role: &str| {
        expected
            .conversations
            .values()
            .flat_map(|migrated| &migrated.messages)
            .filter(|message| message.role == role)
            .count()
    };
    let migrated = || expected.conversations.values();
    let separators_after: usize = migrated().map(|one| one.separators.len()).sum();
    let messages: usize = migrated().map(|one| one.messages.len()).sum();
    let empty = migrated()
        .flat_map(|one| &one.messages)
        .filter(|message| message.text.is_empty())
        .count();
    let lines = vec![
        ("conversations", expected.conversations.len()),
        ("messages", messages),
        ("  by users", messages_by("user")),
        ("  by assistants", messages_by("assistant")),
        ("  by the system", messages_by("system")),
        // The old rows, including those that are joined with another.
        ("user separators kept", user_separator_rows),
        ("system separators deleted", system_separator_rows),
        ("summaries deleted", summary_rows),
        ("empty messages, kept empty", empty),
        (
            "user separators at the place of another, joined with it",
            user_separator_rows - separators_after,
        ),
    ];
    expected.lines = lines;
    expected
}

/// Reads the migrated conversations from the current schema, by their old ids.
pub async fn read_migrated_conversations(url: &str) -> BTreeMap<i64, MigratedConversation> {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the connection succeeds");
    let mut all = BTreeMap::<i64, MigratedConversation>::new();
    let messages = sqlx::query(
        "select (c.metadata ->> 'legacy_id')::bigint, (array['user', 'assistant', 'tool', 'system'])[m.role],
            m.content -> 0 ->> 'text', extract(epoch from m.created_ts)::bigint, m.metadata ->> 'legacy_id', m.message_id
         from ai_conversation as c left join ai_message as m using (conversation_id)
         order by c.conversation_id, m.message_id",
    );
    for row in messages
        .fetch_all(&mut db)
        .await
        .expect("the query succeeds")
    {
        let conversation = all.entry(row.get(0)).or_default();
        let Some(id) = row.get::<Option<i64>, _>(5) else {
            continue;
        };
        conversation.messages.push(MigratedMessage {
            role: row.get(1),
            text: row.get(2),
            created: row.get(3),
            old_id: row.get(4),
        });
        assert_eq!(
            id,
            conversation.messages.len() as i64,
            "message ids must be 1, 2, 3 and so on"
        );
    }
    let separators = sqlx::query(
        "select (c.metadata ->> 'legacy_id')::bigint, s.after_message_id
         from ai_separator as s join ai_conversation as c using (conversation_id) order by 1, 2",
    );
    for row in separators
        .fetch_all(&mut db)
        .await
        .expect("the query succeeds")
    {
        all.entry(row.get(0))
            .or_default()
            .separators
            .push(row.get(1));
    }
    all
}
