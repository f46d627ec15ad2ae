//! Appends of one 400-byte message each, durable, with request ids, beside pgbench running the same append one per
//! transaction. Neither has a worker: what counting costs is in `jobs`.

use crate::{
    figures::{Figure, Figures, Target, median},
    house::House,
    latencies::Latencies,
    load::{Closed, Load, Open},
    pace::{Pace, in_turns},
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
/// Seconds before a load that are not measured.
pub(super) const WARM_UP: f64 = 0.5;
const FEWER_ROUNDS: usize = 3;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start_without_worker().await?;
    let pgbench = Pgbench::prepare(&house, pace).await?;
    let talks = Talks::start(&house, CALLERS, CONNECTIONS).await?;
    fastest(pace, 1.0, CALLERS, &talks).await?;
    let reached = rates(pace, &talks, pgbench.as_ref(), figures).await?;
    for callers in FEWER_CALLERS {
        fewer(pace, callers, &talks, figures).await?;
    }
    at_half(pace, reached.server / 2.0, &talks, pgbench.as_ref(), figures).await?;
    at_half_of_pgbench(pace, reached.pgbench / 2.0, &talks, pgbench.as_ref(), figures).await?;
    house.stop().await?;
    dead_model::measure(pace, figures).await
}

/// Appends of this many callers, as fast as they can.
pub(super) async fn fastest(pace: Pace, seconds: f64, callers: u64, talks: &Talks) -> anyhow::Result<Load> {
    let how = Closed { callers, warm_up: pace.seconds(WARM_UP), time: pace.seconds(seconds) };
    how.run(talks.appends()).await?.clean()
}

/// Appends at a rate that no answer slows down.
pub(super) async fn steadily(pace: Pace, seconds: f64, rate: f64, talks: &Talks) -> anyhow::Result<Load> {
    let how = Open { rate, warm_up: pace.seconds(WARM_UP), time: pace.seconds(seconds), in_flight: Open::ENOUGH };
    how.run(talks.appends()).await?.clean()
}

/// Who appends in a run, of two that take turns.
enum Side<'a> {
    Server,
    Pgbench(&'a Pgbench),
}

/// The server and, where there is one, pgbench, in the order of this round.
fn sides(round: usize, pgbench: Option<&Pgbench>) -> impl Iterator<Item = Side<'_>> {
    in_turns(round, [Some(Side::Server), pgbench.map(Side::Pgbench)]).into_iter().flatten()
}

/// Median rates of the fastest that each side can.
struct Rates {
    server: f64,
    /// NaN without pgbench.
    pgbench: f64,
}

/// All callers as fast as they can, in turns with pgbench.
async fn rates(pace: Pace, talks: &Talks, pgbench: Option<&Pgbench>, figures: &mut Figures) -> anyhow::Result<Rates> {
    let (mut loads, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for side in sides(round, pgbench) {
            match side {
                Side::Server => loads.push(fastest(pace, SECONDS, CALLERS, talks).await?),
                Side::Pgbench(pgbench) => baseline.push(pgbench.rate(pace.seconds(SECONDS)).await?),
            }
        }
    }
    let rates: Vec<f64> = loads.iter().map(Load::rate).collect();
    let mut figure = Figure::new("append", format!("{CALLERS} callers, one message each"), "messages/s", &rates);
    if let Some(pgbench) = pgbench {
        figure = figure.beside(format!("pgbench, {} clients", pgbench.clients()), &rates, &baseline);
    }
    figures.put(figure.target(Target::RatioAtLeast(1.5)));
    put_latencies(figures, &format!("{CALLERS} callers"), &loads);
    Ok(Rates { server: median(&rates), pgbench: median(&baseline) })
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

/// How late the generator of open loops was: what of their latencies is not the server's.
pub(super) fn put_lateness(figures: &mut Figures, scenario: &'static str, name: &str, loads: &[Load]) {
    let late = loads.iter().map(|load| load.lateness.p99());
    figures.add(scenario, format!("{name}, lateness of the generator, p99"), "ms", late);
}

/// Runs by schedule, all at one rate.
#[derive(Default)]
struct Scheduled {
    server: Vec<Load>,
    pgbench: Vec<Latencies>,
}

impl Scheduled {
    /// At this rate, in turns with pgbench.
    async fn run(pace: Pace, rate: f64, talks: &Talks, pgbench: Option<&Pgbench>) -> anyhow::Result<Self> {
        let mut runs = Self::default();
        for round in 0..pace.rounds(ROUNDS) {
            for side in sides(round, pgbench) {
                match side {
                    Side::Server => runs.server.push(steadily(pace, SECONDS, rate, talks).await?),
                    Side::Pgbench(pgbench) => runs.pgbench.push(pgbench.latencies(rate, pace.seconds(SECONDS)).await?),
                }
            }
        }
        Ok(runs)
    }

    /// Adds how late the generator was; returns the server's 99th percentiles, beside pgbench's where there is one.
    fn put(&self, at: &str, figures: &mut Figures) -> Figure {
        let tails: Vec<f64> = self.server.iter().map(|load| load.latencies.p99()).collect();
        put_lateness(figures, "append", at, &self.server);
        figures.curve("append", at, self.server.iter().map(|load| &load.latencies));
        let figure = Figure::new("append", format!("{at}, p99 beside pgbench's"), "ms", &tails);
        if self.pgbench.is_empty() {
            return figure;
        }
        figures.curve("append", format!("pgbench at {at}"), &self.pgbench);
        let theirs: Vec<f64> = self.pgbench.iter().map(Latencies::p99).collect();
        figure.beside("pgbench at that rate", &tails, &theirs)
    }
}

/// At half of what all callers reach. What pgbench, which may be far from reaching that, does at the same rate is said, and
/// no verdict hangs on it.
async fn at_half(
    pace: Pace,
    rate: f64,
    talks: &Talks,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let runs = Scheduled::run(pace, rate, talks, pgbench).await?;
    let tails: Vec<f64> = runs.server.iter().map(|load| load.latencies.p99()).collect();
    figures.add("append", "half of that rate, p50", "ms", runs.server.iter().map(|load| load.latencies.p50()));
    figures.put(Figure::new("append", "half of that rate, p99", "ms", &tails).target(Target::AtMost(25.0)));
    let beside = runs.put("half of that rate", figures);
    figures.put(beside);
    Ok(())
}

/// At half of what pgbench reaches, which both can do. Without pgbench nobody knows what that is.
async fn at_half_of_pgbench(
    pace: Pace,
    rate: f64,
    talks: &Talks,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let runs = match pgbench {
        Some(_) => Scheduled::run(pace, rate, talks, pgbench).await?,
        None => Scheduled::default(),
    };
    let beside = runs.put("half of pgbench's rate", figures);
    figures.put(beside.target(Target::RatioAtMost(2.0)));
    Ok(())
}
