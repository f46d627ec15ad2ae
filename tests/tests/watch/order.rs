//! However many append, and however often a reader leaves and comes back elsewhere: each event once, in order.

use anneal_core::job::JobKind;
use anneal_tests::{House, Talk, Watch, appended, eventually, pb, prose, user};
use futures::future::join_all;
use pb::conversation_event::Event;
use tokio_util::sync::CancellationToken;

const APPENDERS: usize = 8;
const APPENDS: usize = 20;

/// Numbers that look random and are the same in every run.
struct Chance(u64);

impl Chance {
    /// 0 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (most + 1)
    }
}

/// Appends one to three messages at a time, now and then a large one, half of the time through the other server.
async fn appender(houses: [&House; 2], id: &str, number: usize) -> usize {
    let mut chance = Chance(number as u64);
    let mut messages = 0;
    for round in 0..APPENDS {
        let talk = Talk { house: houses[chance.up_to(1) as usize], id: id.to_owned() };
        let mut said: Vec<_> = (0..=chance.up_to(2)).map(|place| user(&format!("{number} {round} {place}"))).collect();
        if chance.up_to(9) == 0 {
            said.push(user(&prose(number * 100 + round, 40)));
        }
        messages += said.len();
        talk.append_all(said).await;
    }
    messages
}

/// Reads until everything was told, leaving after each few events for one of the two servers: up to a dead job.
async fn reader(houses: [&House; 2], id: &str, seed: u64) -> Vec<Event> {
    let mut chance = Chance(seed);
    let mut talk = Talk { house: houses[0], id: id.to_owned() };
    let mut watch: Watch = talk.watch_after(0).await;
    let mut events = Vec::new();
    loop {
        for _ in 0..=chance.up_to(30) {
            let event = watch.next().await;
            if matches!(event, Event::JobDead(_)) {
                return events;
            }
            events.push(event);
        }
        talk.house = houses[chance.up_to(1) as usize];
        watch = talk.watch_from(&watch.position).await;
    }
}

/// What a conversation has in the end, beside its messages: summarised ones, boundaries of checkpoints.
async fn made(talk: &Talk<'_>) -> (Vec<i64>, Vec<i64>) {
    let summarised = talk.messages().await.into_iter().filter(|message| message.summary.is_some());
    let mut boundaries: Vec<i64> = talk.checkpoints().await.iter().map(|made| made.last_message_id).collect();
    boundaries.sort_unstable();
    (summarised.map(|message| message.message_id).collect(), boundaries)
}

fn assert_told_once(events: &[Event], messages: i64, (summarised, boundaries): &(Vec<i64>, Vec<i64>)) {
    assert_eq!(appended(events), (1..=messages).collect::<Vec<_>>(), "each message once, in order");
    let (mut newest, mut counted) = (0, 0);
    let (mut summaries, mut checkpoints) = (Vec::new(), Vec::new());
    for event in events {
        let concerned = match event {
            Event::MessageAppended(message) => {
                newest = message.message_id;
                continue;
            }
            Event::TokensCounted(now) => {
                assert!(now.through_message_id > counted, "counting goes on");
                counted = now.through_message_id;
                counted
            }
            Event::SummaryReady(ready) => {
                summaries.push(ready.message_id);
                ready.message_id
            }
            Event::CheckpointCreated(made) => {
                checkpoints.push(made.last_message_id);
                made.last_message_id
            }
            other => panic!("nothing else has happened: {other:?}"),
        };
        assert!(concerned <= newest, "{event:?} comes before message {concerned}");
    }
    assert_eq!(counted, messages - 1, "all but the last");
    assert!(checkpoints.is_sorted(), "checkpoints in the order in which they were made");
    summaries.sort_unstable();
    assert_eq!((&summaries, &checkpoints), (summarised, boundaries), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_comes_once_in_order_to_readers_who_leave_and_come_back_at_two_servers() {
    let house = House::start().await;
    let beside = house.beside().await;
    let houses = [&house, &beside];
    let policy = pb::Policy { large_message_threshold: Some(200), max_message_count: Some(40), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    let id = talk.id.as_str();
    let stop = CancellationToken::new();
    let (worker, until) = (house.worker(), stop.clone());
    let working = tokio::spawn(async move { worker.run(until).await });
    let work = async {
        let appended = join_all((0..APPENDERS).map(|number| appender(houses, id, number))).await;
        eventually("all jobs end", async || talk.jobs().await.is_empty()).await;
        stop.cancel();
        working.await.expect("the worker stops");
        talk.append("the end").await;
        talk.kill_job(JobKind::CountTokens).await;
        appended.into_iter().sum::<usize>() as i64 + 1
    };
    let readers = join_all((0..4).map(|seed| reader(houses, id, seed)));
    let (messages, told) = tokio::join!(work, readers);
    let made = made(&talk).await;
    assert!(!made.0.is_empty() && !made.1.is_empty(), "{made:?}");
    for events in told {
        assert_told_once(&events, messages, &made);
    }
    println!("{messages} messages, {} summaries, {} checkpoints", made.0.len(), made.1.len());
    talk.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_and_checkpoints_are_numbered_without_gaps() {
    let house = House::start().await;
    let policy = pb::Policy { large_message_threshold: Some(200), max_message_count: Some(20), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    for n in 0..5 {
        talk.append(&prose(n * 40, 40)).await;
        talk.append("short").await;
        talk.turns(6).await;
        house.run_jobs_until_idle().await;
    }
    let mut db = house.db().await;
    let summaries = "select summary_change_id from ai_message where summary_change_id is not null";
    let mut numbers: Vec<i64> = sqlx::query_scalar(summaries).fetch_all(&mut db).await.expect("reads");
    let checkpoints = "select change_id from ai_conversation_checkpoint";
    let checkpoints: Vec<i64> = sqlx::query_scalar(checkpoints).fetch_all(&mut db).await.expect("reads");
    assert!(!numbers.is_empty() && checkpoints.len() > 1, "{numbers:?} {checkpoints:?}");
    numbers.extend(checkpoints);
    numbers.sort_unstable();
    let last: i64 =
        sqlx::query_scalar("select change_id from ai_conversation").fetch_one(&mut db).await.expect("reads");
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
}
