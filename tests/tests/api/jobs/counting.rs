//! The messages of many conversations are counted in one transaction. No conversation can delay the
//! counts of the others or make them fail.

use anneal_testkit::{
    OwnPostgres, SeededRandom, TestApp, TestConversation, assistant, eventually, pb, user,
};
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Creates conversations with four short messages each. Their counting jobs have not run.
pub(crate) async fn create_uncounted_conversations(
    app: &TestApp,
    count: usize,
) -> Vec<TestConversation<'_>> {
    let mut conversations = Vec::with_capacity(count);
    for _ in 0..count {
        let conversation = app.conversation().await;
        append_four_messages(&conversation).await;
        conversations.push(conversation);
    }
    conversations
}

pub(crate) async fn append_four_messages(conversation: &TestConversation<'_>) {
    let (question, answer) = (
        user("What is the capital of Norway?"),
        assistant("Oslo; it lies on a fjord."),
    );
    conversation
        .append_all(vec![question.clone(), answer.clone(), question, answer])
        .await;
}

/// Whether all messages of the conversation are counted.
async fn has_exact_total(conversation: &TestConversation<'_>) -> bool {
    conversation
        .conversation()
        .await
        .token_total
        .expect("has a total")
        .estimated_messages
        == 0
}

async fn have_exact_totals(conversations: &[TestConversation<'_>]) -> bool {
    for conversation in conversations {
        if !has_exact_total(conversation).await {
            return false;
        }
    }
    true
}

pub(crate) async fn list_jobs(app: &TestApp) -> Vec<pb::Job> {
    let ask = pb::ListJobsRequest {
        page_size: 500,
        ..Default::default()
    };
    app.operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs
}

/// Runs a statement whose `$1` is the conversation's id. Returns the number of affected rows.
async fn execute(
    db: &mut PgConnection,
    text: &'static str,
    conversation: &TestConversation<'_>,
) -> u64 {
    let id: Uuid = conversation.id.parse().expect("an id");
    sqlx::query(text)
        .bind(id)
        .execute(db)
        .await
        .expect("runs")
        .rows_affected()
}

/// Waits until a statement of the app waits for a lock.
async fn wait_for_blocked_statement(app: &TestApp) {
    let mut db = app.db().await;
    eventually("a statement waits for a lock", async || {
        let waits = "select exists (select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock')";
        sqlx::query_scalar(waits)
            .fetch_one(&mut db)
            .await
            .expect("asks")
    })
    .await;
}

/// Runs the counting jobs of `conversations` conversations, and asserts that they share one commit.
/// Returns the number of claims and the number of other statements.
async fn count_statements_of_counting(
    postgres: &OwnPostgres,
    app: &TestApp,
    conversations: usize,
) -> (usize, usize) {
    let before = postgres.statements().len();
    assert!(before > 0, "statements are logged");
    assert_eq!(app.run_jobs_until_idle().await, conversations);
    let ran = postgres.statements().split_off(before);
    let (claims, others): (Vec<_>, Vec<_>) = ran
        .into_iter()
        .map(|statement| statement.to_lowercase())
        .filter(|statement| {
            ["ai_", "begin", "commit", "rollback"]
                .iter()
                .any(|word| statement.contains(word))
        })
        // The first line of `store/sql/claim_jobs.sql` has these words.
        .partition(|statement| statement.contains("claims up to"));
    println!(
        "{conversations} conversations: {} claims, {} other statements",
        claims.len(),
        others.len()
    );
    assert_eq!(
        others
            .iter()
            .filter(|statement| statement.contains("commit"))
            .count(),
        1
    );
    (claims.len(), others.len())
}

#[tokio::test]
async fn sixty_four_conversations_are_counted_in_one_transaction() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url)
        .await
        .expect("connects");
    // Connections made after this log every statement that they run.
    sqlx::raw_sql("alter database anneal set log_statement = 'all'")
        .execute(&mut db)
        .await
        .expect("logs");
    let app = TestApp::counted_by_workers_on(&postgres.url).await;
    let conversations = create_uncounted_conversations(&app, 64).await;
    // Six claims: three kinds of jobs, twice. Eight other statements: read messages, begin, lock
    // conversations, write counts, read tails, write trigger bounds, end jobs, commit.
    assert_eq!(
        count_statements_of_counting(&postgres, &app, 64).await,
        (6, 8)
    );
    for conversation in &conversations {
        conversation.append("one more").await;
    }
    // No trigger bound is reached, so no tail is read and no bound is written.
    assert_eq!(
        count_statements_of_counting(&postgres, &app, 64).await,
        (6, 6)
    );
    assert!(have_exact_totals(&conversations).await && list_jobs(&app).await.is_empty());
    for conversation in &conversations {
        conversation.verify().await;
    }
}

#[tokio::test]
async fn a_lost_lease_discards_only_its_own_counts_of_the_batch() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 8).await;
    let (mut lock_db, mut db) = (app.db().await, app.db().await);
    let mut lock = lock_db.begin().await.expect("begins");
    assert_eq!(
        execute(
            &mut lock,
            "select from ai_message where conversation_id = $1 for update",
            &conversations[0]
        )
        .await,
        4
    );
    let worker = app.worker();
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    // The batch has locked all its conversations and waits for the lock on a message.
    wait_for_blocked_statement(&app).await;
    let replace_lease =
        "update ai_job set lease = gen_random_uuid() where conversation_id = $1 and state = 1";
    assert_eq!(execute(&mut db, replace_lease, &conversations[5]).await, 1);
    lock.rollback().await.expect("releases the lock");
    assert_eq!(running.await.expect("runs"), 8);
    for (index, conversation) in conversations.iter().enumerate() {
        assert_eq!(
            has_exact_total(conversation).await,
            index != 5,
            "conversation {index}"
        );
        conversation.verify().await;
    }
    let [remaining_job] = &list_jobs(&app).await[..] else {
        panic!("one job")
    };
    assert_eq!(
        (
            remaining_job.conversation_id.as_str(),
            remaining_job.state()
        ),
        (conversations[5].id.as_str(), pb::JobState::Running)
    );
    let counted =
        "select count(*) from ai_message where token_count is not null and conversation_id = $1";
    let id: Uuid = conversations[5].id.parse().expect("an id");
    let counted: i64 = sqlx::query_scalar(counted)
        .bind(id)
        .fetch_one(&mut db)
        .await
        .expect("asks");
    assert_eq!(
        counted, 0,
        "the counts of a job whose lease is lost are not written"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_conversation_does_not_delay_the_others() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 8).await;
    let mut lock_db = app.db().await;
    let mut lock = lock_db.begin().await.expect("begins");
    assert_eq!(
        execute(
            &mut lock,
            "select from ai_conversation where conversation_id = $1 for update",
            &conversations[3]
        )
        .await,
        1
    );
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (app.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("the other conversations are counted", async || {
        have_exact_totals(&conversations[..3]).await && have_exact_totals(&conversations[4..]).await
    })
    .await;
    for conversation in conversations
        .iter()
        .filter(|conversation| conversation.id != conversations[3].id)
    {
        append_four_messages(conversation).await;
    }
    eventually("new messages are counted", async || {
        have_exact_totals(&conversations[..3]).await && have_exact_totals(&conversations[4..]).await
    })
    .await;
    assert!(
        !has_exact_total(&conversations[3]).await,
        "the locked conversation is not counted"
    );
    lock.rollback().await.expect("releases the lock");
    eventually("the unlocked conversation is counted", async || {
        has_exact_total(&conversations[3]).await
    })
    .await;
    stop.cancel();
    working.await.expect("stops");
    assert!(list_jobs(&app).await.is_empty());
}

#[tokio::test]
async fn deleting_a_conversation_during_its_count_fails_no_job() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 8).await;
    let mut lock_db = app.db().await;
    let mut lock = lock_db.begin().await.expect("begins");
    assert_eq!(
        execute(
            &mut lock,
            "select from ai_conversation where conversation_id = $1 for update",
            &conversations[3]
        )
        .await,
        1
    );
    let worker = app.worker();
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    // The other conversations are counted. The worker waits for the locked one.
    wait_for_blocked_statement(&app).await;
    for delete in [
        "delete from ai_job where conversation_id = $1",
        "delete from ai_message where conversation_id = $1",
        "delete from ai_conversation where conversation_id = $1",
    ] {
        assert!(execute(&mut lock, delete, &conversations[3]).await > 0);
    }
    lock.commit().await.expect("deletes");
    assert_eq!(running.await.expect("runs"), 8);
    assert!(
        have_exact_totals(&conversations[..3]).await
            && have_exact_totals(&conversations[4..]).await
    );
    assert!(
        list_jobs(&app).await.is_empty(),
        "no job is left, waiting or dead"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_slow_to_count_do_not_delay_small_ones() {
    let app = TestApp::counted_by_workers().await;
    // A text that is slow to tokenize.
    let slow_text = format!("{}+", "-".repeat(1_000)).repeat(300);
    let mut slow_conversations = Vec::new();
    // These are more conversations than there are threads that count.
    for _ in 0..16 {
        let conversation = app.conversation().await;
        conversation.append(&slow_text).await;
        slow_conversations.push(conversation);
    }
    let conversations = create_uncounted_conversations(&app, 8).await;
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (app.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("the small messages are counted", async || {
        have_exact_totals(&conversations).await
    })
    .await;
    for conversation in &conversations {
        append_four_messages(conversation).await;
    }
    eventually("new messages are counted", async || {
        have_exact_totals(&conversations).await
    })
    .await;
    assert!(
        !have_exact_totals(&slow_conversations).await,
        "the slow messages take longer"
    );
    eventually("the slow messages are counted too", async || {
        have_exact_totals(&slow_conversations).await
    })
    .await;
    stop.cancel();
    working.await.expect("stops");
}

#[tokio::test]
async fn an_unreadable_message_fails_only_its_own_job() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 8).await;
    let spoil = "update ai_message set content = '[{\"type\":\"unheard of\"}]' where conversation_id = $1 and message_id = 2";
    assert_eq!(
        execute(&mut app.db().await, spoil, &conversations[6]).await,
        1
    );
    app.run_jobs_until_idle().await;
    assert!(
        have_exact_totals(&conversations[..6]).await && has_exact_total(&conversations[7]).await
    );
    let [remaining_job] = &list_jobs(&app).await[..] else {
        panic!("one job")
    };
    assert_eq!(
        (
            remaining_job.conversation_id.as_str(),
            remaining_job.state()
        ),
        (conversations[6].id.as_str(), pb::JobState::Waiting)
    );
    assert!(
        remaining_job.attempts >= 1 && remaining_job.last_error.contains("cannot be read"),
        "{remaining_job:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_totals_equal_the_sum_of_the_counts_after_random_appends() {
    let app = TestApp::counted_by_workers().await;
    let mut numbers = SeededRandom(20_261_121);
    let mut conversations = Vec::new();
    for _ in 0..24 {
        conversations.push(app.conversation().await);
    }
    let stop = CancellationToken::new();
    // Two workers run in the background. The test also runs jobs itself in between.
    let working: Vec<_> = [app.worker(), app.worker()]
        .into_iter()
        .map(|worker| {
            tokio::spawn({
                let stop = stop.clone();
                async move { worker.run(stop).await }
            })
        })
        .collect();
    for _ in 0..400 {
        let conversation = &conversations[numbers.index(24)];
        let words = ["fjord ", "zwölf ", "北京 ", "-----", "let x = 1;\n"];
        let messages = (0..=numbers.below(3)).map(|_| {
            let times = if numbers.below(40) == 0 {
                9_000
            } else {
                1 + numbers.index(30)
            };
            user(&words[numbers.index(5)].repeat(times))
        });
        conversation.append_all(messages.collect()).await;
        match numbers.below(30) {
            0 => drop(conversation.insert_separator().await),
            1 => drop(app.run_jobs_until_idle().await),
            _ => {}
        }
    }
    eventually("everything is counted", async || {
        have_exact_totals(&conversations).await
    })
    .await;
    stop.cancel();
    for worker in working {
        worker.await.expect("stops");
    }
    let mut db = app.db().await;
    for conversation in &conversations {
        conversation.verify().await;
        let id: Uuid = conversation.id.parse().expect("an id");
        let row = sqlx::query(
            "select c.token_total, (select sum(token_count)::bigint from ai_message where conversation_id = $1) as count_sum
             from ai_conversation as c where c.conversation_id = $1",
        );
        let row = row.bind(id).fetch_one(&mut db).await.expect("asks");
        assert_eq!(
            row.get::<i64, _>(0),
            row.get::<Option<i64>, _>(1).unwrap_or(0)
        );
    }
}
