//! Ten times what the server can do, due for half a minute from callers who do not wait for each other; and how many times it
//! were begun. The callers take what server and database leave of the cores; beside them a few calls come from one that does
//! not have to give way, and sees how long a refusal takes.

use std::time::Instant;

use tonic::Code;

use crate::{
    figures::{Figure, Figures, Target, median},
    house::House,
    load::{Background, Load, Open, Refusals},
    pace::Pace,
    processes,
    scenarios::append::{CALLERS, WARM_UP, fastest, put_lateness},
    talks::Talks,
};

const PEAK_ROUNDS: usize = 3;
const TIMES: f64 = 10.0;
const SECONDS: f64 = 30.0;
/// Calls under way at once, at most: twice what the server takes before it refuses.
const IN_FLIGHT: u32 = 2_048;
/// So that no call waits within its connection, which carries 128 at once.
const CONNECTIONS: usize = 32;
/// Calls per second of the caller beside the load.
const BESIDE: f64 = 50.0;
/// So many that what waits for one of them is not what is measured.
const BESIDE_CONVERSATIONS: u64 = 64;
/// Half-second looks at whether the server has recovered; the last one is given up.
const LOOKS: usize = 40;
const LOOK_SECONDS: f64 = 0.5;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start_without_worker().await?;
    let callers = Background::start()?;
    let beside = Talks::start(&house, BESIDE_CONVERSATIONS, 1).await?;
    let talks = callers.run(Talks::start(&house, CALLERS, CONNECTIONS)).await?;
    callers.run(fastest(pace, 1.0, CALLERS, &talks)).await?;
    let mut peaks = Vec::new();
    for _ in 0..pace.rounds(PEAK_ROUNDS) {
        peaks.push(callers.run(fastest(pace, 3.0, CALLERS, &talks)).await?.rate());
    }
    let peak = median(&peaks);
    figures.add("overload", format!("peak, {CALLERS} callers"), "messages/s", peaks);
    // Not by `steadily`: what a stall of the disk makes the server refuse is no reason to give up here.
    let calm =
        Open { rate: peak / 2.0, warm_up: pace.seconds(WARM_UP), time: pace.seconds(4.0), in_flight: Open::ENOUGH };
    let before = callers.run(calm.run(talks.appends())).await?;
    let how =
        Open { rate: peak * TIMES, warm_up: pace.seconds(WARM_UP), time: pace.seconds(SECONDS), in_flight: IN_FLIGHT };
    let now_and_then = Open { rate: BESIDE, in_flight: Open::ENOUGH, ..how };
    let (overload, beside) = tokio::join!(callers.run(how.run(talks.appends())), now_and_then.run(beside.appends()));
    let recovered = callers.run(recovery(pace, &talks, peak / 2.0, before.latencies.p99())).await;
    put(figures, &overload?, peak);
    put_beside(figures, &beside?);
    figures.put(
        Figure::new(
            "overload",
            "server's highest resident memory",
            "MiB",
            &[processes::memory(house.server_id()?)?.peak],
        )
        .target(Target::AtMost(512.0)),
    );
    figures.add("overload", "p99 at half of the peak, before", "ms", [before.latencies.p99()]);
    figures.put(
        Figure::new("overload", "until p99 at half of the peak is at most twice that", "s", &[recovered])
            .target(Target::AtMost(10.0)),
    );
    house.stop().await
}

/// What the caller found that did not have to give way.
fn put_beside(figures: &mut Figures, beside: &Load) {
    let none = Refusals::default();
    let refused = beside.refusals.get(&Code::ResourceExhausted.into()).unwrap_or(&none);
    figures.add("overload", "beside the load: refused", "calls", [refused.latencies.count() as f64]);
    figures.add("overload", "beside the load: refused, p50", "ms", [refused.latencies.p50()]);
    figures.put(
        Figure::new("overload", "beside the load: refused, p99", "ms", &[refused.latencies.p99()])
            .target(Target::AtMost(10.0)),
    );
    figures.curve("overload", "refused beside the load", [&refused.latencies]);
}

fn put(figures: &mut Figures, overload: &Load, peak: f64) {
    let seconds = overload.time.as_secs_f64();
    let (due, begun) = (overload.begun() + overload.not_offered as f64 / seconds, overload.begun());
    figures.add("overload", "due", "times the peak", [due / peak]);
    figures.add("overload", "begun", "times the peak", [begun / peak]);
    figures.add("overload", "calls begun", "calls/s", [begun]);
    let goodput = [overload.rate()];
    figures.put(
        Figure::new("overload", "goodput meanwhile", "messages/s", &goodput)
            .beside("peak", &goodput, &[peak])
            .target(Target::RatioAtLeast(0.8)),
    );
    figures.add(
        "overload",
        "due but not offered: the generator had no room",
        "calls/s",
        [overload.not_offered as f64 / seconds],
    );
    put_lateness(figures, "overload", "offered", std::slice::from_ref(overload));
    figures.add("overload", "answered, from when it was due, p99", "ms", [overload.latencies.p99()]);
    let none = Refusals::default();
    let overloaded = overload.refusals.get(&Code::ResourceExhausted.into()).unwrap_or(&none);
    let refused = overloaded.latencies.count();
    figures.add("overload", "refused with RESOURCE_EXHAUSTED", "calls/s", [refused as f64 / seconds]);
    figures.add("overload", "refused, p99", "ms", [overloaded.latencies.p99()]);
    let without = overload.refused() - overload.refusals.values().map(|calls| calls.with_retry_info).sum::<u64>();
    figures.put(
        Figure::new("overload", "refused without RetryInfo", "calls", &[without as f64]).target(Target::AtMost(0.0)),
    );
    for (code, calls) in &overload.refusals {
        if *code != i32::from(Code::ResourceExhausted) {
            let name = format!("came back with {:?}", Code::from_i32(*code));
            figures.add("overload", name, "calls", [calls.latencies.count() as f64]);
        }
    }
    figures.curve("overload", "answered, from when it was due", [&overload.latencies]);
    figures.curve("overload", "refused", [&overloaded.latencies]);
}

/// Seconds until appends at this rate are as fast as before again, within twice the 99th percentile; infinite when they
/// are not while it is looked. A look in which calls fail is not one of recovery.
async fn recovery(pace: Pace, talks: &Talks, rate: f64, before: f64) -> f64 {
    let over = Instant::now();
    for _ in 0..LOOKS {
        let look = Open {
            rate,
            warm_up: std::time::Duration::ZERO,
            time: pace.seconds(LOOK_SECONDS),
            in_flight: Open::ENOUGH,
        };
        let recovered = look.run(talks.appends()).await.and_then(Load::clean);
        if recovered.is_ok_and(|load| load.latencies.p99() <= 2.0 * before) {
            return over.elapsed().as_secs_f64();
        }
    }
    f64::INFINITY
}
