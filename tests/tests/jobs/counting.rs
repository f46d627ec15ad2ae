//! Many conversations are counted in one transaction, and none of them can hold up or fail the others.

use std::collections::BTreeMap;

use anneal_core::{caller::TenantId, job::JobKind, message::MessageId, tokens::Tokens};
use anneal_store::{ClaimedJob, CountedMessages, StoreError};
use anneal_tests::{House, OwnPostgres, Talk, assistant, eventually, media, pb, user};
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Conversations with four short messages each.
async fn dirty(house: &House, count: usize) -> Vec<Talk<'_>> {
    let mut talks = Vec::with_capacity(count);
    for _ in 0..count {
        let talk = house.conversation().await;
        say(&talk).await;
        talks.push(talk);
    }
    talks
}

async fn say(talk: &Talk<'_>) {
    let (asked, answered) = (user("What is the capital of Norway?"), assistant("Oslo; it lies on a fjord."));
    talk.append_all(vec![asked.clone(), answered.clone(), asked, answered]).await;
}

async fn is_counted(talk: &Talk<'_>) -> bool {
    talk.conversation().await.token_total.expect("has a total").estimated_messages == 0
}

async fn all_counted(talks: &[Talk<'_>]) -> bool {
    for talk in talks {
        if !is_counted(talk).await {
            return false;
        }
    }
    true
}

async fn jobs(house: &House) -> Vec<pb::Job> {
    let ask = pb::ListJobsRequest { page_size: 500, ..Default::default() };
    house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs
}

async fn sql(db: &mut PgConnection, text: &'static str, talk: &Talk<'_>) -> u64 {
    let id: Uuid = talk.id.parse().expect("an id");
    sqlx::query(text).bind(id).execute(db).await.expect("runs").rows_affected()
}

/// Waits until some statement of the house waits for a lock.
async fn something_waits(house: &House) {
    let mut db = house.db().await;
    eventually("a statement waits for a lock", async || {
        let waits = "select exists (select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock')";
        sqlx::query_scalar(waits).fetch_one(&mut db).await.expect("asks")
    })
    .await;
}

/// Lets a worker count so many conversations. How many statements that took: claims, others; one of them is a commit.
async fn statements_of_a_count(postgres: &OwnPostgres, house: &House, conversations: usize) -> (usize, usize) {
    let before = postgres.statements().len();
    assert!(before > 0, "statements are logged");
    assert_eq!(house.run_jobs_until_idle().await, conversations);
    let ran = postgres.statements().split_off(before);
    let (claims, ran): (Vec<_>, Vec<_>) = ran
        .into_iter()
        .map(|statement| statement.to_lowercase())
        .filter(|statement| ["ai_", "begin", "commit", "rollback"].iter().any(|word| statement.contains(word)))
        .partition(|statement| statement.contains("claims up to"));
    println!("{conversations} conversations: {} claims, {} other statements", claims.len(), ran.len());
    assert_eq!(ran.iter().filter(|statement| statement.contains("commit")).count(), 1);
    (claims.len(), ran.len())
}

#[tokio::test]
async fn sixty_four_conversations_are_counted_in_one_transaction() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url).await.expect("connects");
    // Connections made after this log every statement that they run.
    sqlx::raw_sql("alter database anneal set log_statement = 'all'").execute(&mut db).await.expect("logs");
    let house = House::at(&postgres.url).await;
    let talks = dirty(&house, 64).await;
    // Read, begin, lock, counts, tails and how long it is quiet, end of the jobs, commit; claims of three kinds, twice.
    assert_eq!(statements_of_a_count(&postgres, &house, 64).await, (6, 8));
    for talk in &talks {
        talk.append("one more").await;
    }
    // They are quiet: no tails.
    assert_eq!(statements_of_a_count(&postgres, &house, 64).await, (6, 6));
    assert!(all_counted(&talks).await && jobs(&house).await.is_empty());
    for talk in &talks {
        talk.verify().await;
    }
}

#[tokio::test]
async fn a_lease_lost_in_a_batch_loses_that_job_alone() {
    let house = House::start().await;
    let talks = dirty(&house, 8).await;
    let (mut slow, mut thief) = (house.db().await, house.db().await);
    let mut held = slow.begin().await.expect("begins");
    assert_eq!(sql(&mut held, "select from ai_message where conversation_id = $1 for update", &talks[0]).await, 4);
    let worker = house.worker();
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    // The batch has locked all its conversations, and waits for a message.
    something_waits(&house).await;
    let steal = "update ai_job set lease = gen_random_uuid() where conversation_id = $1 and state = 1";
    assert_eq!(sql(&mut thief, steal, &talks[5]).await, 1);
    held.rollback().await.expect("lets go");
    assert_eq!(running.await.expect("runs"), 8);
    for (place, talk) in talks.iter().enumerate() {
        assert_eq!(is_counted(talk).await, place != 5, "conversation {place}");
        talk.verify().await;
    }
    let [left] = &jobs(&house).await[..] else { panic!("one job") };
    assert_eq!((left.conversation_id.as_str(), left.state()), (talks[5].id.as_str(), pb::JobState::Running));
    let counted = "select count(*) from ai_message where token_count is not null and conversation_id = $1";
    let id: Uuid = talks[5].id.parse().expect("an id");
    let counted: i64 = sqlx::query_scalar(counted).bind(id).fetch_one(&mut thief).await.expect("asks");
    assert_eq!(counted, 0, "its counts are not there either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_that_a_transaction_holds_does_not_delay_the_others() {
    let house = House::start().await;
    let talks = dirty(&house, 8).await;
    let mut slow = house.db().await;
    let mut held = slow.begin().await.expect("begins");
    assert_eq!(sql(&mut held, "select from ai_conversation where conversation_id = $1 for update", &talks[3]).await, 1);
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (house.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("the others are counted", async || all_counted(&talks[..3]).await && all_counted(&talks[4..]).await)
        .await;
    for talk in talks.iter().filter(|talk| talk.id != talks[3].id) {
        say(talk).await;
    }
    eventually("they are counted again", async || all_counted(&talks[..3]).await && all_counted(&talks[4..]).await)
        .await;
    assert!(!is_counted(&talks[3]).await, "it is held all the time");
    held.rollback().await.expect("lets go");
    eventually("it is counted as well", async || is_counted(&talks[3]).await).await;
    stop.cancel();
    working.await.expect("stops");
    assert!(jobs(&house).await.is_empty());
}

#[tokio::test]
async fn a_conversation_deleted_while_it_is_counted_fails_nothing() {
    let house = House::start().await;
    let talks = dirty(&house, 8).await;
    let mut slow = house.db().await;
    let mut held = slow.begin().await.expect("begins");
    assert_eq!(sql(&mut held, "select from ai_conversation where conversation_id = $1 for update", &talks[3]).await, 1);
    let worker = house.worker();
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    // The others are done, this one is waited for.
    something_waits(&house).await;
    for delete in [
        "delete from ai_job where conversation_id = $1",
        "delete from ai_message where conversation_id = $1",
        "delete from ai_conversation where conversation_id = $1",
    ] {
        assert!(sql(&mut held, delete, &talks[3]).await > 0);
    }
    held.commit().await.expect("deletes");
    assert_eq!(running.await.expect("runs"), 8);
    assert!(all_counted(&talks[..3]).await && all_counted(&talks[4..]).await);
    assert!(jobs(&house).await.is_empty(), "no job is left, waiting or dead");
}

/// Claims the counting jobs of all conversations.
async fn claim(house: &House) -> Vec<ClaimedJob> {
    let nobody = TenantId(Uuid::nil());
    house.store.claim_jobs(JobKind::CountTokens, 100, 100, nobody, "by hand", &[]).await.expect("claims").jobs
}

#[tokio::test]
async fn a_batch_writes_what_is_there_and_nothing_of_what_is_gone_or_counted_already() {
    let house = House::start().await;
    let talks = dirty(&house, 4).await;
    let claimed = claim(&house).await;
    let job = |talk: &Talk<'_>| {
        let of_talk = claimed.iter().find(|job| job.conversation.0.to_string() == talk.id);
        of_talk.expect("is claimed").clone()
    };
    let claimed = [job(&talks[0]), job(&talks[1]), job(&talks[2]), job(&talks[3])];
    let ask = pb::DeleteConversationRequest { conversation_id: talks[1].id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let jobs: Vec<&ClaimedJob> = claimed.iter().collect();
    let read = house.store.uncounted_messages(&jobs).await.expect("reads");
    assert_eq!((read.len(), read.contains_key(&claimed[1].conversation)), (3, false));
    say(&talks[2]).await;
    let counts: Vec<_> = (1..=4).map(|id| (MessageId(id), Tokens::new(10))).collect();
    let batch = |counted: [i64; 4]| -> Vec<CountedMessages<'_>> {
        let counted = claimed.iter().zip(counted);
        counted.map(|(job, mark)| CountedMessages { job, counted: MessageId(mark), counts: counts.clone() }).collect()
    };
    // The fourth was counted up to another message than its job has read.
    let recorded = house.store.record_counts(&batch([0, 0, 0, 2])).await.expect("records");
    let finished: Vec<_> = recorded.iter().map(|one| one.as_ref().map(|one| format!("{:?}", one.finished))).collect();
    let expected = [Some("Done"), None, Some("Again"), Some("Again")].map(|one| one.map(str::to_owned));
    assert_eq!(finished, expected);
    let total = async |talk: &Talk<'_>| talk.conversation().await.token_total.expect("has a total");
    assert_eq!((total(&talks[0]).await.tokens, total(&talks[0]).await.estimated_messages), (40, 0));
    assert_eq!(total(&talks[2]).await.estimated_messages, 4);
    assert_eq!(total(&talks[3]).await.estimated_messages, 4, "nothing of it was written");
    let again = house.store.record_counts(&batch([4, 0, 4, 2])).await;
    assert!(matches!(again, Err(StoreError::LeaseLost)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_messages_do_not_delay_small_ones() {
    let house = House::start().await;
    let hostile = format!("{}+", "-".repeat(1_000)).repeat(300);
    let mut slow = Vec::new();
    // More than there are threads to count them.
    for _ in 0..16 {
        let talk = house.conversation().await;
        talk.append(&hostile).await;
        slow.push(talk);
    }
    let talks = dirty(&house, 8).await;
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (house.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    eventually("the small ones are counted", async || all_counted(&talks).await).await;
    for talk in &talks {
        say(talk).await;
    }
    eventually("they are counted again", async || all_counted(&talks).await).await;
    assert!(!all_counted(&slow).await, "the hostile ones take longer");
    eventually("the hostile ones are counted in the end", async || all_counted(&slow).await).await;
    stop.cancel();
    working.await.expect("stops");
}

#[tokio::test]
async fn media_kept_as_data_do_not_swell_a_batch() {
    let house = House::start().await;
    let talks = dirty(&house, 2).await;
    let picture = house.conversation().await;
    // No text at all, and incompressible.
    let noise: Vec<u8> = (0..1_000_000_u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let data: String = noise.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    picture.append_all(vec![media(&format!("data:image/png;base64,{data}"))]).await;
    let jobs = claim(&house).await;
    assert_eq!(jobs.len(), 3);
    let read = house.store.uncounted_messages(&jobs.iter().collect::<Vec<_>>()).await.expect("reads");
    let counted_among_others = |talk: &Talk<'_>| read.keys().any(|id| id.0.to_string() == talk.id);
    assert!(talks.iter().all(counted_among_others) && !counted_among_others(&picture));
}

#[tokio::test]
async fn a_message_that_cannot_be_read_fails_its_own_job() {
    let house = House::start().await;
    let talks = dirty(&house, 8).await;
    let spoil =
        "update ai_message set content = '[{\"type\":\"unheard of\"}]' where conversation_id = $1 and message_id = 2";
    assert_eq!(sql(&mut house.db().await, spoil, &talks[6]).await, 1);
    house.run_jobs_until_idle().await;
    assert!(all_counted(&talks[..6]).await && is_counted(&talks[7]).await);
    let [left] = &jobs(&house).await[..] else { panic!("one job") };
    assert_eq!((left.conversation_id.as_str(), left.state()), (talks[6].id.as_str(), pb::JobState::Waiting));
    assert!(left.attempts >= 1 && left.last_error.contains("cannot be read"), "{left:?}");
}

#[tokio::test]
async fn a_batch_causes_the_jobs_that_its_conversations_call_for() {
    let house = House::start().await;
    let mut talks = Vec::new();
    for place in 0..12 {
        // Half of them reach their threshold.
        let most = if place % 2 == 0 { 8 } else { 9 };
        let policy = pb::Policy { max_message_count: Some(most), keep_recent_turns: Some(1), ..Default::default() };
        let talk = house.conversation_under(policy).await;
        for n in 0..4 {
            let asked = format!("Question {n}: what is the capital of country number {n}, and how many live there?");
            talk.turn(&asked, &format!("The capital of country {n} is City-{n}; {n}00,000 people live there.")).await;
        }
        talks.push(talk);
    }
    let claimed = claim(&house).await;
    let store = &house.store;
    let read = store.uncounted_messages(&claimed.iter().collect::<Vec<_>>()).await.expect("reads");
    let batch: Vec<_> = claimed
        .iter()
        .map(|job| {
            let uncounted = &read[&job.conversation];
            let counts = uncounted.messages.iter().map(|(id, _, _)| (*id, Tokens::new(20))).collect();
            CountedMessages { job, counted: uncounted.counted, counts }
        })
        .collect();
    let recorded = store.record_counts(&batch).await.expect("records");
    let caused: BTreeMap<String, Vec<JobKind>> = claimed
        .iter()
        .zip(recorded)
        .map(|(job, committed)| (job.conversation.0.to_string(), committed.expect("is recorded").caused))
        .collect();
    let waiting: Vec<String> = jobs(&house).await.into_iter().map(|job| job.conversation_id).collect();
    for (place, talk) in talks.iter().enumerate() {
        let full = place % 2 == 0;
        assert_eq!(caused[&talk.id], if full { vec![JobKind::Checkpoint] } else { Vec::new() });
        assert_eq!(waiting.contains(&talk.id), full);
    }
    house.run_jobs_until_idle().await;
    for (place, talk) in talks.iter().enumerate() {
        assert_eq!(talk.checkpoints().await.len(), usize::from(place % 2 == 0));
        talk.verify().await;
    }
}

/// A small generator of numbers: the same seed gives the same test.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_equal_a_recount_after_random_batches() {
    let house = House::start().await;
    let mut numbers = Numbers(20_261_121);
    let mut talks = Vec::new();
    for _ in 0..24 {
        talks.push(house.conversation().await);
    }
    let stop = CancellationToken::new();
    // Two workers of their own pace, and rounds by hand in between.
    let working: Vec<_> = [house.worker(), house.worker()]
        .into_iter()
        .map(|worker| {
            tokio::spawn({
                let stop = stop.clone();
                async move { worker.run(stop).await }
            })
        })
        .collect();
    for _ in 0..400 {
        let talk = &talks[numbers.below(24) as usize];
        let words = ["fjord ", "zwölf ", "北京 ", "-----", "let x = 1;\n"];
        let messages = (0..=numbers.below(3)).map(|_| {
            let times = if numbers.below(40) == 0 { 9_000 } else { 1 + numbers.below(30) };
            user(&words[numbers.below(5) as usize].repeat(times as usize))
        });
        talk.append_all(messages.collect()).await;
        match numbers.below(30) {
            0 => drop(talk.separate().await),
            1 => drop(house.run_jobs_until_idle().await),
            _ => {}
        }
    }
    eventually("everything is counted", async || all_counted(&talks).await).await;
    stop.cancel();
    for worker in working {
        worker.await.expect("stops");
    }
    let mut db = house.db().await;
    for talk in &talks {
        talk.verify().await;
        let id: Uuid = talk.id.parse().expect("an id");
        let row = sqlx::query(
            "select c.token_total, (select sum(token_count)::bigint from ai_message where conversation_id = $1) as counts
             from ai_conversation as c where c.conversation_id = $1",
        );
        let row = row.bind(id).fetch_one(&mut db).await.expect("asks");
        assert_eq!(row.get::<i64, _>(0), row.get::<Option<i64>, _>(1).unwrap_or(0));
    }
}
