//! Measures counting by a worker: how soon after an append's answer its tokens are counted, and
//! whether the worker keeps up with the appends. The server counts nothing (`append.count_bytes =
//! 0`): by default it counts such messages itself, before it stores them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_proto::v1 as pb;
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tonic::Status;

use crate::{
    backlog::{self, Sample, Trend, keeps_up},
    connection::Channel,
    conversations::{Conversations, StoredMessage},
    figures::{Figure, Figures, Target, median},
    latencies::Latencies,
    load::{Load, OpenLoop},
    pace::Pace,
    scenarios::append::{CALLERS, CONNECTIONS, WARM_UP, report_lateness, run_closed_loop},
    stack::BenchStack,
};

/// Counting reads a conversation's tail if a trigger may have been reached. The appends of a round
/// go to this many conversations, each with a new separator before the round, so that the tails
/// stay as short as with checkpoints.
const CONVERSATIONS: u64 = 8 * CALLERS;
/// Seconds of a round that measures the backlog.
const BACKLOG_SECONDS: f64 = 8.0;
const ROUNDS: usize = 5;
/// Seconds of a round that measures the delay of counts.
const SECONDS: f64 = 3.0;
/// Appends per second whose counts the benchmark waits for.
const PROBES_PER_SECOND: f64 = 20.0;
/// Polling interval for a message that is not counted yet: the resolution of the figure.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Settings by which workers count all messages.
const WORKERS_COUNT: &str = "[append]\ncount_bytes = 0\n";

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_with(WORKERS_COUNT).await?;
    let conversations = Conversations::create(&stack, CONVERSATIONS, CONNECTIONS).await?;
    // A warm-up, whose result is not used.
    run_closed_loop(pace, 1.0, CALLERS, &conversations).await?;
    let rate = measure_backlog(pace, &stack, &conversations, figures).await?;
    measure_count_delay(pace, &stack, &conversations, rate / 2.0, figures).await?;
    stack.stop().await
}

/// The backlog during one round of appends at full speed.
struct Round {
    /// Appends per second over the whole measured time.
    rate: f64,
    /// The trend in the second half of the round.
    trend: Trend,
    /// The backlog at the end, in messages.
    final_backlog: f64,
    /// Seconds from the end until the backlog was empty.
    seconds_to_empty: f64,
}

/// All callers append as fast as they can while the worker counts. Returns the median rate of
/// appends.
async fn measure_backlog(
    pace: Pace,
    stack: &BenchStack,
    conversations: &Conversations,
    figures: &mut Figures,
) -> anyhow::Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..pace.rounds(ROUNDS) {
        rounds.push(run_backlog_round(pace, stack, conversations).await?);
    }
    let of_each_round = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let (appended, counted) = (
        of_each_round(|round| round.trend.appended),
        of_each_round(|round| round.trend.counted),
    );
    let rates = of_each_round(|round| round.rate);
    figures.add(
        "jobs",
        format!("appended by {CALLERS} callers while the worker counts"),
        "messages/s",
        rates.clone(),
    );
    let figure = Figure::new("jobs", "counted in the second half", "messages/s", &counted)
        .with_baseline("appended in the second half", &counted, &appended);
    let keeps_up = figure.ratio.is_some_and(keeps_up);
    figures.put(figure.with_verdict("ratio ≥ 1.00", keeps_up));
    figures.add(
        "jobs",
        "backlog's growth in the second half",
        "messages/s",
        of_each_round(|round| round.trend.growth()),
    );
    figures.add(
        "jobs",
        "backlog at the end",
        "messages",
        of_each_round(|round| round.final_backlog),
    );
    figures.add(
        "jobs",
        "until it is empty",
        "s",
        of_each_round(|round| round.seconds_to_empty),
    );
    Ok(median(&rates))
}

async fn run_backlog_round(
    pace: Pace,
    stack: &BenchStack,
    conversations: &Conversations,
) -> anyhow::Result<Round> {
    let (database, half) = (stack.database()?, pace.seconds(BACKLOG_SECONDS) / 2);
    conversations.insert_separators().await?;
    stack.wait_for_counts(conversations.channel(0)).await?;
    let second_half = async {
        tokio::time::sleep(pace.seconds(WARM_UP) + half).await;
        backlog::take_samples(&database, half).await
    };
    let (load, samples) = tokio::join!(
        run_closed_loop(pace, BACKLOG_SECONDS, CALLERS, conversations),
        second_half
    );
    let (load, end) = (load?, Instant::now());
    let final_backlog = Sample::take(&database).await?.backlog();
    stack.wait_for_counts(conversations.channel(0)).await?;
    Ok(Round {
        rate: load.rate(),
        trend: Trend::of(&samples?),
        final_backlog,
        seconds_to_empty: end.elapsed().as_secs_f64(),
    })
}

/// Appends at `rate`, and measures the time from an append's answer until a reader of the message
/// sees its count.
async fn measure_count_delay(
    pace: Pace,
    stack: &BenchStack,
    conversations: &Conversations,
    rate: f64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut loads, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        conversations.insert_separators().await?;
        stack.wait_for_counts(conversations.channel(0)).await?;
        let (load, waited) = run_count_delay_round(pace, stack, conversations, rate).await?;
        loads.push(load);
        waits.push(waited);
    }
    let rate_name = "half of that rate";
    figures.add(
        "jobs",
        format!("{rate_name}, append p99 while the worker counts"),
        "ms",
        loads.iter().map(|load| load.latencies.p99()),
    );
    report_lateness(figures, "jobs", rate_name, &loads);
    figures.add(
        "jobs",
        format!("{rate_name}, answer to token count, p50"),
        "ms",
        waits.iter().map(Latencies::p50),
    );
    let p99s: Vec<f64> = waits.iter().map(Latencies::p99).collect();
    figures.put(
        Figure::new(
            "jobs",
            format!("{rate_name}, answer to token count, p99"),
            "ms",
            &p99s,
        )
        .with_target(Target::AtMost(500.0)),
    );
    figures.add_curve(
        "jobs",
        "append, while the worker counts",
        loads.iter().map(|load| &load.latencies),
    );
    figures.add_curve("jobs", "answer to token count", &waits);
    Ok(())
}

/// Runs one round. Returns the appends, and how long the counts of some of them took.
async fn run_count_delay_round(
    pace: Pace,
    stack: &BenchStack,
    conversations: &Conversations,
    rate: f64,
) -> anyhow::Result<(Load, Latencies)> {
    let probes = CountProbes::new(stack.channel().await?);
    let appends_per_probe = (rate / PROBES_PER_SECOND).max(1.0) as u64;
    let (conversations, load_probes) = (conversations.clone(), probes.clone());
    let open_loop = OpenLoop {
        rate,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(SECONDS),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    let load = open_loop.run(move |number| {
        let (conversations, probes) = (conversations.clone(), load_probes.clone());
        async move {
            let stored = conversations.append(number).await?;
            if number % appends_per_probe == 0 {
                probes.wait_for(stored);
            }
            Ok(())
        }
    });
    let load = load.await?.require_success()?;
    Ok((load, probes.finish().await?))
}

/// Readers that wait for the counts of single messages, over a separate connection.
#[derive(Clone)]
struct CountProbes {
    channel: Channel,
    under_way: Arc<Mutex<JoinSet<Result<Duration, Status>>>>,
}

impl CountProbes {
    fn new(channel: Channel) -> Self {
        Self {
            channel,
            under_way: Arc::default(),
        }
    }

    /// Waits in the background for the count of a message that was just stored.
    fn wait_for(&self, message: StoredMessage) {
        let wait = measure_delay_of(self.channel.clone(), message, Instant::now());
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(wait);
    }

    /// Waits for all counts and returns how long they took.
    async fn finish(self) -> anyhow::Result<Latencies> {
        let mut under_way = std::mem::take(
            &mut *self
                .under_way
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let mut waited = Latencies::default();
        while let Some(done) = under_way.join_next().await {
            waited.record(done??);
        }
        Ok(waited)
    }
}

/// How long after `stored_at` the message's count is visible.
async fn measure_delay_of(
    channel: Channel,
    message: StoredMessage,
    stored_at: Instant,
) -> Result<Duration, Status> {
    let mut client = BenchStack::message_client(&channel);
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        polls.tick().await;
        // Asks for one byte of the text, because only the count is needed.
        let range = Some(pb::ByteRange {
            offset: 0,
            length: 1,
        });
        let ask = pb::GetMessageRequest {
            conversation_id: message.conversation_id.clone(),
            message_id: message.message_id,
            range,
            ..Default::default()
        };
        let tokens = client
            .get_message(ask)
            .await?
            .into_inner()
            .message
            .and_then(|message| message.tokens);
        if tokens.is_some_and(|tokens| !tokens.estimated) {
            return Ok(stored_at.elapsed());
        }
    }
}
