//! Running jobs: what happens to them when messages are appended, a separator is inserted, the
//! conversation is deleted, the lease is lost, or the worker panics or crashes.

use anneal_core::job::MAX_ATTEMPTS;
use anneal_testkit::{
    GatedSummarizer, PanickingSummarizer, TestApp, TestConversation, eventually, pb, status_details,
};
use sqlx::Row as _;

/// Creates a conversation with a checkpoint due at ten messages.
async fn conversation_with_low_threshold(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    app.conversation_with_policy(policy).await
}

async fn append_turns(conversation: &TestConversation<'_>, turns: usize) {
    for n in 0..turns {
        let question = format!(
            "Question {n}: what is the capital of country number {n}, and how many people live there?"
        );
        conversation
            .turn(
                &question,
                &format!("The capital of country {n} is City-{n}; {n}00,000 people live there."),
            )
            .await;
    }
}

/// Runs SQL on the app's database. Returns the number of affected rows.
async fn execute(app: &TestApp, text: &'static str) -> u64 {
    sqlx::query(text)
        .execute(&mut app.db().await)
        .await
        .expect("runs")
        .rows_affected()
}

/// Lists the jobs in this state, or all jobs if it is `Unspecified`.
async fn list_jobs(app: &TestApp, state: pb::JobState) -> Vec<pb::Job> {
    let ask = pb::ListJobsRequest {
        state: state.into(),
        ..Default::default()
    };
    app.operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs
}

/// Starts a checkpoint job that has read its messages and then waits for the test. Returns the
/// conversation and the task of the worker.
async fn pause_checkpoint_job<'a>(
    app: &'a TestApp,
    summarizer: &GatedSummarizer,
) -> (TestConversation<'a>, tokio::task::JoinHandle<usize>) {
    let conversation = conversation_with_low_threshold(app).await;
    append_turns(&conversation, 5).await;
    let worker = app.worker_with(summarizer.clone());
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    summarizer.wait_until_begun().await;
    (conversation, running)
}

#[tokio::test]
async fn an_append_during_a_checkpoint_is_neither_blocked_nor_lost() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let (conversation, running) = pause_checkpoint_job(&app, &summarizer).await;
    append_turns(&conversation, 2).await;
    let count = "select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()";
    let open_transactions: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks");
    assert_eq!(
        open_transactions, 0,
        "no transaction is open while a summarizer works"
    );
    assert_eq!(
        conversation.context().await.0.messages.len(),
        14,
        "a context is built meanwhile"
    );
    summarizer.release_one();
    running.await.expect("runs");
    let [checkpoint] = &conversation.checkpoints().await[..] else {
        panic!("one checkpoint")
    };
    assert_eq!(
        checkpoint.last_message_id, 8,
        "the checkpoint covers the messages that were read, not later ones"
    );
    let built = conversation.context().await;
    built.assert_covers(14);
    assert_eq!(
        built.0.messages.len(),
        7,
        "the summary and the six messages after it"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_separator_inserted_during_a_checkpoint_discards_it() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let (conversation, running) = pause_checkpoint_job(&app, &summarizer).await;
    conversation.insert_separator().await;
    summarizer.release_one();
    running.await.expect("runs");
    assert_eq!(conversation.checkpoints().await, []);
    assert!(
        list_jobs(&app, pb::JobState::Unspecified).await.is_empty(),
        "a discarded checkpoint is not stored later"
    );
    assert_eq!(conversation.delete_separator(10).await, 0);
    app.run_jobs_until_idle().await;
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "without the separator the threshold is reached again"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn deleting_a_conversation_during_a_checkpoint_leaves_no_rows() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let (conversation, running) = pause_checkpoint_job(&app, &summarizer).await;
    conversation.insert_separator().await;
    conversation.append("b").request_id("r").await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    summarizer.release_one();
    running.await.expect("runs");
    let mut db = app.db().await;
    let scans = "select format('select count(*) from %I where %I::text = $1', table_name, column_name)
        from information_schema.columns where table_schema = 'public' and column_name = 'conversation_id'";
    let scans: Vec<String> = sqlx::query_scalar(scans)
        .fetch_all(&mut db)
        .await
        .expect("lists tables");
    assert!(
        scans.len() >= 7,
        "at least seven tables have rows of conversations: {scans:?}"
    );
    for scan in scans {
        let scan = sqlx::query_scalar(sqlx::AssertSqlSafe(scan.clone())).bind(&conversation.id);
        let rows: i64 = scan.fetch_one(&mut db).await.expect("counts");
        assert_eq!(rows, 0);
    }
}

#[tokio::test]
async fn a_worker_that_has_lost_its_lease_writes_nothing() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let (conversation, late_worker) = pause_checkpoint_job(&app, &summarizer).await;
    assert_eq!(
        execute(
            &app,
            "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1"
        )
        .await,
        1
    );
    app.worker().rescue().await;
    let [rescued_job] = &list_jobs(&app, pb::JobState::Waiting).await[..] else {
        panic!("one job")
    };
    assert_eq!(
        (rescued_job.attempts, rescued_job.last_error.as_str()),
        (1, "lease expired"),
        "a rescue does not reset attempts"
    );
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    append_turns(&conversation, 1).await;
    summarizer.release_one();
    late_worker.await.expect("ends");
    assert_eq!(
        conversation.checkpoints().await,
        checkpoints,
        "the late result is discarded"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_worker_whose_job_another_worker_has_leased_writes_nothing() {
    let (app, first_summarizer, second_summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
        GatedSummarizer::default(),
    );
    let (conversation, first_worker) = pause_checkpoint_job(&app, &first_summarizer).await;
    execute(
        &app,
        "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1",
    )
    .await;
    app.worker().rescue().await;
    let worker = app.worker_with(second_summarizer.clone());
    let second_worker = tokio::spawn(async move { worker.run_until_idle().await });
    second_summarizer.wait_until_begun().await;
    first_summarizer.release_one();
    first_worker.await.expect("ends");
    assert_eq!(
        conversation.checkpoints().await,
        [],
        "the job is leased by another worker"
    );
    let [running_job] = &list_jobs(&app, pb::JobState::Running).await[..] else {
        panic!("one job")
    };
    assert_eq!(
        running_job.attempts, 2,
        "the second worker still holds its lease"
    );
    second_summarizer.release_one();
    second_worker.await.expect("ends");
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn a_running_job_is_not_claimed_again() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let (conversation, running) = pause_checkpoint_job(&app, &summarizer).await;
    assert_eq!(app.run_jobs_until_idle().await, 0);
    append_turns(&conversation, 1).await;
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.contexts().compact(ask).await.expect("asks");
    assert_eq!(
        app.run_jobs_until_idle().await,
        1,
        "only the counting job runs"
    );
    summarizer.release_one();
    // The compaction that was requested during the job runs after it.
    summarizer.wait_until_begun().await;
    summarizer.release_one();
    running.await.expect("ends");
    let last_ids: Vec<i64> = conversation
        .checkpoints()
        .await
        .iter()
        .map(|checkpoint| checkpoint.last_message_id)
        .collect();
    assert!(
        last_ids.len() == 2 && last_ids[0] > last_ids[1],
        "{last_ids:?}"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_job_that_panics_each_time_becomes_dead_and_affects_no_other_job() {
    let (app, panicking) = (
        TestApp::counted_by_workers().await,
        PanickingSummarizer::default(),
    );
    app.postpone_failed_jobs().await;
    let bad = conversation_with_low_threshold(&app).await;
    bad.turn(
        PanickingSummarizer::WORD,
        "a long answer about nothing in particular, so that there is something to shorten",
    )
    .await;
    append_turns(&bad, 4).await;
    let good = conversation_with_low_threshold(&app).await;
    append_turns(&good, 5).await;
    let worker = app.worker_with(panicking.clone());
    for attempt in 1..=MAX_ATTEMPTS {
        worker.run_until_idle().await;
        if attempt < MAX_ATTEMPTS {
            let [job] = &list_jobs(&app, pb::JobState::Waiting).await[..] else {
                panic!("one job waits")
            };
            assert_eq!(
                (job.attempts, job.last_error.as_str()),
                (i32::from(attempt), "the job panicked")
            );
            assert_eq!(execute(&app, "update ai_job set due_ts = now()").await, 1);
        }
    }
    assert_eq!(
        good.checkpoints().await.len(),
        1,
        "the job of the other conversation succeeds"
    );
    assert!(list_jobs(&app, pb::JobState::Waiting).await.is_empty());
    let [dead] = &list_jobs(&app, pb::JobState::Dead).await[..] else {
        panic!("one job is dead")
    };
    assert_eq!(
        (dead.kind(), dead.conversation_id.as_str()),
        (pb::JobKind::Checkpoint, bad.id.as_str())
    );
    assert_eq!(dead.attempts, i32::from(MAX_ATTEMPTS));
    bad.context().await.assert_covers(10);
    let ask = || pb::RequeueJobRequest {
        kind: pb::JobKind::Checkpoint.into(),
        conversation_id: bad.id.clone(),
        request_id: String::new(),
    };
    let requeued = app
        .operators()
        .requeue_job(ask())
        .await
        .expect("requeues")
        .into_inner();
    assert_eq!(
        (requeued.state(), requeued.attempts),
        (pb::JobState::Waiting, 0)
    );
    app.run_jobs_until_idle().await;
    assert_eq!(
        bad.checkpoints().await.len(),
        1,
        "a summarizer that does not panic succeeds"
    );
    let refused = app
        .operators()
        .requeue_job(ask())
        .await
        .expect_err("there is no such job now");
    assert_eq!(status_details(&refused).reason, "JOB_NOT_FOUND");
}

#[tokio::test]
async fn a_discarded_job_stays_discarded_until_new_work_arrives() {
    let (app, panicking) = (
        TestApp::counted_by_workers().await,
        PanickingSummarizer::default(),
    );
    app.postpone_failed_jobs().await;
    let conversation = conversation_with_low_threshold(&app).await;
    conversation
        .turn(
            PanickingSummarizer::WORD,
            "a long answer about nothing in particular, so that there is something to shorten",
        )
        .await;
    append_turns(&conversation, 4).await;
    let worker = app.worker_with(panicking.clone());
    worker.run_until_idle().await;
    sqlx::query("update ai_job set attempts = $1, due_ts = now()")
        .bind(MAX_ATTEMPTS - 1)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    worker.run_until_idle().await;
    assert_eq!(panicking.calls(), 2);
    assert_eq!(list_jobs(&app, pb::JobState::Dead).await.len(), 1);
    let ask = pb::DiscardJobRequest {
        kind: pb::JobKind::Checkpoint.into(),
        conversation_id: conversation.id.clone(),
        request_id: String::new(),
    };
    app.operators()
        .discard_job(ask.clone())
        .await
        .expect("discards");
    assert!(list_jobs(&app, pb::JobState::Unspecified).await.is_empty());
    assert_eq!(app.run_jobs_until_idle().await, 0);
    let refused = app
        .operators()
        .discard_job(ask)
        .await
        .expect_err("discarded");
    assert_eq!(status_details(&refused).reason, "JOB_NOT_FOUND");
    append_turns(&conversation, 1).await;
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn rescue_marks_a_job_that_kills_its_workers_as_dead() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.append("a").await;
    // Sets the state after a crash of the worker: the job is running and its lease has ended.
    let crash = "update ai_job set state = 1, lease = gen_random_uuid(), lease_until_ts = now() - interval '1 s', attempts = attempts + 1";
    for _ in 1..MAX_ATTEMPTS {
        execute(&app, crash).await;
        app.worker().rescue().await;
        assert_eq!(list_jobs(&app, pb::JobState::Waiting).await.len(), 1);
    }
    execute(&app, crash).await;
    app.worker().rescue().await;
    let [dead] = &list_jobs(&app, pb::JobState::Dead).await[..] else {
        panic!("one job is dead")
    };
    assert_eq!(
        (dead.attempts, dead.last_error.as_str()),
        (i32::from(MAX_ATTEMPTS), "lease expired")
    );
    assert_eq!(app.run_jobs_until_idle().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_worker_finds_work_and_stops_on_request() {
    let (app, summarizer) = (
        TestApp::counted_by_workers().await,
        GatedSummarizer::default(),
    );
    let stop = tokio_util::sync::CancellationToken::new();
    let worker = app.worker_with(summarizer.clone());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let conversation = conversation_with_low_threshold(&app).await;
    append_turns(&conversation, 5).await;
    summarizer.wait_until_begun().await;
    stop.cancel();
    summarizer.release_one();
    running.await.expect("stops");
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "the running job is finished"
    );
    let query = sqlx::query("select count(*) filter (where state = 1) as running_jobs from ai_job");
    let running_jobs: i64 = query
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks")
        .get("running_jobs");
    assert_eq!(running_jobs, 0);
    eventually("no transaction is open", async || {
        let count =
            "select count(*) from pg_stat_activity where state like 'idle in tr%' and datname = current_database()";
        let open_transactions: i64 =
            sqlx::query_scalar(count).fetch_one(&mut app.db().await).await.expect("asks");
        open_transactions == 0
    })
    .await;
}
