//! Durable appends of one 400-byte message each, with request ids, compared with pgbench making
//! the bare append, in rounds that alternate. No worker runs, except in the comparisons that say
//! so. The server counts the messages, except in the comparison in which a worker counts them.

use std::time::Instant;

use crate::{
    conversations::Conversations,
    figures::{Figure, Figures, Target, median},
    latencies::Latencies,
    load::{ClosedLoop, Load, OpenLoop},
    pace::{Pace, alternate},
    pgbench::Pgbench,
    processes::Process,
    stack::BenchStack,
};

/// Number of callers of most closed loops. Each caller has its own conversation.
pub(super) const CALLERS: u64 = 256;
pub(super) const CONNECTIONS: usize = 4;
/// As many callers as a server admits at once, and their connections.
pub(super) const MOST_CALLERS: u64 = 1_024;
const MOST_CONNECTIONS: usize = 16;
/// Tenants that share the callers in one comparison, each over one connection.
const TENANTS: usize = 8;
/// Rounds of the comparisons that have a target. In each round, both sides run once.
const ROUNDS: usize = 5;
/// Rounds of the other comparisons.
const FEWER_ROUNDS: usize = 3;
/// Seconds that each side is measured in a round.
const SECONDS: f64 = 3.0;
/// Seconds of load before the measurement.
pub(super) const WARM_UP: f64 = 0.5;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let pgbench = Pgbench::prepare(&stack, pace).await?;
    let with_clients = |clients| pgbench.as_ref().map(|best| best.with_clients(clients));
    let (one_client, sixteen_clients) = (with_clients(1), with_clients(16));
    let pgbench = pgbench.as_ref();
    let conversations = Conversations::create(&stack, CALLERS, CONNECTIONS).await?;
    let more_conversations = Conversations::create(&stack, MOST_CALLERS, MOST_CONNECTIONS).await?;
    let of_tenants = create_conversations_of_tenants(&stack).await?;
    // A warm-up, whose result is not used.
    run_closed_loop(pace, 1.0, CALLERS, &conversations).await?;
    let all_callers = Shape {
        name: format!("{CALLERS} callers"),
        callers: CALLERS,
        conversations: &conversations,
        pgbench,
        target: Some(Target::RatioAtLeast(1.65)),
    };
    let rates = all_callers.measure(pace, figures).await?;
    let beside_worker = BesideWorker {
        name: format!("{CALLERS} callers beside a worker"),
        conversations: &conversations,
        target: Some(Target::RatioAtLeast(0.95)),
    };
    beside_worker.measure(pace, &stack, figures).await?;
    measure_worker_counting(pace, &stack, figures).await?;
    measure_one_caller(pace, &conversations, one_client.as_ref(), figures).await?;
    let shapes = [
        Shape {
            name: "16 callers".into(),
            callers: 16,
            pgbench: sixteen_clients.as_ref(),
            target: Some(Target::RatioAtLeast(0.9)),
            ..all_callers
        },
        Shape {
            name: "64 callers".into(),
            callers: 64,
            target: None,
            ..all_callers
        },
        Shape {
            name: format!("{MOST_CALLERS} callers"),
            callers: MOST_CALLERS,
            conversations: &more_conversations,
            target: None,
            ..all_callers
        },
        Shape {
            name: format!("{CALLERS} callers of {TENANTS} tenants"),
            conversations: &of_tenants,
            target: None,
            ..all_callers
        },
    ];
    for shape in shapes {
        shape.measure(pace, figures).await?;
    }
    measure_at_half_rate(pace, rates, &conversations, pgbench, figures).await?;
    measure_at_half_of_pgbench(pace, rates, &conversations, pgbench, figures).await?;
    stack.stop().await
}

/// Conversations of several tenants, as many of each.
async fn create_conversations_of_tenants(stack: &BenchStack) -> anyhow::Result<Conversations> {
    let mut channels = Vec::new();
    for number in 1..=TENANTS {
        let tenant = format!("tenant-{number}");
        channels.push(stack.channel_of_new_tenant(&tenant).await?);
    }
    Conversations::create_over(stack, CALLERS, channels).await
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
async fn run_open_loop(
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
#[derive(Debug, Clone, Copy)]
struct Rates {
    server: f64,
    /// NaN without pgbench.
    pgbench: f64,
}

/// A number of callers that append as fast as they can.
struct Shape<'a> {
    name: String,
    callers: u64,
    conversations: &'a Conversations,
    /// With the number of clients that these callers are compared with.
    pgbench: Option<&'a Pgbench>,
    target: Option<Target>,
}

impl Shape<'_> {
    /// Measures the rate, in rounds that alternate with pgbench, and the latencies.
    async fn measure(&self, pace: Pace, figures: &mut Figures) -> anyhow::Result<Rates> {
        let (mut loads, mut baseline) = (Vec::new(), Vec::new());
        let rounds = if self.target.is_some() {
            ROUNDS
        } else {
            FEWER_ROUNDS
        };
        for round in 0..pace.rounds(rounds) {
            for side in sides(round, self.pgbench) {
                match side {
                    Side::Server => loads.push(
                        run_closed_loop(pace, SECONDS, self.callers, self.conversations).await?,
                    ),
                    Side::Pgbench(pgbench) => {
                        baseline.push(pgbench.rate(pace.seconds(SECONDS)).await?);
                    }
                }
            }
        }
        let rates: Vec<f64> = loads.iter().map(Load::rate).collect();
        let name = format!("{}, one message each", self.name);
        let mut figure = Figure::new("append", name, "messages/s", &rates);
        if let Some(pgbench) = self.pgbench {
            figure = figure.with_baseline(pgbench.name(), &rates, &baseline);
        }
        if let Some(target) = self.target {
            figure = figure.with_target(target);
        }
        figures.put(figure);
        report_latencies(figures, &self.name, &loads);
        Ok(Rates {
            server: median(&rates),
            pgbench: median(&baseline),
        })
    }
}

/// All callers append beside a worker, compared with appends without one.
struct BesideWorker<'a> {
    name: String,
    conversations: &'a Conversations,
    target: Option<Target>,
}

impl BesideWorker<'_> {
    /// Measures rounds with a worker, which alternate with rounds without one.
    async fn measure(
        &self,
        pace: Pace,
        stack: &BenchStack,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let (mut alone, mut beside, mut seconds_to_empty) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..pace.rounds(ROUNDS) {
            for with_worker in alternate(round, [false, true]) {
                if with_worker {
                    let (load, seconds) =
                        run_beside_worker(pace, stack, self.conversations).await?;
                    beside.push(load.rate());
                    seconds_to_empty.push(seconds);
                } else {
                    let load = run_closed_loop(pace, SECONDS, CALLERS, self.conversations).await?;
                    alone.push(load.rate());
                }
            }
        }
        let figure = Figure::new("append", self.name.as_str(), "messages/s", &beside);
        let figure = figure.with_baseline("without a worker", &beside, &alone);
        figures.put(match self.target {
            Some(target) => figure.with_target(target),
            None => figure,
        });
        let name = format!("{}, until nothing waits", self.name);
        figures.add("append", name, "s", seconds_to_empty);
        Ok(())
    }
}

/// The same with a server that counts nothing: the worker counts every message. The conversations
/// are others, because the server that counts leaves messages after uncounted ones to workers.
async fn measure_worker_counting(
    pace: Pace,
    stack: &BenchStack,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let server = Process::start_server_without_counting(stack).await?;
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(server.channel().await?);
    }
    let conversations = Conversations::create_over(stack, CALLERS, channels).await?;
    let beside_worker = BesideWorker {
        name: format!("{CALLERS} callers beside a worker that counts all"),
        conversations: &conversations,
        target: None,
    };
    beside_worker.measure(pace, stack, figures).await?;
    server.stop().await
}

/// All callers append beside a worker, which has counted what waited before. Also returns the
/// seconds from their end until all is counted.
async fn run_beside_worker(
    pace: Pace,
    stack: &BenchStack,
    conversations: &Conversations,
) -> anyhow::Result<(Load, f64)> {
    let channel = conversations.channel(0);
    let worker = Process::start_worker(stack).await?;
    stack.wait_for_counts(channel).await?;
    let load = run_closed_loop(pace, SECONDS, CALLERS, conversations).await?;
    let end = Instant::now();
    stack.wait_for_counts(channel).await?;
    let seconds = end.elapsed().as_secs_f64();
    worker.stop().await?;
    Ok((load, seconds))
}

/// One caller. Its median latency is compared with that of pgbench with one client.
async fn measure_one_caller(
    pace: Pace,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut loads, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for side in sides(round, pgbench) {
            match side {
                Side::Server => {
                    loads.push(run_closed_loop(pace, SECONDS, 1, conversations).await?);
                }
                Side::Pgbench(pgbench) => {
                    let latencies = pgbench.latencies(None, pace.seconds(SECONDS)).await?;
                    baseline.push(latencies.p50());
                }
            }
        }
    }
    let rates = loads.iter().map(Load::rate);
    figures.add("append", "1 caller, one message each", "messages/s", rates);
    let p50s: Vec<f64> = loads.iter().map(|load| load.latencies.p50()).collect();
    let mut figure = Figure::new("append", "1 caller, p50", "ms", &p50s);
    if let Some(pgbench) = pgbench {
        figure = figure.with_baseline(pgbench.name(), &p50s, &baseline);
    }
    figures.put(figure.with_target(Target::RatioAtMost(2.5)));
    let p99s = loads.iter().map(|load| load.latencies.p99());
    figures.add("append", "1 caller, p99", "ms", p99s);
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
                        .push(pgbench.latencies(Some(rate), pace.seconds(SECONDS)).await?),
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

/// Appends at half of the rate that all callers together reach. pgbench's percentile at that rate
/// counts for the verdict only if pgbench can reach more than that rate.
async fn measure_at_half_rate(
    pace: Pace,
    rates: Rates,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let rate = rates.server / 2.0;
    let runs = OpenLoopRuns::run(pace, rate, conversations, pgbench).await?;
    figures.add(
        "append",
        "half of the rate of all callers, p50",
        "ms",
        runs.server.iter().map(|load| load.latencies.p50()),
    );
    let figure = runs.report("half of the rate of all callers", figures);
    let is_twice_pgbench = rate < rates.pgbench && figure.ratio.is_some_and(|ratio| ratio <= 2.0);
    let holds = figure.value <= 25.0 || is_twice_pgbench;
    figures.put(figure.with_verdict("≤ 25 or ratio ≤ 2", holds));
    Ok(())
}

/// Appends at half of pgbench's maximum rate, which both sides can reach. Without pgbench nothing
/// is measured, and the figure has no verdict.
async fn measure_at_half_of_pgbench(
    pace: Pace,
    rates: Rates,
    conversations: &Conversations,
    pgbench: Option<&Pgbench>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let rate = rates.pgbench / 2.0;
    let runs = match pgbench {
        Some(_) => OpenLoopRuns::run(pace, rate, conversations, pgbench).await?,
        None => OpenLoopRuns::default(),
    };
    let latency = runs.report("half of pgbench's rate", figures);
    figures.put(latency.with_target(Target::RatioAtMost(2.0)));
    Ok(())
}
