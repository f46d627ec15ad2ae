//! Open-loop load: calls follow a schedule that does not depend on the answers, like calls from
//! many independent callers.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{runtime::Handle, sync::Semaphore};
use tonic::Status;

use super::{Load, tally::Tally};

/// The generator does not sleep for gaps shorter than this: calls then start together instead.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
/// How long to wait for the calls that are in progress at the end. This is longer than any deadline
/// of the server.
const DRAIN: Duration = Duration::from_mins(2);

/// Calls at a given rate, at random times (a Poisson process, as in pgbench).
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenLoop {
    /// Calls per second.
    pub(crate) rate: f64,
    /// Time before the measurement starts.
    pub(crate) warm_up: Duration,
    /// Duration of the measurement.
    pub(crate) time: Duration,
    /// Maximum number of calls in progress. A call that is due while so many are in progress is not
    /// made, only counted.
    pub(crate) max_in_flight: u32,
}

impl OpenLoop {
    /// A number of concurrent calls that is never reached as long as the server answers at all.
    pub(crate) const UNBOUNDED: u32 = 20_000;

    /// Runs the load and returns the results of all calls that were due within the measured time,
    /// no matter when they finished.
    pub(crate) async fn run<C, F>(self, call: C) -> anyhow::Result<Load>
    where
        C: Fn(u64) -> F + Send + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (tally, permits) = (
            Arc::new(Tally::new()),
            Arc::new(Semaphore::new(self.max_in_flight as usize)),
        );
        let generator = Generator {
            tally: Arc::clone(&tally),
            permits: Arc::clone(&permits),
            runtime: Handle::current(),
        };
        // A separate thread, because the runtime's timers only have a resolution of milliseconds.
        let offered_for = tokio::task::spawn_blocking(move || self.offer(&generator, call)).await?;
        let done = tokio::time::timeout(DRAIN, permits.acquire_many(self.max_in_flight)).await;
        drop(done.context("calls were still in progress two minutes after the last one began")??);
        Ok(tally.to_load(offered_for))
    }

    /// Starts every call when it is due, or as soon afterwards as this thread can. Returns how long
    /// it took to start the measured calls. This is longer than planned if the thread could not
    /// keep up.
    fn offer<C, F>(self, generator: &Generator, call: C) -> Duration
    where
        C: Fn(u64) -> F,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let from = Instant::now() + self.warm_up;
        let until = from + self.time;
        let (mut due, mut not_offered, mut first_begun) = (Instant::now(), 0, None);
        for number in 0.. {
            due += self.gap();
            if due >= until {
                break;
            }
            let early = due.saturating_duration_since(Instant::now());
            if early > SHORTEST_SLEEP {
                thread::sleep(early);
            }
            let measured = due >= from;
            if measured {
                first_begun.get_or_insert_with(Instant::now);
            }
            match Arc::clone(&generator.permits).try_acquire_owned() {
                Ok(permit) => {
                    generator.begin(number, measured.then_some(due), call(number), permit);
                }
                Err(_) => not_offered += u64::from(measured),
            }
        }
        generator.tally.record_not_offered(not_offered);
        first_begun.map_or(self.time, |begun| begun.elapsed().max(self.time))
    }

    /// The exponentially distributed time from one call to the next.
    fn gap(self) -> Duration {
        Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / self.rate)
    }
}

/// Starts calls and records their results.
struct Generator {
    tally: Arc<Tally>,
    permits: Arc<Semaphore>,
    runtime: Handle,
}

impl Generator {
    /// Starts a call. Records its result if the call was due within the measured time.
    fn begin<F>(
        &self,
        number: u64,
        due: Option<Instant>,
        call: F,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (tally, begun) = (Arc::clone(&self.tally), Instant::now());
        self.runtime.spawn(async move {
            let outcome = call.await;
            if let Some(due) = due {
                tally.record_lateness(number, begun.saturating_duration_since(due));
                tally.record(number, outcome, due.elapsed(), begun.elapsed());
            }
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rate: f64, max_in_flight: u32) -> OpenLoop {
        OpenLoop {
            rate,
            warm_up: Duration::from_millis(50),
            time: Duration::from_millis(500),
            max_in_flight,
        }
    }

    #[tokio::test]
    async fn slow_answers_do_not_slow_the_schedule_down() {
        let slow = |_| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(())
        };
        let load = open(400.0, OpenLoop::UNBOUNDED)
            .run(slow)
            .await
            .unwrap()
            .require_success()
            .unwrap();
        // 200 calls of 300 ms within half a second. The number of calls is random, so the bounds
        // are wide.
        assert!(
            (120..300).contains(&load.latencies.count()),
            "{}",
            load.latencies.count()
        );
    }

    #[tokio::test]
    async fn calls_over_the_limit_are_counted_but_not_started() {
        let slow = |_| async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok(())
        };
        let load = open(400.0, 3).run(slow).await.unwrap();
        assert!(
            load.latencies.count() <= 3 && load.not_offered > 100,
            "{} offered",
            load.latencies.count()
        );
        assert!(load.require_success().is_err());
    }

    #[tokio::test]
    async fn latency_includes_the_delay_of_the_generator() {
        let delays_the_generator = |_| {
            thread::sleep(Duration::from_millis(50));
            async { Ok(()) }
        };
        let load = open(100.0, OpenLoop::UNBOUNDED)
            .run(delays_the_generator)
            .await
            .unwrap();
        // The 50 calls of half a second take 2.5 s to start, so the median call starts a second
        // late.
        assert!(load.latencies.p50() > 100.0, "{}", load.latencies.p50());
        assert!(load.lateness.p50() > 100.0, "{}", load.lateness.p50());
        assert!(
            load.rate() <= 20.0,
            "{} calls a second, although each delays the generator by 50 ms",
            load.rate()
        );
    }
}
