//! Retention: a worker deletes 100,000 idle conversations. Appends at a constant rate beside it are
//! compared with appends beside a worker that deletes nothing, in rounds that alternate. What is
//! left is then deleted as fast as one worker can, without appends.

use std::time::{Duration, Instant};

use crate::{
    connection::Channel,
    conversations::{self, Conversations, dialogue, never_compacted},
    database::Database,
    figures::{Figure, Figures, Target},
    load::{Load, OpenLoop},
    pace::{Pace, alternate},
    processes::Process,
    scenarios::{
        append::{CALLERS, CONNECTIONS, WARM_UP, report_lateness},
        dead_model::COPY_CONVERSATION,
    },
    stack::BenchStack,
};

const ROUNDS: usize = 7;
/// Seconds of appends in a round.
const SECONDS: f64 = 10.0;
/// Appends per second: a small part of what two cores can do.
const APPENDS_PER_SECOND: f64 = 200.0;
/// Conversations without activity for longer than the setting `retention.idle_days` of the benchmark.
const IDLE_CONVERSATIONS: u64 = 100_000;
/// Messages of each of them.
const MESSAGES: usize = 4;
/// Settings of a worker that deletes conversations after 30 days, at the default rate.
const RETENTION: [&str; 2] = ["retention.idle_days=30", "retention.interval_seconds=1"];
/// The highest rate that a worker may have: more than it can delete.
const HIGHEST_RATE: &str = "retention.conversations_per_second=10000";
/// Number of conversations that are idle by these settings.
const COUNT_IDLE: &str =
    "select count(*) from ai_conversation where last_activity_ts < now() - interval '30 days'";
/// Pause between two counts of idle conversations.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest time in which a worker deletes no conversation although there are some.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let channel = stack.channel().await?;
    let database = stack.database()?;
    create_idle_conversations(&stack, &channel, pace.number(IDLE_CONVERSATIONS)).await?;
    let conversations = Conversations::create(&stack, CALLERS, CONNECTIONS).await?;
    // A warm-up, whose result is not used.
    append(pace, &conversations).await?;
    let (mut calm, mut beside, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for retention in alternate(round, [Retention::Off, Retention::On]) {
            match retention {
                Retention::Off => {
                    let worker = Process::start_worker(&stack).await?;
                    calm.push(append(pace, &conversations).await?);
                    worker.stop().await?;
                }
                Retention::On => {
                    let deletion = Deletion::begin(&stack, &database, &RETENTION).await?;
                    beside.push(append(pace, &conversations).await?);
                    rates.push(deletion.stop(&database).await?);
                }
            }
        }
    }
    report(&calm, &beside, figures);
    figures.add(
        "retention",
        "deleted beside these appends",
        "conversations/s",
        rates,
    );
    let rate = delete_all(&stack, &database).await?;
    let name = "deleted at the highest rate, without appends";
    figures.add("retention", name, "conversations/s", [rate]);
    stack.stop().await
}

/// Lets a worker delete all conversations that are still idle, as fast as it can. Returns how many
/// it deletes per second, from its start on.
async fn delete_all(stack: &BenchStack, database: &Database) -> anyhow::Result<f64> {
    let all = database.number(COUNT_IDLE).await?;
    let [idle_days, interval] = RETENTION;
    let worker = Process::start_worker_with(stack, &[idle_days, interval, HIGHEST_RATE]).await?;
    let (started, mut left) = (Instant::now(), all);
    while left > 0.0 {
        left = wait_for_fewer(database, left).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    worker.stop().await?;
    Ok(all / seconds)
}

/// Whether the worker of a round deletes idle conversations.
#[derive(Debug, Clone, Copy)]
enum Retention {
    Off,
    On,
}

/// Creates one conversation through gRPC and copies it. The copies were last active 60 days ago and
/// before, at intervals of a minute.
async fn create_idle_conversations(
    stack: &BenchStack,
    channel: &Channel,
    copies: u64,
) -> anyhow::Result<()> {
    let database = stack.database()?;
    let template = stack
        .create_conversation(channel, Some(never_compacted()))
        .await?;
    conversations::append(channel, &template, dialogue(MESSAGES)).await?;
    let number = copies.to_string();
    let values = [("template", template.as_str()), ("copies", number.as_str())];
    database.run_with(COPY_CONVERSATION, &values).await?;
    // The ids of the copies are as in `sql/copy_conversation.sql`.
    let sql = format!(
        "update ai_conversation as c
         set last_activity_ts = idle.since, listed_ts = idle.since
         from (
             select ('00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))::uuid as conversation_id,
                 now() - interval '60 days' - n * interval '1 minute' as since
             from generate_series(1, {copies}) as n
         ) as idle
         where c.conversation_id = idle.conversation_id;
         vacuum (analyze);
         checkpoint;"
    );
    database.run(&sql).await?;
    let idle = database.number(COUNT_IDLE).await?;
    anyhow::ensure!(
        (idle - copies as f64).abs() < 0.5,
        "{idle} conversations are idle, not {copies}"
    );
    Ok(())
}

/// Appends at the constant rate.
async fn append(pace: Pace, conversations: &Conversations) -> anyhow::Result<Load> {
    let open_loop = OpenLoop {
        rate: APPENDS_PER_SECOND,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(SECONDS),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    open_loop
        .run(conversations.append_call())
        .await?
        .require_success()
}

/// A worker that deletes idle conversations, which it has begun.
struct Deletion {
    worker: Process,
    /// Idle conversations at `since`.
    before: f64,
    since: Instant,
}

impl Deletion {
    /// Starts the worker, and waits until it has deleted some conversations.
    async fn begin(
        stack: &BenchStack,
        database: &Database,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let idle = database.number(COUNT_IDLE).await?;
        let worker = Process::start_worker_with(stack, settings).await?;
        Ok(Self {
            before: wait_for_fewer(database, idle).await?,
            since: Instant::now(),
            worker,
        })
    }

    /// Stops the worker. Returns the conversations that it has deleted per second.
    async fn stop(self, database: &Database) -> anyhow::Result<f64> {
        let left = database.number(COUNT_IDLE).await?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.worker.stop().await?;
        anyhow::ensure!(left < self.before, "no conversation was deleted meanwhile");
        Ok((self.before - left) / seconds)
    }
}

/// Waits until there are fewer idle conversations than this, and returns how many.
async fn wait_for_fewer(database: &Database, than: f64) -> anyhow::Result<f64> {
    let deadline = Instant::now() + LONGEST_PAUSE;
    loop {
        let left = database.number(COUNT_IDLE).await?;
        if left < than {
            return Ok(left);
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "{left} conversations are idle, and the worker deletes none of them"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Compares the appends beside the deletion with the others.
fn report(calm: &[Load], beside: &[Load], figures: &mut Figures) {
    let p99s =
        |loads: &[Load]| -> Vec<f64> { loads.iter().map(|load| load.latencies.p99()).collect() };
    let p50s =
        |loads: &[Load]| -> Vec<f64> { loads.iter().map(|load| load.latencies.p50()).collect() };
    let name = format!("{APPENDS_PER_SECOND} appends per second beside retention");
    figures.put(
        Figure::new("retention", format!("{name}, p50"), "ms", &p50s(beside)).with_baseline(
            "without retention",
            &p50s(beside),
            &p50s(calm),
        ),
    );
    figures.put(
        Figure::new("retention", format!("{name}, p99"), "ms", &p99s(beside))
            .with_baseline("without retention", &p99s(beside), &p99s(calm))
            .with_target(Target::RatioAtMost(1.1)),
    );
    report_lateness(figures, "retention", &name, beside);
    figures.add_curve(
        "retention",
        "append, beside retention",
        beside.iter().map(|load| &load.latencies),
    );
    figures.add_curve(
        "retention",
        "append, without retention",
        calm.iter().map(|load| &load.latencies),
    );
}
