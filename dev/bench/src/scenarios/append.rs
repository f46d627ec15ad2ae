//! Durable appends of one 400-byte message each, with request ids, compared with pgbench running
//! the same append once per transaction. No worker runs on either side; the cost of counting is
//! measured in `jobs`.

use crate::{
    conversations::Conversations,
    figures::{Figure, Figures, Target, median},
    latencies::Latencies,
    load::{ClosedLoop, Load, OpenLoop},
    pace::{Pace, alternate},
    pgbench::Pgbench,
    stack::BenchStack,
};

/// Number of callers of the closed-loop figure that has a target. Each caller has its own
/// conversation.
pub(super) const CALLERS: u64 = 256;
pub(super) const CONNECTIONS: usize = 4;
/// Numbers of callers of the figures without a target.
const FEWER_CALLERS: [u64; 3] = [1, 16, 64];
/// Rounds of the comparisons with pgbench. In each round, both sides run once.
const ROUNDS: usize = 5;
/// Seconds that each side is measured in a round.
const SECONDS: f64 = 3.0;
/// Seconds of load before the measurement.
pub(super) const WARM_UP: f64 = 0.5;
/// Runs for each number of `FEWER_CALLERS`.
const FEWER_ROUNDS: usize = 3;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let pgbench = Pgbench::prepare(&stack, pace).await?;
    let conversations = Conversations::create(&stack, CALLERS, CONNECTIONS).await?;
    // A warm-up, whose result is not used.
    run_closed_loop(pace, 1.0, CALLERS, &conversations).await?;
    let rates = measure_rates(pace, &conversations, pgbench.as_ref(), figures).await?;
    for callers in FEWER_CALLERS {
        measure_fewer_callers(pace, callers, &conversations, figures).await?;
    }
    measure_at_half_rate(
        pace,
        rates.server / 2.0,
        &conversations,
        pgbench.as_ref(),
        figures,
    )
    .await?;
    measure_at_half_of_pgbench(
        pace,
        rates.pgbench / 2.0,
        &conversations,
        pgbench.as_ref(),
        figures,
    )
    .await?;
    stack.stop().await
}

/// Appends with this many callers, as fast as they can.
pub(super) async fn run_closed_loop(
    pace: Pace,
    seconds: f64,
    callers: u64,
    conversations: &Conversations,
) -> anyhow::Result<Load> {
    let closed_loop = ClosedLoop {
        callers,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(seconds),
    };
    closed_loop
        .run(conversations.append_call())
        .await?
        .require_success()
}

/// Appends at a rate that does not depend on the answers.
pub(super) async fn run_open_loop(
    pace: Pace,
    seconds: f64,
    rate: f64,
    conversations: &Conversations,
) -> anyhow::Result<Load> {
    let open_loop = OpenLoop {
        rate,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(seconds),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    open_loop
        .run(conversations.append_call())
        .await?
        .require_success()
}

/// The two sides of a comparison, which run alternately.
enum Side<'a> {
    Server,
    Pgbench(&'a Pgbench),
}

/// The server and, if available, pgbench, in the order for this round.
fn sides(round: usize, pgbench: Option<&Pgbench>) -> impl Iterator<Item = Side<'_>> {
    alternate(round, [Some(Side::Server), pgbench.map(Side::Pgbench)])
        .into_iter()
        .flatten()
}

/// The median of the rates that each side reached at full speed, in messages per second.
struct Rates {
    server: f64,
    /// NaN without pgbench.
    pgbench: f64,
}

/// All callers append as fast as they can, in rounds that alternate with pgbench.
async fn measure_rates(
    pace: Pace,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<Rates> {
    let (mut loads, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for side in sides(round, pgbench) {
            match side {
                Side::Server => {
                    loads.push(run_closed_loop(pace, SECONDS, CALLERS, conversations).await?);
                }
                Side::Pgbench(pgbench) => baseline.push(pgbench.rate(pace.seconds(SECONDS)).await?),
            }
        }
    }
    let rates: Vec<f64> = loads.iter().map(Load::rate).collect();
    let mut figure = Figure::new(
        "append",
        format!("{CALLERS} callers, one message each"),
        "messages/s",
        &rates,
    );
    if let Some(pgbench) = pgbench {
        figure = figure.with_baseline(
            format!("pgbench, {} clients", pgbench.clients()),
            &rates,
            &baseline,
        );
    }
    figures.put(figure.with_target(Target::RatioAtLeast(1.5)));
    report_latencies(figures, &format!("{CALLERS} callers"), &loads);
    Ok(Rates {
        server: median(&rates),
        pgbench: median(&baseline),
    })
}

async fn measure_fewer_callers(
    pace: Pace,
    callers: u64,
    conversations: &Conversations,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut loads = Vec::new();
    for _ in 0..pace.rounds(FEWER_ROUNDS) {
        loads.push(run_closed_loop(pace, 2.0, callers, conversations).await?);
    }
    let name = if callers == 1 {
        "1 caller".into()
    } else {
        format!("{callers} callers")
    };
    figures.add(
        "append",
        format!("{name}, one message each"),
        "messages/s",
        loads.iter().map(Load::rate),
    );
    report_latencies(figures, &name, &loads);
    Ok(())
}

fn report_latencies(figures: &mut Figures, name: &str, loads: &[Load]) {
    figures.add(
        "append",
        format!("{name}, p50"),
        "ms",
        loads.iter().map(|load| load.latencies.p50()),
    );
    figures.add(
        "append",
        format!("{name}, p99"),
        "ms",
        loads.iter().map(|load| load.latencies.p99()),
    );
}

/// How late the generator of open loops was: the part of the latencies that is not caused by the
/// server.
pub(super) fn report_lateness(
    figures: &mut Figures,
    scenario: &'static str,
    name: &str,
    loads: &[Load],
) {
    let late = loads.iter().map(|load| load.lateness.p99());
    figures.add(
        scenario,
        format!("{name}, lateness of the generator, p99"),
        "ms",
        late,
    );
}

/// Open-loop runs, all at the same rate.
#[derive(Default)]
struct OpenLoopRuns {
    server: Vec<Load>,
    pgbench: Vec<Latencies>,
}

impl OpenLoopRuns {
    /// Runs at this rate, alternating with pgbench.
    async fn run(
        pace: Pace,
        rate: f64,
        conversations: &Conversations,
        pgbench: Option<&Pgbench>,
    ) -> anyhow::Result<Self> {
        let mut runs = Self::default();
        for round in 0..pace.rounds(ROUNDS) {
            for side in sides(round, pgbench) {
                match side {
                    Side::Server => runs
                        .server
                        .push(run_open_loop(pace, SECONDS, rate, conversations).await?),
                    Side::Pgbench(pgbench) => runs
                        .pgbench
                        .push(pgbench.latencies(rate, pace.seconds(SECONDS)).await?),
                }
            }
        }
        Ok(runs)
    }

    /// Adds the lateness of the generator, and the curves of both sides. Returns the server's 99th
    /// percentiles, compared with pgbench's if available.
    fn report(&self, rate_name: &str, figures: &mut Figures) -> Figure {
        let p99s: Vec<f64> = self
            .server
            .iter()
            .map(|load| load.latencies.p99())
            .collect();
        report_lateness(figures, "append", rate_name, &self.server);
        let latencies = self.server.iter().map(|load| &load.latencies);
        figures.add_curve("append", rate_name, latencies);
        let name = format!("{rate_name}, p99 beside pgbench's");
        let figure = Figure::new("append", name, "ms", &p99s);
        if self.pgbench.is_empty() {
            return figure;
        }
        figures.add_curve("append", format!("pgbench at {rate_name}"), &self.pgbench);
        let theirs: Vec<f64> = self.pgbench.iter().map(Latencies::p99).collect();
        figure.with_baseline("pgbench at that rate", &p99s, &theirs)
    }
}

/// Appends at half of the rate that all callers together reach. pgbench's result at the same rate
/// is printed, but has no influence on any verdict, because pgbench may be far from reaching that
/// rate.
async fn measure_at_half_rate(
    pace: Pace,
    rate: f64,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let runs = OpenLoopRuns::run(pace, rate, conversations, pgbench).await?;
    let p99s: Vec<f64> = runs
        .server
        .iter()
        .map(|load| load.latencies.p99())
        .collect();
    figures.add(
        "append",
        "half of that rate, p50",
        "ms",
        runs.server.iter().map(|load| load.latencies.p50()),
    );
    figures.put(
        Figure::new("append", "half of that rate, p99", "ms", &p99s)
            .with_target(Target::AtMost(25.0)),
    );
    let latency = runs.report("half of that rate", figures);
    figures.put(latency);
    Ok(())
}

/// Appends at half of pgbench's maximum rate, which both sides can reach. Without pgbench nothing
/// is measured, and the figure has no verdict.
async fn measure_at_half_of_pgbench(
    pace: Pace,
    rate: f64,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let runs = match pgbench {
        Some(_) => OpenLoopRuns::run(pace, rate, conversations, pgbench).await?,
        None => OpenLoopRuns::default(),
    };
    let latency = runs.report("half of pgbench's rate", figures);
    figures.put(latency.with_target(Target::RatioAtMost(2.0)));
    Ok(())
}
