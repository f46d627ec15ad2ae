//! Counting: how soon after an append's answer its tokens are counted, and whether the worker keeps up with appends.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_proto::v1 as pb;
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tonic::{Status, transport::Channel};

use crate::{
    backlog::{self, Sample, Trend, keeps_up},
    figures::{Figure, Figures, Target, median},
    house::House,
    latencies::Latencies,
    load::{Load, Open},
    pace::Pace,
    scenarios::append::{CALLERS, CONNECTIONS, WARM_UP, fastest, put_lateness},
    talks::{Stored, Talks},
};

/// As many, and with a separator in each before each round, as keep tails as short as checkpoints would: what a count reads is
/// the tail.
const CONVERSATIONS: u64 = 8 * CALLERS;
const BACKLOG_SECONDS: f64 = 8.0;
const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;
/// Appends per second whose counts are waited for.
const PROBES_PER_SECOND: f64 = 20.0;
/// Between two looks at a message that is not counted yet: how exact the figure is.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start().await?;
    let talks = Talks::start(&house, CONVERSATIONS, CONNECTIONS).await?;
    fastest(pace, 1.0, CALLERS, &talks).await?;
    let rate = backlog(pace, &house, &talks, figures).await?;
    visible(pace, &house, &talks, rate / 2.0, figures).await?;
    house.stop().await
}

/// What one run of appends as fast as possible did to the backlog.
struct Round {
    /// Appends per second, all of the measured time.
    rate: f64,
    /// Of the second half.
    trend: Trend,
    /// At the end, in messages.
    left: f64,
    /// Seconds from the end until nothing was left.
    emptied: f64,
}

/// All callers as fast as they can while the worker counts. Returns the median rate of appends.
async fn backlog(pace: Pace, house: &House, talks: &Talks, figures: &mut Figures) -> anyhow::Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..pace.rounds(ROUNDS) {
        rounds.push(backlog_once(pace, house, talks).await?);
    }
    let of = |what: fn(&Round) -> f64| rounds.iter().map(what).collect::<Vec<f64>>();
    let (appended, counted) = (of(|round| round.trend.appended), of(|round| round.trend.counted));
    let rates = of(|round| round.rate);
    figures.add("jobs", format!("appended by {CALLERS} callers while the worker counts"), "messages/s", rates.clone());
    let figure = Figure::new("jobs", "counted in the second half", "messages/s", &counted).beside(
        "appended in the second half",
        &counted,
        &appended,
    );
    let keeps_up = figure.ratio.is_some_and(keeps_up);
    figures.put(figure.judged("ratio ≥ 1.00", keeps_up));
    figures.add("jobs", "backlog's growth in the second half", "messages/s", of(|round| round.trend.growth()));
    figures.add("jobs", "backlog at the end", "messages", of(|round| round.left));
    figures.add("jobs", "until it is empty", "s", of(|round| round.emptied));
    Ok(median(&rates))
}

async fn backlog_once(pace: Pace, house: &House, talks: &Talks) -> anyhow::Result<Round> {
    let (database, half) = (house.database()?, pace.seconds(BACKLOG_SECONDS) / 2);
    talks.separate().await?;
    house.counted(talks.channel(0)).await?;
    let second_half = async {
        tokio::time::sleep(pace.seconds(WARM_UP) + half).await;
        backlog::samples(&database, half).await
    };
    let (load, samples) = tokio::join!(fastest(pace, BACKLOG_SECONDS, CALLERS, talks), second_half);
    let (load, end) = (load?, Instant::now());
    let left = Sample::take(&database).await?.backlog();
    house.counted(talks.channel(0)).await?;
    Ok(Round { rate: load.rate(), trend: Trend::of(&samples?), left, emptied: end.elapsed().as_secs_f64() })
}

/// At half of that rate: from an append's answer until a reader of the message sees its count.
async fn visible(pace: Pace, house: &House, talks: &Talks, rate: f64, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut loads, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        talks.separate().await?;
        house.counted(talks.channel(0)).await?;
        let (load, waited) = visible_once(pace, house, talks, rate).await?;
        loads.push(load);
        waits.push(waited);
    }
    let at = "half of that rate";
    figures.add(
        "jobs",
        format!("{at}, append p99 while the worker counts"),
        "ms",
        loads.iter().map(|load| load.latencies.p99()),
    );
    put_lateness(figures, "jobs", at, &loads);
    figures.add("jobs", format!("{at}, answer to token count, p50"), "ms", waits.iter().map(Latencies::p50));
    let tails: Vec<f64> = waits.iter().map(Latencies::p99).collect();
    figures.put(
        Figure::new("jobs", format!("{at}, answer to token count, p99"), "ms", &tails).target(Target::AtMost(500.0)),
    );
    figures.curve("jobs", "append, while the worker counts", loads.iter().map(|load| &load.latencies));
    figures.curve("jobs", "answer to token count", &waits);
    Ok(())
}

/// One run: the appends, and how long the counts of some of them took.
async fn visible_once(pace: Pace, house: &House, talks: &Talks, rate: f64) -> anyhow::Result<(Load, Latencies)> {
    let probes = Probes::new(house.channel().await?);
    let every = (rate / PROBES_PER_SECOND).max(1.0) as u64;
    let (appended, looked_after) = (talks.clone(), probes.clone());
    let how = Open { rate, warm_up: pace.seconds(WARM_UP), time: pace.seconds(SECONDS), in_flight: Open::ENOUGH };
    let load = how.run(move |number| {
        let (talks, probes) = (appended.clone(), looked_after.clone());
        async move {
            let stored = talks.append(number).await?;
            if number % every == 0 {
                probes.wait_for(stored);
            }
            Ok(())
        }
    });
    let load = load.await?.clean()?;
    Ok((load, probes.finish().await?))
}

/// Readers that wait for counts of single messages, over a connection of their own.
#[derive(Clone)]
struct Probes {
    channel: Channel,
    under_way: Arc<Mutex<JoinSet<Result<Duration, Status>>>>,
}

impl Probes {
    fn new(channel: Channel) -> Self {
        Self { channel, under_way: Arc::default() }
    }

    /// Waits for the count of a message that was stored just now.
    fn wait_for(&self, message: Stored) {
        let look = counted_after(self.channel.clone(), message, Instant::now());
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).spawn(look);
    }

    /// How long all counts took.
    async fn finish(self) -> anyhow::Result<Latencies> {
        let mut under_way = std::mem::take(&mut *self.under_way.lock().unwrap_or_else(PoisonError::into_inner));
        let mut waited = Latencies::default();
        while let Some(done) = under_way.join_next().await {
            waited.record(done??);
        }
        Ok(waited)
    }
}

/// How long after `stored_at` the message has its count.
async fn counted_after(channel: Channel, message: Stored, stored_at: Instant) -> Result<Duration, Status> {
    let mut client = House::messages(&channel);
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // A range that is as good as empty: the count is wanted, not the text.
        let range = Some(pb::ByteRange { offset: 0, length: 1 });
        let ask = pb::GetMessageRequest {
            conversation_id: message.conversation_id.clone(),
            message_id: message.message_id,
            range,
        };
        let seen = client.get_message(ask).await?.into_inner().message.and_then(|message| message.tokens);
        if seen.is_some_and(|tokens| !tokens.estimated) {
            return Ok(stored_at.elapsed());
        }
    }
}
