//! `anneal migrate` moves the tables of older systems, in which separators and summaries are rows
//! among the messages.
#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use std::time::{Duration, Instant};

use anneal_testkit::{
    AnnealBinary, CommandOutput, ExpectedMigration, Folder, OldRow, OldTables, Process, TestApp,
    TestConversation, empty_database, eventually, eventually_within, expected_migration,
    gate_or_nightly, pb, read_migrated_conversations, text,
};
use sqlx::Row as _;

use crate::BINARY;

const CONVERSATIONS: i64 = 300;
/// Messages that are moved in the gate (`cargo xtask ci`).
const MESSAGES: usize = 5_000;
/// [`MESSAGES`] at night.
const NIGHTLY_MESSAGES: usize = 100_000;

/// The output of a command, which must have succeeded.
fn successful_output(ran: CommandOutput) -> String {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.out
}

/// Asserts that the migration's output says how many rows of each kind were moved or deleted.
fn assert_counts(output: &str, expected: &ExpectedMigration) {
    for (kind, rows) in &expected.lines {
        let line = format!("  {kind}: {rows}\n");
        assert!(
            output.contains(&line) || (*rows == 0 && !output.contains(kind)),
            "no {line:?} in {output}"
        );
    }
}

/// Random rows of every kind, five a second, some up to 40 s older than the rows before them. The
/// last conversation has none.
fn generate_rows(rows: u64) -> Vec<OldRow> {
    // A linear congruential generator with a fixed seed, so that every run has the same rows.
    let mut state = 7_u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let row = |place: u64| {
        let conversation = 1 + next(CONVERSATIONS.unsigned_abs() - 1) as i64;
        let created = 1_600_000_000 + (place / 5) as i64 - next(40) as i64;
        let (kind, role, source) = match next(100) {
            0..2 => ("SEPARATOR", "USER", "user"),
            2..4 => ("SEPARATOR", "SYSTEM", ""),
            4..6 => ("SEPARATOR", "SYSTEM", "system"),
            6..9 => ("SUMMARY", "SYSTEM", "system"),
            9..11 => ("MESSAGE", "SYSTEM", ""),
            11..60 => ("MESSAGE", "USER", ""),
            _ => ("MESSAGE", "ASSISTANT", ""),
        };
        let content = match next(20) {
            0 => String::new(),
            1..10 => format!(
                "第{place}条:今天杭州的天气怎么样?请把会议改到星期{}。",
                next(7)
            ),
            _ => format!(
                "number {place}: \"quoted\" \\ and\nwrapped, {} 🙂",
                "again ".repeat(next(30) as usize)
            ),
        };
        OldRow {
            conversation,
            kind,
            role,
            content,
            source,
            created,
        }
    };
    (1..=rows).map(row).collect()
}

/// Deadline to move a hundred thousand messages on a loaded machine.
const MOVE_DEADLINE: Duration = Duration::from_mins(4);

/// Blocks the statement that drops the older tables, so that the process still runs when its memory
/// is measured. The statement waits for advisory lock 7, which the test holds.
async fn block_drop(old: &mut OldTables) {
    old.run(
        "create function block_drop() returns event_trigger language plpgsql set lock_timeout = 0 as
         'begin perform pg_advisory_xact_lock_shared(7); end';
         create event trigger block_drop on ddl_command_start when tag in ('DROP TABLE')
         execute function block_drop();
         select pg_advisory_lock(7)",
    )
    .await;
}

/// Waits until the migration is blocked, reads the peak memory of its process in MiB, and unblocks
/// it.
async fn measure_memory_and_unblock(old: &mut OldTables, process: &Process) -> u64 {
    // The statement that stores the rows begins with this comment: `store/sql/append_one.sql`.
    let moving = "select count(*) from pg_stat_activity where application_name = 'anneal'
        and datname = current_database() and query like '-- Appends to one conversation%'";
    eventually("rows are moved", async || old.number(moving).await == 1).await;
    let waits =
        "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted
        and database = (select oid from pg_database where datname = current_database())";
    eventually_within(
        MOVE_DEADLINE,
        "the migration waits to drop the older tables",
        async || old.number(waits).await == 1,
    )
    .await;
    let memory = process.peak_memory();
    old.run("select pg_advisory_unlock(7)").await;
    memory
}

#[tokio::test]
async fn row_D6_messages_move_without_the_systems_separators_and_summaries() {
    let messages = gate_or_nightly(MESSAGES, NIGHTLY_MESSAGES);
    // 89 of 100 rows are messages, so 6/5 as many rows have more messages than needed.
    let mut rows = generate_rows(messages as u64 * 6 / 5);
    // The rows after message number `messages` are left out, so exactly that many are moved.
    let last = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.kind == "MESSAGE")
        .nth(messages - 1)
        .expect("there are more")
        .0;
    rows.truncate(last + 1);
    let expected = expected_migration(CONVERSATIONS, &rows);
    let mut old = OldTables::with(CONVERSATIONS, &rows).await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    let before = old.state().await;
    let check = anneal.run(&["migrate", "--check"]).await;
    assert!(
        check.code == Some(1) && check.out.contains("pending: the rows of the older tables"),
        "{check:?}"
    );
    let listed = anneal.run(&["migrate", "--check", "--json"]).await;
    let last_line = listed.out.lines().next_back().unwrap_or_default();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(last_line).expect("is JSON"),
        serde_json::json!({"record": "older_tables", "tables": ["ai_conversation", "ai_message"]})
    );
    let dry_run_output = successful_output(anneal.run(&["migrate", "--dry-run"]).await);
    assert_counts(&dry_run_output, &expected);
    assert_eq!(old.state().await, before, "a dry run changes nothing");
    block_drop(&mut old).await;
    let started = Instant::now();
    let process = anneal.start(&["migrate"]);
    let memory = measure_memory_and_unblock(&mut old, &process).await;
    process.wait_for_line("summaries deleted").await;
    let seconds = started.elapsed().as_secs_f64();
    eventually("the last line of the counts is printed", async || {
        process
            .lines()
            .iter()
            .any(|line| line.contains("joined with it"))
    })
    .await;
    assert_eq!(
        expected
            .conversations
            .values()
            .map(|conversation| conversation.messages.len())
            .sum::<usize>(),
        messages
    );
    let count = rows.len();
    println!(
        "moved {count} rows of {CONVERSATIONS} conversations in {seconds:.1} s, with at most {memory} MiB"
    );
    assert_counts(&(process.lines().join("\n") + "\n"), &expected);
    assert_eq!(process.wait_for_exit().await, Some(0));
    let stored = read_migrated_conversations(&old.url).await;
    for (legacy_id, conversation) in &expected.conversations {
        assert_eq!(
            stored.get(legacy_id),
            Some(conversation),
            "conversation {legacy_id}"
        );
    }
    assert_eq!(stored.len(), expected.conversations.len());
    assert_eq!(
        successful_output(anneal.run(&["migrate"]).await),
        "the schema is up to date\n"
    );
    assert_eq!(
        successful_output(anneal.run(&["migrate", "--check"]).await),
        "the schema is up to date\n"
    );
    let legacy_relations = old
        .number("select count(*) from pg_class where relname like '%legacy%'")
        .await;
    assert_eq!(legacy_relations, 0, "the older tables are dropped");
    check_moved_conversations_and_run_jobs(&old.url, &expected).await;
}

/// Asserts that the moved conversations keep every promise, runs all jobs, and asserts it again.
async fn check_moved_conversations_and_run_jobs(url: &str, expected: &ExpectedMigration) {
    let app = TestApp::on_database(url).await;
    let conversations = list_conversations(&app).await;
    assert_eq!(conversations.len(), expected.conversations.len());
    for conversation in &conversations {
        conversation.verify().await;
    }
    let started = Instant::now();
    let jobs = app.run_jobs_until_idle().await;
    println!(
        "counted and summarized them in {jobs} jobs, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    for conversation in &conversations {
        conversation.verify().await;
        let details = conversation.conversation().await;
        let expected_conversation = &expected.conversations[&details.metadata["legacy_id"]
            .parse::<i64>()
            .expect("a number")];
        assert_eq!(
            details.message_count,
            expected_conversation.messages.len() as i64
        );
        if details.message_count > 0 {
            let built = conversation.context().await;
            built.assert_covers(details.message_count);
            let separator = expected_conversation
                .separators
                .last()
                .copied()
                .unwrap_or(0);
            assert!(
                built.0.boundary_message_id >= separator,
                "the context starts after the user's separator"
            );
        }
    }
    assert!(
        conversations
            .iter()
            .all(|conversation| conversation.id.as_bytes()[14] == b'8'),
        "the ids are derived from the older ones: UUIDs of version 8"
    );
}

/// All conversations.
async fn list_conversations(app: &TestApp) -> Vec<TestConversation<'_>> {
    let ask = pb::ListConversationsRequest {
        page_size: 500,
        ..Default::default()
    };
    let page = app
        .conversations()
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner();
    page.conversations
        .into_iter()
        .map(|listed| TestConversation {
            app,
            id: listed.conversation_id,
        })
        .collect()
}

#[tokio::test]
async fn row_D6_moved_messages_are_stored_exactly_like_appended_ones() {
    let messages = [
        ("SYSTEM", "你是助手"),
        ("USER", "你好 \"world\" \\ \u{1} 🙂"),
        ("USER", ""),
        ("ASSISTANT", "fn main() {}\n"),
        ("USER", "again"),
    ];
    let rows: Vec<OldRow> = messages
        .iter()
        .map(|(role, content)| OldRow::message(role, content, 1_650_000_000))
        .collect();
    let old = OldTables::with(1, &rows).await;
    let folder = Folder::new();
    successful_output(
        AnnealBinary::new(BINARY, &folder, &old.url)
            .run(&["migrate"])
            .await,
    );
    let app = TestApp::counted_by_workers_on(&old.url).await;
    let moved = list_conversations(&app).await.remove(0);
    let appended = app.conversation().await;
    let role = |name| match name {
        "USER" => pb::Role::User,
        "ASSISTANT" => pb::Role::Assistant,
        _ => pb::Role::System,
    };
    appended
        .append_all(
            messages
                .iter()
                .map(|(name, content)| text(role(*name), content))
                .collect(),
        )
        .await;
    let mut stored = Vec::new();
    for conversation in [&moved, &appended] {
        let rows = sqlx::query(
            "select message_id, role, turn, token_estimate, token_count, text_bytes, content::text, content_digest,
                tool_outline::text, request_id
             from ai_message where conversation_id = $1::uuid order by message_id",
        )
        .bind(&conversation.id)
        .fetch_all(&mut app.db().await)
        .await
        .expect("answers");
        let row = |row: &sqlx::postgres::PgRow| {
            let numbers: (i64, i16, i32, i64, Option<i64>, i64) = (
                row.get(0),
                row.get(1),
                row.get(2),
                row.get(3),
                row.get(4),
                row.get(5),
            );
            let texts: (String, Vec<u8>, Option<String>, Option<String>) =
                (row.get(6), row.get(7), row.get(8), row.get(9));
            (numbers, texts)
        };
        stored.push(rows.iter().map(row).collect::<Vec<_>>());
    }
    assert_eq!(stored[0], stored[1]);
    let (moved_details, appended_details) =
        (moved.conversation().await, appended.conversation().await);
    assert_eq!(moved_details.token_total, appended_details.token_total);
    assert_eq!(
        (moved_details.title.as_str(), moved_details.user_id.as_str()),
        ("对话 1", "1")
    );
    assert_eq!(moved_details.metadata["legacy_uid"], "c1");
    assert_eq!(
        moved_details.created_time.map(|time| time.seconds),
        Some(1_600_000_001)
    );
    let newest = moved
        .messages()
        .await
        .pop()
        .and_then(|message| message.created_time);
    assert_eq!(newest.map(|time| time.seconds), Some(1_650_000_000));
    assert_eq!(
        moved_details.last_activity_time, newest,
        "the last activity is the time of the newest message"
    );
    assert_eq!(
        moved_details.metadata["legacy_updated_ts"], "1700000001",
        "the time of the older table is kept as a label"
    );
    assert_eq!(moved.message(1).await.metadata["legacy_uid"], "m1");
    assert_eq!(moved.jobs().await.len(), 1, "one job counts its tokens");
    let query = "select count(*) from ai_conversation where title_given and title = '对话 1'";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(query)
            .fetch_one(&mut app.db().await)
            .await
            .expect("answers"),
        1
    );
}

#[tokio::test]
async fn row_D6_a_conversation_without_a_title_is_titled_by_its_first_question() {
    let rows = [
        OldRow::message("ASSISTANT", "welcome", 1_600_000_000),
        OldRow::message("USER", "what is it?", 1_600_000_001),
    ];
    let mut old = OldTables::with(1, &rows).await;
    old.run("update ai_conversation set title = ''").await;
    successful_output(
        AnnealBinary::new(BINARY, &Folder::new(), &old.url)
            .run(&["migrate"])
            .await,
    );
    let app = TestApp::on_database(&old.url).await;
    let conversation = list_conversations(&app).await.pop().expect("it was moved");
    assert_eq!(conversation.conversation().await.title, "what is it?");
    conversation.append("something else").await;
    assert_eq!(conversation.conversation().await.title, "what is it?");
}

#[tokio::test]
async fn row_D6_a_separator_is_the_systems_if_it_says_so_or_if_a_summary_follows_it() {
    /// Seconds since 1970.
    const T: i64 = 1_600_000_000;
    let rows = [
        OldRow::mark("SEPARATOR", "user", T + 90),
        OldRow::message("USER", "one", T + 100),
        OldRow::mark("SEPARATOR", "system", T + 100),
        OldRow::message("ASSISTANT", "two", T + 101),
        // In the order of time a summary follows this separator, in the order of ids a message.
        OldRow::mark("SEPARATOR", "", T + 110),
        OldRow::message("USER", "three", T + 120),
        OldRow::mark("SUMMARY", "", T + 111),
        OldRow::mark("SEPARATOR", "", T + 130),
        OldRow::mark("SEPARATOR", "user", T + 131),
        OldRow::message("USER", "", T + 132),
        OldRow::mark("SUMMARY", "", T + 133),
    ];
    let types = [
        ("bigint", "text"),
        ("integer", "varchar(20)"),
        ("millis", "legacy_word"),
        ("timestamptz", "text"),
    ];
    for (time, word) in types {
        let old = OldTables::with_types(time, word, 10, &rows).await;
        let folder = Folder::new();
        let output = successful_output(
            AnnealBinary::new(BINARY, &folder, &old.url)
                .run(&["migrate"])
                .await,
        );
        assert_counts(&output, &expected_migration(10, &rows));
        assert!(output.contains("  archived conversations: 1\n"), "{output}");
        let stored = read_migrated_conversations(&old.url).await;
        assert_eq!(
            stored,
            expected_migration(10, &rows).conversations,
            "times as {time}, words as {word}"
        );
        assert_eq!(stored[&1].separators, [0, 3]);
        let texts: Vec<&str> = stored[&1]
            .messages
            .iter()
            .map(|message| message.text.as_str())
            .collect();
        assert_eq!(texts, ["one", "two", "three", ""]);
    }
}

#[tokio::test]
async fn row_D6_memory_does_not_grow_with_the_content() {
    let rows: Vec<OldRow> = (0..60)
        .map(|place| OldRow::message("USER", "", 1_600_000_000 + place))
        .collect();
    let mut old = OldTables::with(1, &rows).await;
    old.run("update ai_message set content = id || repeat(' 今天 weather', 280000)")
        .await;
    block_drop(&mut old).await;
    let folder = Folder::new();
    let process = AnnealBinary::new(BINARY, &folder, &old.url).start(&["migrate"]);
    let memory = measure_memory_and_unblock(&mut old, &process).await;
    assert_eq!(process.wait_for_exit().await, Some(0));
    println!("moved 60 messages of 4 MB with at most {memory} MiB");
    assert!(memory < 200, "{memory} MiB for 240 MB of text");
}

#[tokio::test]
async fn of_three_migrators_at_once_one_moves_the_older_tables() {
    let rows = generate_rows(2_000);
    let old = OldTables::with(CONVERSATIONS, &rows).await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    let all = tokio::join!(
        anneal.run(&["migrate"]),
        anneal.run(&["migrate"]),
        anneal.run(&["migrate"])
    );
    let output = [
        successful_output(all.0),
        successful_output(all.1),
        successful_output(all.2),
    ]
    .concat();
    assert_eq!(
        output.matches("moved the rows of the older tables").count(),
        1,
        "{output}"
    );
    assert_eq!(
        output.matches("the schema is up to date").count(),
        2,
        "{output}"
    );
    assert_eq!(
        read_migrated_conversations(&old.url).await,
        expected_migration(CONVERSATIONS, &rows).conversations
    );
    let empty = AnnealBinary::new(BINARY, &folder, &empty_database().await);
    assert!(
        !successful_output(empty.run(&["migrate"]).await).contains("older"),
        "without older tables the output does not mention them"
    );
}
