//! Jobs under way while the world changes: appends, separators, deletion, lost leases, panics, death.

use anneal_core::job::MAX_ATTEMPTS;
use anneal_tests::{House, Panicking, Talk, Waiting, eventually, pb, refusal};
use sqlx::Row as _;

async fn cooling(house: &House) -> Talk<'_> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    house.conversation_under(policy).await
}

async fn say(talk: &Talk<'_>, turns: usize) {
    for n in 0..turns {
        let asked = format!("Question {n}: what is the capital of country number {n}, and how many people live there?");
        talk.turn(&asked, &format!("The capital of country {n} is City-{n}; {n}00,000 people live there.")).await;
    }
}

/// Runs SQL on the house's database; returns the rows it touched.
async fn sql(house: &House, text: &'static str) -> u64 {
    sqlx::query(text).execute(&mut house.db().await).await.expect("runs").rows_affected()
}

async fn jobs(house: &House, state: pb::JobState) -> Vec<pb::Job> {
    let ask = pb::ListJobsRequest { state: state.into(), ..Default::default() };
    house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs
}

/// A checkpoint job that has read its messages and now waits for the test.
async fn in_the_middle<'a>(house: &'a House, waiting: &Waiting) -> (Talk<'a>, tokio::task::JoinHandle<usize>) {
    let talk = cooling(house).await;
    say(&talk, 5).await;
    let worker = house.worker_with(waiting.clone());
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    waiting.begun().await;
    (talk, running)
}

#[tokio::test]
async fn an_append_during_a_checkpoint_is_neither_blocked_nor_lost() {
    let (house, waiting) = (House::start().await, Waiting::default());
    let (talk, running) = in_the_middle(&house, &waiting).await;
    say(&talk, 2).await;
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()";
    let open: i64 = sqlx::query_scalar(open).fetch_one(&mut house.db().await).await.expect("asks");
    assert_eq!(open, 0, "no transaction is open while a summariser thinks");
    assert_eq!(talk.context().await.0.messages.len(), 14, "contexts do not wait");
    waiting.go_on();
    running.await.expect("runs");
    let [checkpoint] = &talk.checkpoints().await[..] else { panic!("one checkpoint") };
    assert_eq!(checkpoint.last_message_id, 8, "it covers what was read, not what has come since");
    let built = talk.context().await;
    built.assert_covers(14);
    assert_eq!(built.0.messages.len(), 7);
    talk.verify().await;
}

#[tokio::test]
async fn a_separator_during_a_checkpoint_discards_it() {
    let (house, waiting) = (House::start().await, Waiting::default());
    let (talk, running) = in_the_middle(&house, &waiting).await;
    talk.separate().await;
    waiting.go_on();
    running.await.expect("runs");
    assert_eq!(talk.checkpoints().await, []);
    assert!(jobs(&house, pb::JobState::Unspecified).await.is_empty(), "what is discarded does not come back");
    assert_eq!(talk.join(10).await, 0);
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1, "the separator is gone, the threshold is reached again");
    talk.verify().await;
}

#[tokio::test]
async fn a_conversation_deleted_during_a_checkpoint_leaves_nothing_behind() {
    let (house, waiting) = (House::start().await, Waiting::default());
    let (talk, running) = in_the_middle(&house, &waiting).await;
    talk.separate().await;
    talk.append("b").request_id("r").await;
    let ask = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    waiting.go_on();
    running.await.expect("runs");
    let mut db = house.db().await;
    let tables = "select format('select count(*) from %I where %I::text = $1', table_name, column_name)
        from information_schema.columns where table_schema = 'public' and column_name = 'conversation_id'";
    let scans: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut db).await.expect("lists tables");
    assert!(scans.len() >= 7, "{scans:?}");
    for scan in scans {
        let scan = sqlx::query_scalar(sqlx::AssertSqlSafe(scan.clone())).bind(&talk.id);
        let left: i64 = scan.fetch_one(&mut db).await.expect("counts");
        assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_writes_nothing() {
    let (house, slow) = (House::start().await, Waiting::default());
    let (talk, late) = in_the_middle(&house, &slow).await;
    assert_eq!(sql(&house, "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1").await, 1);
    house.worker().rescue().await;
    let [freed] = &jobs(&house, pb::JobState::Waiting).await[..] else { panic!("one job") };
    assert_eq!((freed.attempts, freed.last_error.as_str()), (1, "lease expired"), "a rescue keeps attempts");
    house.run_jobs_until_idle().await;
    let made = talk.checkpoints().await;
    assert_eq!(made.len(), 1);
    say(&talk, 1).await;
    slow.go_on();
    late.await.expect("ends");
    assert_eq!(talk.checkpoints().await, made, "the late result is discarded");
    talk.verify().await;
}

#[tokio::test]
async fn a_lease_that_another_worker_holds_again_is_not_mistaken_for_ours() {
    let (house, first, second) = (House::start().await, Waiting::default(), Waiting::default());
    let (talk, late) = in_the_middle(&house, &first).await;
    sql(&house, "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1").await;
    house.worker().rescue().await;
    let worker = house.worker_with(second.clone());
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    second.begun().await;
    first.go_on();
    late.await.expect("ends");
    assert_eq!(talk.checkpoints().await, [], "the row is leased, but not by the first worker");
    let [held] = &jobs(&house, pb::JobState::Running).await[..] else { panic!("one job") };
    assert_eq!(held.attempts, 2, "the second worker still holds it");
    second.go_on();
    running.await.expect("ends");
    assert_eq!(talk.checkpoints().await.len(), 1);
    talk.verify().await;
}

#[tokio::test]
async fn a_running_job_is_claimed_by_nobody_else() {
    let (house, waiting) = (House::start().await, Waiting::default());
    let (talk, running) = in_the_middle(&house, &waiting).await;
    assert_eq!(house.run_jobs_until_idle().await, 0);
    say(&talk, 1).await;
    let ask = pb::CompactRequest { conversation_id: talk.id.clone(), ..Default::default() };
    house.contexts().compact(ask).await.expect("asks");
    assert_eq!(house.run_jobs_until_idle().await, 1, "counting only");
    waiting.go_on();
    // The compaction that was asked for meanwhile runs after it.
    waiting.begun().await;
    waiting.go_on();
    running.await.expect("ends");
    let lasts: Vec<i64> = talk.checkpoints().await.iter().map(|checkpoint| checkpoint.last_message_id).collect();
    assert!(lasts.len() == 2 && lasts[0] > lasts[1], "{lasts:?}");
    talk.verify().await;
}

#[tokio::test]
async fn a_panic_fails_one_job_only_until_it_is_dead() {
    let (house, panicking) = (House::start().await, Panicking::default());
    house.failed_jobs_wait().await;
    let bad = cooling(&house).await;
    bad.turn(Panicking::WORD, "a long answer about nothing in particular, so that there is something to shorten").await;
    say(&bad, 4).await;
    let good = cooling(&house).await;
    say(&good, 5).await;
    let worker = house.worker_with(panicking.clone());
    for attempt in 1..=MAX_ATTEMPTS {
        worker.run_until_idle().await;
        if attempt < MAX_ATTEMPTS {
            let [job] = &jobs(&house, pb::JobState::Waiting).await[..] else { panic!("one job waits") };
            assert_eq!((job.attempts, job.last_error.as_str()), (i32::from(attempt), "the job panicked"));
            assert_eq!(sql(&house, "update ai_job set due_ts = now()").await, 1);
        }
    }
    assert_eq!(good.checkpoints().await.len(), 1, "the others go on");
    assert!(jobs(&house, pb::JobState::Waiting).await.is_empty());
    let [dead] = &jobs(&house, pb::JobState::Dead).await[..] else { panic!("one job is dead") };
    assert_eq!((dead.kind(), dead.conversation_id.as_str()), (pb::JobKind::Checkpoint, bad.id.as_str()));
    assert_eq!(dead.attempts, i32::from(MAX_ATTEMPTS));
    bad.context().await.assert_covers(10);
    let job = || pb::RequeueJobRequest {
        kind: pb::JobKind::Checkpoint.into(),
        conversation_id: bad.id.clone(),
        request_id: String::new(),
    };
    let requeued = house.operators().requeue_job(job()).await.expect("requeues").into_inner();
    assert_eq!((requeued.state(), requeued.attempts), (pb::JobState::Waiting, 0));
    house.run_jobs_until_idle().await;
    assert_eq!(bad.checkpoints().await.len(), 1, "another summariser can do it");
    let again = house.operators().requeue_job(job()).await.expect_err("there is no such job now");
    assert_eq!(refusal(&again).reason, "JOB_NOT_FOUND");
}

#[tokio::test]
async fn a_discarded_job_stays_away_until_there_is_new_work() {
    let (house, panicking) = (House::start().await, Panicking::default());
    house.failed_jobs_wait().await;
    let talk = cooling(&house).await;
    talk.turn(Panicking::WORD, "a long answer about nothing in particular, so that there is something to shorten")
        .await;
    say(&talk, 4).await;
    let worker = house.worker_with(panicking.clone());
    worker.run_until_idle().await;
    sqlx::query("update ai_job set attempts = $1, due_ts = now()")
        .bind(MAX_ATTEMPTS - 1)
        .execute(&mut house.db().await)
        .await
        .expect("runs");
    worker.run_until_idle().await;
    assert_eq!(panicking.asked(), 2);
    assert_eq!(jobs(&house, pb::JobState::Dead).await.len(), 1);
    let job = pb::DiscardJobRequest {
        kind: pb::JobKind::Checkpoint.into(),
        conversation_id: talk.id.clone(),
        request_id: String::new(),
    };
    house.operators().discard_job(job.clone()).await.expect("discards");
    assert!(jobs(&house, pb::JobState::Unspecified).await.is_empty());
    assert_eq!(house.run_jobs_until_idle().await, 0);
    let again = house.operators().discard_job(job).await.expect_err("is gone");
    assert_eq!(refusal(&again).reason, "JOB_NOT_FOUND");
    say(&talk, 1).await;
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_job_that_kills_its_workers_dies_by_rescue() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("a").await;
    let lost = "update ai_job set state = 1, lease = gen_random_uuid(), lease_until_ts = now() - interval '1 s', attempts = attempts + 1";
    for _ in 1..MAX_ATTEMPTS {
        sql(&house, lost).await;
        house.worker().rescue().await;
        assert_eq!(jobs(&house, pb::JobState::Waiting).await.len(), 1);
    }
    sql(&house, lost).await;
    house.worker().rescue().await;
    let [dead] = &jobs(&house, pb::JobState::Dead).await[..] else { panic!("one job is dead") };
    assert_eq!((dead.attempts, dead.last_error.as_str()), (i32::from(MAX_ATTEMPTS), "lease expired"));
    assert_eq!(house.run_jobs_until_idle().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_runs_by_itself_finds_work_and_stops_when_asked() {
    let (house, waiting) = (House::start().await, Waiting::default());
    let stop = tokio_util::sync::CancellationToken::new();
    let worker = house.worker_with(waiting.clone());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let talk = cooling(&house).await;
    say(&talk, 5).await;
    waiting.begun().await;
    stop.cancel();
    waiting.go_on();
    running.await.expect("stops");
    assert_eq!(talk.checkpoints().await.len(), 1, "what was under way is finished");
    let row = sqlx::query("select count(*) filter (where state = 1) as held from ai_job");
    let held: i64 = row.fetch_one(&mut house.db().await).await.expect("asks").get("held");
    assert_eq!(held, 0);
    eventually("nobody holds a connection for a transaction", async || {
        let open =
            "select count(*) from pg_stat_activity where state like 'idle in tr%' and datname = current_database()";
        let open: i64 = sqlx::query_scalar(open).fetch_one(&mut house.db().await).await.expect("asks");
        open == 0
    })
    .await;
}
