//! Lists walk one index, twice, and little further than the page, however many conversations there are.

use anneal_tests::{House, eventually, pb};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::plans::{AS_OWNER, AS_SERVERS, TENANT};

/// Lists asked for by each test: more than the five after which PostgreSQL may keep one plan for all arguments.
const LISTS: i64 = 12;
const PAGE: i32 = 50;
/// Seconds by which the time that lists are found by stays behind at most; the tests' conversations are a second apart.
const LAG: i64 = 20;
/// What a scan may read: the page and one more, and what is near its ends.
const READ: i64 = PAGE as i64 + 1 + 2 * LAG;

/// A list: its statement, its index, its arguments before the place and after it, and how a client asks for it.
struct List {
    name: &'static str,
    index: &'static str,
    sql: &'static str,
    whose: &'static str,
    ask: fn() -> pb::ListConversationsRequest,
}

macro_rules! list {
    ($name:literal, $index:literal, $whose:literal, $ask:expr) => {
        List {
            name: $name,
            index: $index,
            sql: include_str!(concat!("../../../store/sql/", $name, ".sql")),
            whose: $whose,
            ask: $ask,
        }
    };
}

fn lists() -> [List; 4] {
    [
        list!("list_conversations", "ai_conversation_by_activity", "", pb::ListConversationsRequest::default),
        list!("list_conversations_of_agent", "ai_conversation_by_agent", ", 'agent 7'", || {
            pb::ListConversationsRequest { agent_id: "agent 7".into(), ..Default::default() }
        }),
        list!("list_conversations_of_user", "ai_conversation_by_user", ", 'anna'", || {
            pb::ListConversationsRequest { user_id: "anna".into(), ..Default::default() }
        }),
        list!(
            "list_conversations_of_user_and_agent",
            "ai_conversation_by_user_and_agent",
            ", 'anna', 'agent 7'",
            || {
                let (user_id, agent_id) = ("anna".into(), "agent 7".into());
                pb::ListConversationsRequest { user_id, agent_id, ..Default::default() }
            }
        ),
    ]
}

/// 100,000 conversations of one user with 100 agents, mixed with as many of 1,000 others.
async fn fill(db: &mut PgConnection) {
    let sql = format!(
        "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding, status, last_activity_ts, listed_ts)
         select {TENANT}, gen_random_uuid(), 'agent ' || (n / 2 * 7919) % 100,
            case when n % 2 = 0 then 'anna' else 'user ' || n % 1000 end, 'title ' || n, false, '{{}}', '', 0, '{{}}', 1,
            1 + (n / 200) % 2, now() - (n * 7907 % 200003) * interval '1 second',
            now() - (n * 7907 % 200003 + n % {LAG}) * interval '1 second'
         from generate_series(1, 200000) as n;
         analyze"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.expect("fills");
}

async fn plan(db: &mut PgConnection, mode: &str, list: &List, place: &str) -> String {
    let (name, sql) = (list.name, list.sql);
    let prepare = format!("{AS_SERVERS}; deallocate all; set plan_cache_mode = {mode}; prepare {name} as {sql}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *db).await.expect("prepares");
    let explain = format!("explain (analyze, timing off) execute {name} ({TENANT}{}, {place}, 51, {LAG})", list.whose);
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *db).await.expect("explains");
    sqlx::raw_sql(AS_OWNER).execute(db).await.expect("resets");
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn each_list_reads_a_page_of_its_index_whatever_plan_is_kept() {
    let house = House::start().await;
    let mut db = house.db().await;
    fill(&mut db).await;
    let middle = "(extract(epoch from now() - interval '100000 seconds') * 1000000)::bigint, gen_random_uuid()";
    for list in lists() {
        for mode in ["force_generic_plan", "force_custom_plan"] {
            for place in ["null, null, null, null", &format!("null, null, {middle}")] {
                let plan = plan(&mut db, mode, &list, place).await;
                let scans: Vec<&str> = plan.lines().filter(|line| line.contains("Scan using")).collect();
                let found = format!("Index Scan using {} on", list.index);
                assert!(scans.len() == 2 && scans.iter().all(|scan| scan.contains(&found)), "{mode}:\n{plan}");
                assert!(!plan.contains("Seq Scan"), "{}, {mode}:\n{plan}", list.name);
                let read = scans.iter().map(|scan| figure(scan, "rows=", 1)).chain(
                    plan.lines().filter(|line| line.contains("Removed by")).map(|line| figure(line, "Filter: ", 0)),
                );
                assert!(read.clone().all(|read| read <= READ), "{}, {mode}: {read:?}\n{plan}", list.name);
            }
            // Half of the conversations are archived: a page of the others is within a few pages of the index.
            let archived = plan(&mut db, mode, &list, "2::smallint, null, null, null").await;
            assert!(archived.contains(&format!("Index Scan using {} on", list.index)), "{}:\n{archived}", list.name);
            assert!(!archived.contains("Seq Scan"), "{}, {mode}:\n{archived}", list.name);
        }
    }
}

/// The whole number after these words, the `nth` time that they stand in a line of a plan (estimates come first).
fn figure(line: &str, words: &str, nth: usize) -> i64 {
    let after = line.split(words).nth(nth + 1).expect("a plan says it");
    after.split(|sign: char| !sign.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Scans of the index, entries read by them, and scans of the whole table, as PostgreSQL has counted them.
async fn counted(db: &mut PgConnection, index: &str) -> (i64, i64, i64) {
    sqlx::query_as(
        "select i.idx_scan, i.idx_tup_read, t.seq_scan
         from pg_stat_user_indexes as i join pg_stat_user_tables as t using (relid) where i.indexrelname = $1",
    )
    .bind(index)
    .fetch_one(db)
    .await
    .expect("counts")
}

#[tokio::test]
async fn what_the_server_runs_reads_no_more_than_the_page() {
    let house = House::start().await;
    let mut db = house.db().await;
    fill(&mut db).await;
    for list in lists() {
        let before = counted(&mut db, list.index).await;
        for _ in 0..LISTS {
            let ask = pb::ListConversationsRequest { page_size: PAGE, ..(list.ask)() };
            let page = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
            assert_eq!(page.conversations.len(), PAGE as usize);
        }
        // The server's connection tells what it did when it is used again, a second later at the earliest.
        eventually("PostgreSQL has counted the lists", async || {
            let ask = pb::GetConversationRequest { conversation_id: uuid::Uuid::nil().to_string() };
            assert!(house.conversations().get_conversation(ask).await.is_err());
            counted(&mut db, list.index).await.0 >= before.0 + 2 * LISTS
        })
        .await;
        let after = counted(&mut db, list.index).await;
        let (scans, read) = (after.0 - before.0, after.1 - before.1);
        println!("{}: {scans} scans of {}, {read} entries for {LISTS} pages of {PAGE}", list.name, list.index);
        assert_eq!((scans, after.2), (2 * LISTS, before.2), "{}: two index scans each, none of the table", list.name);
        assert!(read <= 2 * LISTS * READ, "{}: {read} entries", list.name);
    }
}
