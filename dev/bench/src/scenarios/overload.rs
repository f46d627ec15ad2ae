//! Offers ten times as many appends as the server can handle, from callers that do not wait for each
//! other; also reports how many of them were actually started. The callers run at low priority, on
//! CPU time that the server and the database leave. A few additional calls come from a caller with
//! normal priority, which measures how long a refusal takes. The peak that goodput is compared with
//! has as many conversations, connections and calls in progress at the server as the overload. The
//! last figure compares the processor time of a refusal with that of an append.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::{
    conversations::Conversations,
    figures::{Figure, Figures, Target},
    latencies::Latencies,
    load::{Background, ClosedLoop, Load, OpenLoop},
    pace::Pace,
    processes::{self, Process, cpu_seconds, family_cpu_seconds},
    scenarios::append::{
        CALLERS, CONNECTIONS, MOST_CALLERS, WARM_UP, report_lateness, run_closed_loop,
    },
    stack::BenchStack,
};

/// Rounds. Each measures the peak first, then the overload.
const ROUNDS: usize = 3;
/// Seconds that the peak is measured in a round.
const PEAK_SECONDS: f64 = 5.0;
/// The offered rate, as a multiple of the peak.
const PEAK_MULTIPLE: f64 = 10.0;
/// How many seconds it is offered in a round.
const SECONDS: f64 = 10.0;
/// Maximum number of calls in progress at the callers: twice as many as the server admits. Also the
/// number of conversations.
const IN_FLIGHT: u32 = 2_048;
/// Enough that no call waits within its connection, which supports 128 concurrent calls.
const MANY_CONNECTIONS: usize = 32;
/// Calls per second of the separate caller.
const PROBES_PER_SECOND: f64 = 50.0;
/// Enough that waiting for a conversation's lock does not distort the figures.
const PROBE_CONVERSATIONS: u64 = 64;
/// At most this many checks show whether the server has recovered.
const RECOVERY_CHECKS: usize = 40;
/// Seconds of such a check.
const CHECK_SECONDS: f64 = 0.5;
/// Seconds of appends, and of refusals, whose processor time is measured.
const COST_SECONDS: f64 = 3.0;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let callers = Background::start()?;
    let probe_conversations = Conversations::create(&stack, PROBE_CONVERSATIONS, 1).await?;
    let conversations = callers
        .run(Conversations::create(
            &stack,
            IN_FLIGHT.into(),
            MANY_CONNECTIONS,
        ))
        .await?;
    let peak = async |seconds| {
        let load = run_closed_loop(pace, seconds, MOST_CALLERS, &conversations);
        anyhow::Ok(callers.run(load).await?.rate())
    };
    // Also the warm-up.
    let half_rate = peak(1.0).await? / 2.0;
    let half_loop = OpenLoop {
        rate: half_rate,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(4.0),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    // Failures are allowed: the scenario must continue when the server refuses calls due to a stall
    // of the disk.
    let load_before = callers
        .run(half_loop.run(conversations.append_call()))
        .await?;
    let (mut peaks, mut overloads, mut probes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        let rate = peak(PEAK_SECONDS).await?;
        let overload_loop = OpenLoop {
            rate: rate * PEAK_MULTIPLE,
            warm_up: pace.seconds(WARM_UP),
            time: pace.seconds(SECONDS),
            max_in_flight: IN_FLIGHT,
        };
        let probe_loop = OpenLoop {
            rate: PROBES_PER_SECOND,
            max_in_flight: OpenLoop::UNBOUNDED,
            ..overload_loop
        };
        let (overload, probe) = tokio::join!(
            callers.run(overload_loop.run(conversations.append_call())),
            probe_loop.run(probe_conversations.append_call())
        );
        peaks.push(rate);
        overloads.push(overload?);
        probes.push(probe?);
    }
    let p99_before = load_before.latencies.p99();
    let recovery_seconds = callers
        .run(measure_recovery(
            pace,
            &conversations,
            half_rate,
            p99_before,
        ))
        .await;
    report_overloads(figures, &overloads, &peaks);
    report_probes(figures, &probes);
    let memory = processes::memory(stack.server_id()?)?.peak;
    let name = "server's highest resident memory";
    let figure = Figure::new("overload", name, "MiB", &[memory]);
    figures.put(figure.with_target(Target::AtMost(512.0)));
    let name = "p99 at half of the peak, before";
    figures.add("overload", name, "ms", [p99_before]);
    let name = "until p99 at half of the peak is at most twice that";
    let figure = Figure::new("overload", name, "s", &[recovery_seconds]);
    figures.put(figure.with_target(Target::AtMost(10.0)));
    measure_cost(pace, &stack, figures).await?;
    stack.stop().await
}

/// Latencies of the calls that were refused because the server has too many.
fn refused(load: &Load) -> Latencies {
    let refusals = load.refusals.get(&Code::ResourceExhausted.into());
    refusals.map_or_else(Latencies::default, |refusals| refusals.latencies.clone())
}

/// Reports what the caller with normal priority measured.
fn report_probes(figures: &mut Figures, probes: &[Load]) {
    let refusals: Vec<Latencies> = probes.iter().map(refused).collect();
    let counts = refusals.iter().map(|refused| refused.count() as f64);
    figures.add("overload", "beside the load: refused", "calls", counts);
    let p50s = refusals.iter().map(Latencies::p50);
    figures.add("overload", "beside the load: refused, p50", "ms", p50s);
    let p99s: Vec<f64> = refusals.iter().map(Latencies::p99).collect();
    let figure = Figure::new("overload", "beside the load: refused, p99", "ms", &p99s);
    figures.put(figure.with_target(Target::AtMost(20.0)));
    figures.add_curve("overload", "refused beside the load", &refusals);
}

fn report_overloads(figures: &mut Figures, overloads: &[Load], peaks: &[f64]) {
    let seconds = |load: &Load| load.time.as_secs_f64();
    let each = |value: &dyn Fn(&Load) -> f64| overloads.iter().map(value).collect::<Vec<f64>>();
    let begun = each(&Load::begun_rate);
    let not_offered = each(&|load| load.not_offered as f64 / seconds(load));
    let name = format!("peak, {MOST_CALLERS} callers, {IN_FLIGHT} conversations");
    figures.add("overload", name, "messages/s", peaks.iter().copied());
    let rounds = || begun.iter().zip(&not_offered).zip(peaks);
    let due = rounds().map(|((begun, not_offered), peak)| (begun + not_offered) / peak);
    figures.add("overload", "due", "times the peak", due);
    let of_peak = rounds().map(|((begun, _), peak)| begun / peak);
    figures.add("overload", "begun", "times the peak", of_peak);
    figures.add("overload", "calls begun", "calls/s", begun.iter().copied());
    let goodput = each(&Load::rate);
    figures.put(
        Figure::new("overload", "goodput meanwhile", "messages/s", &goodput)
            .with_baseline("peak", &goodput, peaks)
            .with_target(Target::RatioAtLeast(0.9)),
    );
    let name = "due but not offered: the generator had no room";
    figures.add("overload", name, "calls/s", not_offered.iter().copied());
    report_lateness(figures, "overload", "offered", overloads);
    let name = "answered, from when it was due, p99";
    figures.add("overload", name, "ms", each(&|load| load.latencies.p99()));
    let refusals: Vec<Latencies> = overloads.iter().map(refused).collect();
    let rates = each(&|load| refused(load).count() as f64 / seconds(load));
    let name = "refused with RESOURCE_EXHAUSTED";
    figures.add("overload", name, "calls/s", rates);
    let p99s = refusals.iter().map(Latencies::p99);
    figures.add("overload", "refused, p99", "ms", p99s);
    let without_retry_info = each(&|load| {
        let with_it = load.refusals.values().map(|calls| calls.with_retry_info);
        (load.refused() - with_it.sum::<u64>()) as f64
    });
    let most = without_retry_info.iter().copied().fold(0.0, f64::max);
    let figure = Figure::new("overload", "refused without RetryInfo", "calls", &[most]);
    figures.put(figure.with_target(Target::AtMost(0.0)));
    for load in overloads {
        for (code, calls) in &load.refusals {
            if *code != i32::from(Code::ResourceExhausted) {
                let name = format!("came back with {:?}", Code::from_i32(*code));
                figures.add("overload", name, "calls", [calls.latencies.count() as f64]);
            }
        }
    }
    let answered = overloads.iter().map(|load| &load.latencies);
    figures.add_curve("overload", "answered, from when it was due", answered);
    figures.add_curve("overload", "refused", &refusals);
}

/// Compares the processor time of a refusal with that of an append. A refusal takes time of the
/// server, an append also of PostgreSQL.
async fn measure_cost(pace: Pace, stack: &BenchStack, figures: &mut Figures) -> anyhow::Result<()> {
    let conversations = Conversations::create(stack, CALLERS, CONNECTIONS).await?;
    let refusing_server = Process::start_refusing_server(stack).await?;
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(refusing_server.channel().await?);
    }
    let refused_conversations = conversations.over(channels);
    // No warm-up, because all processor time is measured. The calls in progress at the end are not
    // counted: one of each caller.
    let closed_loop = ClosedLoop {
        callers: CALLERS,
        warm_up: Duration::ZERO,
        time: pace.seconds(COST_SECONDS),
    };
    let (server_id, refusing_id) = (stack.server_id()?, refusing_server.id()?);
    let postgres_id = stack.postgres_id()?;
    let (mut of_appends, mut of_refusals) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        let before = cpu_seconds(server_id)? + family_cpu_seconds(postgres_id)?;
        let load = closed_loop.run(conversations.append_call()).await?;
        let after = cpu_seconds(server_id)? + family_cpu_seconds(postgres_id)?;
        let calls = load.require_success()?.latencies.count();
        of_appends.push((after - before) * 1e6 / calls as f64);
        let before = cpu_seconds(refusing_id)?;
        let load = closed_loop.run(refused_conversations.append_call()).await?;
        let after = cpu_seconds(refusing_id)?;
        let calls = refused(&load).count();
        let expected = load.latencies.count() == 0 && load.refused() == calls;
        anyhow::ensure!(expected, "calls were not refused, or for another reason");
        of_refusals.push((after - before) * 1e6 / calls as f64);
    }
    refusing_server.stop().await?;
    let name = "processor time of a refusal";
    let figure = Figure::new("overload", name, "µs", &of_refusals);
    let figure = figure.with_baseline("of an append, with PostgreSQL's", &of_refusals, &of_appends);
    figures.put(figure.with_target(Target::RatioAtMost(0.1)));
    Ok(())
}

/// Appends at this rate until their 99th percentile is at most twice `p99_before`, in milliseconds.
/// Returns the seconds that this took, or infinity if it did not happen during the checks. A check
/// in which calls fail does not count as recovered.
async fn measure_recovery(
    pace: Pace,
    conversations: &Conversations,
    rate: f64,
    p99_before: f64,
) -> f64 {
    let load_ended = Instant::now();
    for _ in 0..RECOVERY_CHECKS {
        let check = OpenLoop {
            rate,
            warm_up: Duration::ZERO,
            time: pace.seconds(CHECK_SECONDS),
            max_in_flight: OpenLoop::UNBOUNDED,
        };
        let load = check
            .run(conversations.append_call())
            .await
            .and_then(Load::require_success);
        if load.is_ok_and(|load| load.latencies.p99() <= 2.0 * p99_before) {
            return load_ended.elapsed().as_secs_f64();
        }
    }
    f64::INFINITY
}
