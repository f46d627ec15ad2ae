//! Offers ten times as many appends as the server can handle, for half a minute, from callers that
//! do not wait for each other; also reports how many of them were actually started. The callers run
//! at low priority, on CPU time that the server and the database leave. A few additional calls come
//! from a caller with normal priority, which measures how long a refusal takes.

use std::time::Instant;

use tonic::Code;

use crate::{
    conversations::Conversations,
    figures::{Figure, Figures, Target, median},
    load::{Background, Load, OpenLoop, Refusals},
    pace::Pace,
    processes,
    scenarios::append::{CALLERS, WARM_UP, report_lateness, run_closed_loop},
    stack::BenchStack,
};

/// Rounds that measure the server's peak: the median rate of appends when the callers append as
/// fast as they can.
const PEAK_ROUNDS: usize = 3;
/// The offered rate, as a multiple of the peak.
const PEAK_MULTIPLE: f64 = 10.0;
/// How many seconds it is offered.
const SECONDS: f64 = 30.0;
/// Maximum number of calls in progress: twice as many as the server accepts before it refuses.
const IN_FLIGHT: u32 = 2_048;
/// Enough that no call waits within its connection, which supports 128 concurrent calls.
const CONNECTIONS: usize = 32;
/// Calls per second of the separate caller.
const PROBES_PER_SECOND: f64 = 50.0;
/// Enough that waiting for a conversation's lock does not distort the figures.
const PROBE_CONVERSATIONS: u64 = 64;
/// At most this many checks show whether the server has recovered.
const RECOVERY_CHECKS: usize = 40;
/// Seconds of such a check.
const CHECK_SECONDS: f64 = 0.5;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let callers = Background::start()?;
    let probe_conversations = Conversations::create(&stack, PROBE_CONVERSATIONS, 1).await?;
    let conversations = callers
        .run(Conversations::create(&stack, CALLERS, CONNECTIONS))
        .await?;
    callers
        .run(run_closed_loop(pace, 1.0, CALLERS, &conversations))
        .await?;
    let mut peaks = Vec::new();
    for _ in 0..pace.rounds(PEAK_ROUNDS) {
        peaks.push(
            callers
                .run(run_closed_loop(pace, 3.0, CALLERS, &conversations))
                .await?
                .rate(),
        );
    }
    let peak = median(&peaks);
    figures.add(
        "overload",
        format!("peak, {CALLERS} callers"),
        "messages/s",
        peaks,
    );
    // Not `run_open_loop`, because the scenario must continue when the server refuses calls due to
    // a stall of the disk.
    let half_loop = OpenLoop {
        rate: peak / 2.0,
        warm_up: pace.seconds(WARM_UP),
        time: pace.seconds(4.0),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    let load_before = callers
        .run(half_loop.run(conversations.append_call()))
        .await?;
    let overload_loop = OpenLoop {
        rate: peak * PEAK_MULTIPLE,
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
    let recovery_seconds = callers
        .run(measure_recovery(
            pace,
            &conversations,
            peak / 2.0,
            load_before.latencies.p99(),
        ))
        .await;
    report_overload(figures, &overload?, peak);
    report_probe(figures, &probe?);
    figures.put(
        Figure::new(
            "overload",
            "server's highest resident memory",
            "MiB",
            &[processes::memory(stack.server_id()?)?.peak],
        )
        .with_target(Target::AtMost(512.0)),
    );
    figures.add(
        "overload",
        "p99 at half of the peak, before",
        "ms",
        [load_before.latencies.p99()],
    );
    figures.put(
        Figure::new(
            "overload",
            "until p99 at half of the peak is at most twice that",
            "s",
            &[recovery_seconds],
        )
        .with_target(Target::AtMost(10.0)),
    );
    stack.stop().await
}

/// Reports what the caller with normal priority measured.
fn report_probe(figures: &mut Figures, probe: &Load) {
    let none = Refusals::default();
    let refused = probe
        .refusals
        .get(&Code::ResourceExhausted.into())
        .unwrap_or(&none);
    figures.add(
        "overload",
        "beside the load: refused",
        "calls",
        [refused.latencies.count() as f64],
    );
    figures.add(
        "overload",
        "beside the load: refused, p50",
        "ms",
        [refused.latencies.p50()],
    );
    figures.put(
        Figure::new(
            "overload",
            "beside the load: refused, p99",
            "ms",
            &[refused.latencies.p99()],
        )
        .with_target(Target::AtMost(10.0)),
    );
    figures.add_curve("overload", "refused beside the load", [&refused.latencies]);
}

fn report_overload(figures: &mut Figures, overload: &Load, peak: f64) {
    let seconds = overload.time.as_secs_f64();
    let (due, begun) = (
        overload.begun_rate() + overload.not_offered as f64 / seconds,
        overload.begun_rate(),
    );
    figures.add("overload", "due", "times the peak", [due / peak]);
    figures.add("overload", "begun", "times the peak", [begun / peak]);
    figures.add("overload", "calls begun", "calls/s", [begun]);
    let goodput = [overload.rate()];
    figures.put(
        Figure::new("overload", "goodput meanwhile", "messages/s", &goodput)
            .with_baseline("peak", &goodput, &[peak])
            .with_target(Target::RatioAtLeast(0.8)),
    );
    figures.add(
        "overload",
        "due but not offered: the generator had no room",
        "calls/s",
        [overload.not_offered as f64 / seconds],
    );
    report_lateness(
        figures,
        "overload",
        "offered",
        std::slice::from_ref(overload),
    );
    figures.add(
        "overload",
        "answered, from when it was due, p99",
        "ms",
        [overload.latencies.p99()],
    );
    let none = Refusals::default();
    let refused = overload
        .refusals
        .get(&Code::ResourceExhausted.into())
        .unwrap_or(&none);
    figures.add(
        "overload",
        "refused with RESOURCE_EXHAUSTED",
        "calls/s",
        [refused.latencies.count() as f64 / seconds],
    );
    figures.add("overload", "refused, p99", "ms", [refused.latencies.p99()]);
    let without_retry_info = overload.refused()
        - overload
            .refusals
            .values()
            .map(|calls| calls.with_retry_info)
            .sum::<u64>();
    figures.put(
        Figure::new(
            "overload",
            "refused without RetryInfo",
            "calls",
            &[without_retry_info as f64],
        )
        .with_target(Target::AtMost(0.0)),
    );
    for (code, calls) in &overload.refusals {
        if *code != i32::from(Code::ResourceExhausted) {
            let name = format!("came back with {:?}", Code::from_i32(*code));
            figures.add("overload", name, "calls", [calls.latencies.count() as f64]);
        }
    }
    figures.add_curve(
        "overload",
        "answered, from when it was due",
        [&overload.latencies],
    );
    figures.add_curve("overload", "refused", [&refused.latencies]);
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
            warm_up: std::time::Duration::ZERO,
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
