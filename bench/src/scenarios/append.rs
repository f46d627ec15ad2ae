//! Appends of one 400-byte message each, durable, with request ids, beside pgbench running the same append one per
//! transaction. Neither has a worker: what counting costs is in `jobs`.

use crate::{
    figures::{Figure, Figures, Target, median},
    house::House,
    latencies::Latencies,
    load::{Closed, Load, Open},
    pace::Pace,
    pgbench::Pgbench,
    scenarios::dead_model,
    talks::Talks,
};

/// Callers of the figure that has a target; each has its own conversation.
pub(super) const CALLERS: u64 = 256;
pub(super) const CONNECTIONS: usize = 4;
const FEWER_CALLERS: [u64; 3] = [1, 16, 64];
const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;
const FEWER_ROUNDS: usize = 3;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start_without_worker().await?;
    let pgbench = Pgbench::prepare(&house, pace).await?;
    let talks = Talks::start(&house, CALLERS, CONNECTIONS).await?;
    fastest(pace, 1.0, CALLERS, &talks).await?;
    let rate = rates(pace, &talks, pgbench.as_ref(), figures).await?;
    for callers in FEWER_CALLERS {
        fewer(pace, callers, &talks, figures).await?;
    }
    at_half(pace, rate / 2.0, &talks, pgbench.as_ref(), figures).await?;
    house.stop().await?;
    dead_model::measure(pace, figures).await
}

/// Appends of this many callers, as fast as they can.
pub(super) async fn fastest(pace: Pace, seconds: f64, callers: u64, talks: &Talks) -> anyhow::Result<Load> {
    let how = Closed { callers, warm_up: pace.seconds(0.5), time: pace.seconds(seconds) };
    how.run(talks.appends()).await?.clean()
}

/// Appends at a rate that no answer slows down.
pub(super) async fn steadily(pace: Pace, seconds: f64, rate: f64, talks: &Talks) -> anyhow::Result<Load> {
    let how = Open { rate, warm_up: pace.seconds(0.5), time: pace.seconds(seconds), in_flight: Open::ENOUGH };
    how.run(talks.appends()).await?.clean()
}

/// All callers as fast as they can, in turns with pgbench. Returns the median rate.
async fn rates(pace: Pace, talks: &Talks, pgbench: Option<&Pgbench>, figures: &mut Figures) -> anyhow::Result<f64> {
    let (mut loads, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        loads.push(fastest(pace, SECONDS, CALLERS, talks).await?);
        if let Some(pgbench) = pgbench {
            baseline.push(pgbench.rate(pace.seconds(SECONDS)).await?);
        }
    }
    let rates: Vec<f64> = loads.iter().map(Load::rate).collect();
    let mut figure = Figure::new("append", format!("{CALLERS} callers, one message each"), "messages/s", &rates);
    if let Some(pgbench) = pgbench {
        figure = figure.beside(format!("pgbench, {} clients", pgbench.clients()), &rates, &baseline);
    }
    figures.put(figure.target(Target::RatioAtLeast(1.5)));
    put_latencies(figures, &format!("{CALLERS} callers"), &loads);
    Ok(median(&rates))
}

async fn fewer(pace: Pace, callers: u64, talks: &Talks, figures: &mut Figures) -> anyhow::Result<()> {
    let mut loads = Vec::new();
    for _ in 0..pace.rounds(FEWER_ROUNDS) {
        loads.push(fastest(pace, 2.0, callers, talks).await?);
    }
    let name = if callers == 1 { "1 caller".into() } else { format!("{callers} callers") };
    figures.add("append", format!("{name}, one message each"), "messages/s", loads.iter().map(Load::rate));
    put_latencies(figures, &name, &loads);
    Ok(())
}

fn put_latencies(figures: &mut Figures, name: &str, loads: &[Load]) {
    figures.add("append", format!("{name}, p50"), "ms", loads.iter().map(|load| load.latencies.p50()));
    figures.add("append", format!("{name}, p99"), "ms", loads.iter().map(|load| load.latencies.p99()));
}

/// At half of what all callers reach, in turns with pgbench at the same rate; both by schedule.
async fn at_half(
    pace: Pace,
    rate: f64,
    talks: &Talks,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut loads, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        loads.push(steadily(pace, SECONDS, rate, talks).await?);
        if let Some(pgbench) = pgbench {
            baseline.push(pgbench.latencies(rate, pace.seconds(SECONDS)).await?);
        }
    }
    let tails: Vec<f64> = loads.iter().map(|load| load.latencies.p99()).collect();
    figures.add("append", "half of that rate, p50", "ms", loads.iter().map(|load| load.latencies.p50()));
    figures.put(Figure::new("append", "half of that rate, p99", "ms", &tails).target(Target::AtMost(25.0)));
    figures.curve("append", "half of that rate", loads.iter().map(|load| &load.latencies));
    let mut figure = Figure::new("append", "half of that rate, p99 beside pgbench's", "ms", &tails);
    if pgbench.is_some() {
        let theirs: Vec<f64> = baseline.iter().map(Latencies::p99).collect();
        figure = figure.beside("pgbench at that rate", &tails, &theirs);
        figures.curve("append", "pgbench at that rate", &baseline);
    }
    figures.put(figure.target(Target::RatioAtMost(2.0)));
    Ok(())
}
