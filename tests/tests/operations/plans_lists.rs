//! A page of a list of conversations is read by two scans of one index. They read little more than
//! the page, also for bound callers. Pinned conversations and texts in titles are looked for among
//! 10,000 conversations of an index.

use anneal_core::caller::{Bound, BoundId, Verb};
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{AuthorizedChannel, TestApp, eventually, pb};
use pb::conversation_service_client::ConversationServiceClient;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::plans::{AS_OWNER, AS_SERVERS, TENANT};

/// Calls of each list. PostgreSQL may cache a generic plan after five.
const CALLS: i64 = 12;
/// Conversations of a page.
const PAGE: i32 = 50;
/// Maximum lag of `listed_ts` behind `last_activity_ts`, in seconds. Conversations are a second
/// apart.
const LAG: i64 = 120;
/// Maximum rows of a scan: the page, one more, and the lag at both ends.
const MAX_ROWS: i64 = PAGE as i64 + 1 + 2 * LAG;

/// A list of conversations.
struct List {
    /// Name of its statement.
    name: &'static str,
    /// Name of the index that the statement must use.
    index: &'static str,
    sql: &'static str,
    /// Arguments of the filters, as SQL.
    filters: &'static str,
    /// Makes the request of a client.
    ask: fn() -> pb::ListConversationsRequest,
}

macro_rules! list {
    ($name:literal, $index:literal, $filters:literal, $ask:expr) => {
        List {
            name: $name,
            index: $index,
            sql: include_str!(concat!("../../../store/sql/", $name, ".sql")),
            filters: $filters,
            ask: $ask,
        }
    };
}

fn lists() -> [List; 4] {
    [
        list!(
            "list_conversations",
            "ai_conversation_by_activity",
            "",
            pb::ListConversationsRequest::default
        ),
        list!(
            "list_conversations_of_agent",
            "ai_conversation_by_agent",
            ", 'agent 7'",
            || {
                pb::ListConversationsRequest {
                    agent_id: "agent 7".into(),
                    ..Default::default()
                }
            }
        ),
        list!(
            "list_conversations_of_user",
            "ai_conversation_by_user",
            ", 'anna'",
            || {
                pb::ListConversationsRequest {
                    user_id: "anna".into(),
                    ..Default::default()
                }
            }
        ),
        list!(
            "list_conversations_of_user_and_agent",
            "ai_conversation_by_user_and_agent",
            ", 'anna', 'agent 7'",
            || {
                let (user_id, agent_id) = ("anna".into(), "agent 7".into());
                pb::ListConversationsRequest {
                    user_id,
                    agent_id,
                    ..Default::default()
                }
            }
        ),
    ]
}

/// Stores 100,000 conversations of one user with 100 agents, mixed with 100,000 of 500 other users.
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
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(db)
        .await
        .expect("fills");
}

/// Runs a list. `arguments` are the status, the beginning of the title, and the time and id after
/// which the page starts. Returns the plan with actual row counts.
async fn explain_analyze(
    db: &mut PgConnection,
    mode: &str,
    list: &List,
    arguments: &str,
) -> String {
    let (name, sql) = (list.name, list.sql);
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; set plan_cache_mode = {mode}; prepare {name} as {sql}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .expect("prepares");
    // 51 rows: a page, and one more that shows whether another page follows.
    let explain = format!(
        "explain (analyze, timing off) execute {name} ({TENANT}{}, {arguments}, 51, {LAG})",
        list.filters
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_all(&mut *db)
        .await
        .expect("explains");
    sqlx::raw_sql(AS_OWNER).execute(db).await.expect("resets");
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn each_list_reads_a_page_of_its_index_with_generic_and_custom_plans() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    let middle = "(extract(epoch from now() - interval '100000 seconds') * 1000000)::bigint, gen_random_uuid()";
    for list in lists() {
        for mode in ["force_generic_plan", "force_custom_plan"] {
            for arguments in ["null, null, null, null", &format!("null, null, {middle}")] {
                let plan = explain_analyze(&mut db, mode, &list, arguments).await;
                let scans: Vec<&str> = plan
                    .lines()
                    .filter(|line| line.contains("Scan using"))
                    .collect();
                let expected = format!("Index Scan using {} on", list.index);
                assert!(
                    scans.len() == 2 && scans.iter().all(|scan| scan.contains(&expected)),
                    "{mode}:\n{plan}"
                );
                assert!(!plan.contains("Seq Scan"), "{}, {mode}:\n{plan}", list.name);
                let read = scans
                    .iter()
                    .map(|scan| number_after(scan, "rows=", 1))
                    .chain(
                        plan.lines()
                            .filter(|line| line.contains("Removed by"))
                            .map(|line| number_after(line, "Filter: ", 0)),
                    );
                assert!(
                    read.clone().all(|read| read <= MAX_ROWS),
                    "{}, {mode}: {read:?}\n{plan}",
                    list.name
                );
            }
            // Half of the conversations are archived. A list of them skips the others in the index,
            // so it may read more rows than a page.
            let archived =
                explain_analyze(&mut db, mode, &list, "2::smallint, null, null, null").await;
            assert!(
                archived.contains(&format!("Index Scan using {} on", list.index)),
                "{}:\n{archived}",
                list.name
            );
            assert!(
                !archived.contains("Seq Scan"),
                "{}, {mode}:\n{archived}",
                list.name
            );
        }
    }
}

/// The integer after the `nth` occurrence of these words in a line of a plan, counted from 0. The
/// estimate of a number comes before the actual one.
fn number_after(line: &str, words: &str, nth: usize) -> i64 {
    let after = line
        .split(words)
        .nth(nth + 1)
        .expect("the plan contains it");
    after
        .split(|sign: char| !sign.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

/// Scans of an index, entries read from it, and sequential scans of its table, according to
/// PostgreSQL's statistics.
async fn read_statistics(db: &mut PgConnection, index: &str) -> (i64, i64, i64) {
    sqlx::query_as(
        "select i.idx_scan, i.idx_tup_read, t.seq_scan
         from pg_stat_user_indexes as i join pg_stat_user_tables as t using (relid) where i.indexrelname = $1",
    )
    .bind(index)
    .fetch_one(db)
    .await
    .expect("counts")
}

/// The index scans that a list may make.
#[derive(Clone, Copy)]
struct Scans {
    index: &'static str,
    /// Scans that each call makes.
    per_call: i64,
    /// Most entries that each scan reads.
    rows: i64,
}

/// A page: two scans.
const fn page_of(index: &'static str) -> Scans {
    Scans {
        index,
        per_call: 2,
        rows: MAX_ROWS,
    }
}

/// Lists with this client and asserts what PostgreSQL reads for it. `count`: entries of the page.
async fn assert_reads(
    app: &TestApp,
    (caller, ask): (&Caller, pb::ListConversationsRequest),
    (expected, count): (Scans, usize),
) {
    let Scans {
        index,
        per_call,
        rows,
    } = expected;
    let mut db = app.db().await;
    let before = read_statistics(&mut db, index).await;
    for _ in 0..CALLS {
        let of_page = pb::ListConversationsRequest {
            page_size: PAGE,
            ..ask.clone()
        };
        let page = caller.clone().list_conversations(of_page).await;
        let page = page.expect("lists").into_inner();
        assert_eq!(page.conversations.len(), count, "{ask:?}");
    }
    // A backend reports its statistics when it is used again, a second later at the earliest.
    eventually("PostgreSQL has counted the lists", async || {
        let ask = pb::GetConversationRequest {
            conversation_id: uuid::Uuid::nil().to_string(),
        };
        assert!(caller.clone().get_conversation(ask).await.is_err());
        read_statistics(&mut db, index).await.0 >= before.0 + per_call * CALLS
    })
    .await;
    let after = read_statistics(&mut db, index).await;
    let (scanned, read) = (after.0 - before.0, after.1 - before.1);
    println!("{ask:?}: {scanned} scans of {index}, {read} entries for {CALLS} pages of {PAGE}");
    assert_eq!(
        (scanned, after.2),
        (per_call * CALLS, before.2),
        "{ask:?}: index scans, no sequential scan"
    );
    assert!(read <= per_call * CALLS * rows, "{ask:?}: {read} entries");
}

type Caller = ConversationServiceClient<AuthorizedChannel>;

#[tokio::test]
async fn the_servers_lists_read_no_more_than_the_page() {
    let app = TestApp::start().await;
    fill(&mut app.db().await).await;
    let caller = ConversationServiceClient::new(app.authorized_channel(""));
    for list in lists() {
        let page = (page_of(list.index), PAGE as usize);
        assert_reads(&app, (&caller, (list.ask)()), page).await;
    }
}

/// An app whose default tenant has the conversations of [`fill`], and callers that are bound to Anna
/// and to an agent.
async fn start_with_bound_callers() -> (TestApp, Caller, Caller) {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    fill(&mut app.db().await).await;
    let id = |text| BoundId::new(text).expect("an id");
    let mut callers = Vec::new();
    for bound in [Bound::User(id("anna")), Bound::Agent(id("agent 7"))] {
        let key = app.bound_key("default", &[Verb::Read], bound).await;
        let channel = app.authorized_channel(&format!("Bearer {}", key.text));
        callers.push(ConversationServiceClient::new(channel));
    }
    let [user, agent] = callers.try_into().expect("there are two");
    (app, user, agent)
}

#[tokio::test]
async fn lists_of_bound_callers_read_no_more_than_the_page() {
    let (app, user, agent) = start_with_bound_callers().await;
    let ask = |user_id: &str, agent_id: &str| pb::ListConversationsRequest {
        user_id: user_id.into(),
        agent_id: agent_id.into(),
        ..Default::default()
    };
    let page = PAGE as usize;
    let of_user = page_of("ai_conversation_by_user");
    let of_agent = page_of("ai_conversation_by_agent");
    let of_both = page_of("ai_conversation_by_user_and_agent");
    assert_reads(&app, (&user, ask("", "")), (of_user, page)).await;
    assert_reads(&app, (&user, ask("", "agent 7")), (of_both, page)).await;
    assert_reads(&app, (&agent, ask("", "")), (of_agent, page)).await;
    assert_reads(&app, (&agent, ask("anna", "")), (of_both, page)).await;
    // A list of another's conversations reads nothing.
    for (caller, foreign) in [(&user, ask("user 1", "")), (&agent, ask("", "agent 8"))] {
        for index in [of_user.index, of_agent.index, of_both.index] {
            let nothing = Scans {
                index,
                per_call: 0,
                rows: 0,
            };
            assert_reads(&app, (caller, foreign.clone()), (nothing, 0)).await;
        }
    }
}

#[tokio::test]
async fn what_a_list_looks_for_without_an_index_it_looks_for_among_ten_thousand() {
    const SCAN: i64 = 10_000;
    let (app, user, agent) = start_with_bound_callers().await;
    let titled = pb::ListConversationsRequest {
        title_contains: "no such title".into(),
        ..Default::default()
    };
    for (caller, index) in [
        (&user, "ai_conversation_by_user"),
        (&agent, "ai_conversation_by_agent"),
    ] {
        // One scan finds where the page ends, the other one reads it.
        let twice = Scans {
            index,
            per_call: 2,
            rows: SCAN + 2 * LAG,
        };
        assert_reads(&app, (caller, titled.clone()), (twice, 0)).await;
    }
    // The pages lead on to the end.
    let (mut pages, mut found, mut page_token) = (0, Vec::new(), String::new());
    loop {
        let ask = pb::ListConversationsRequest {
            title_contains: "TITLE 19999".into(),
            page_token,
            ..Default::default()
        };
        let page = user.clone().list_conversations(ask).await;
        let page = page.expect("lists").into_inner();
        pages += 1;
        found.extend(page.conversations.into_iter().map(|one| one.title));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    found.sort();
    // Of the titles 19999 and 199990 to 199999, Anna has those with an even number.
    let expected = [
        "title 199990",
        "title 199992",
        "title 199994",
        "title 199996",
        "title 199998",
    ];
    assert_eq!(found, expected);
    assert!((10..=13).contains(&pages), "{pages} pages");
}
