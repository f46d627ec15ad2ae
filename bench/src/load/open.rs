//! Calls by a schedule that no answer slows down: what callers find who do not know of each other.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{runtime::Handle, sync::Semaphore};
use tonic::Status;

use super::{Load, tally::Tally};

/// Gaps shorter than this are not slept: several calls begin together instead.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
/// How long what is under way at the end may take: more than any deadline of the server.
const DRAIN: Duration = Duration::from_mins(2);

/// Calls at a rate, at random moments (the gaps of a Poisson process, as in pgbench).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    /// Calls per second.
    pub(crate) rate: f64,
    /// What comes first and is not measured.
    pub(crate) warm_up: Duration,
    /// How long it is measured.
    pub(crate) time: Duration,
    /// Most calls under way; those due meanwhile are not made, and counted.
    pub(crate) in_flight: u32,
}

impl Open {
    /// So many calls under way that a server which answers at all never has them.
    pub(crate) const ENOUGH: u32 = 20_000;

    /// Calls, and returns what became of the calls that were due within the measured time, whenever they came back.
    pub(crate) async fn run<C, F>(self, call: C) -> anyhow::Result<Load>
    where
        C: Fn(u64) -> F + Send + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (tally, room) = (Arc::new(Tally::new()), Arc::new(Semaphore::new(self.in_flight as usize)));
        let generator = Generator { tally: Arc::clone(&tally), room: Arc::clone(&room), runtime: Handle::current() };
        // A thread of its own: the runtime's timers tick in milliseconds.
        let offered_for = tokio::task::spawn_blocking(move || self.offer(&generator, call)).await?;
        let done = tokio::time::timeout(DRAIN, room.acquire_many(self.in_flight)).await;
        drop(done.context("calls were still under way two minutes after the last one began")??);
        Ok(tally.load(offered_for))
    }

    /// Begins every call when it is due, or as soon after as this thread gets to it. Returns how long that took within the
    /// measured part: longer than it was to where this thread does not keep up.
    fn offer<C, F>(self, generator: &Generator, call: C) -> Duration
    where
        C: Fn(u64) -> F,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let from = Instant::now() + self.warm_up;
        let until = from + self.time;
        let (mut due, mut not_offered, mut first) = (Instant::now(), 0, None);
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
                first.get_or_insert_with(Instant::now);
            }
            match Arc::clone(&generator.room).try_acquire_owned() {
                Ok(place) => generator.begin(number, measured.then_some(due), call(number), place),
                Err(_) => not_offered += u64::from(measured),
            }
        }
        generator.tally.not_offered(not_offered);
        first.map_or(self.time, |first| first.elapsed().max(self.time))
    }

    /// From one call to the next: exponentially distributed.
    fn gap(self) -> Duration {
        Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / self.rate)
    }
}

/// Where calls are begun and noted.
struct Generator {
    tally: Arc<Tally>,
    room: Arc<Semaphore>,
    runtime: Handle,
}

impl Generator {
    /// Begins a call; notes it when it was due in the measured time.
    fn begin<F>(&self, number: u64, due: Option<Instant>, call: F, place: tokio::sync::OwnedSemaphorePermit)
    where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (tally, begun) = (Arc::clone(&self.tally), Instant::now());
        self.runtime.spawn(async move {
            let outcome = call.await;
            if let Some(due) = due {
                tally.late(number, begun.saturating_duration_since(due));
                tally.note(number, outcome, due.elapsed(), begun.elapsed());
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(rate: f64, in_flight: u32) -> Open {
        Open { rate, warm_up: Duration::from_millis(50), time: Duration::from_millis(500), in_flight }
    }

    #[tokio::test]
    async fn slow_answers_do_not_slow_the_schedule_down() {
        let slow = |_| async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(())
        };
        let load = open(400.0, Open::ENOUGH).run(slow).await.unwrap().clean().unwrap();
        // 200 calls of 300 ms within half a second, give or take what chance does to their number.
        assert!((120..300).contains(&load.latencies.count()), "{}", load.latencies.count());
    }

    #[tokio::test]
    async fn what_finds_no_room_is_counted_and_never_begun() {
        let never_soon = |_| async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok(())
        };
        let load = open(400.0, 3).run(never_soon).await.unwrap();
        assert!(load.latencies.count() <= 3 && load.not_offered > 100, "{} offered", load.latencies.count());
        assert!(load.clean().is_err());
    }

    #[tokio::test]
    async fn a_call_that_the_generator_began_late_is_as_slow_as_that() {
        let holds_the_generator_up = |_| {
            thread::sleep(Duration::from_millis(50));
            async { Ok(()) }
        };
        let load = open(100.0, Open::ENOUGH).run(holds_the_generator_up).await.unwrap();
        assert!(load.latencies.p50() > 100.0, "{}", load.latencies.p50());
        assert!(load.lateness.p50() > 100.0, "{}", load.lateness.p50());
        assert!(load.rate() <= 20.0, "{} calls a second, of which each holds the generator up for 50 ms", load.rate());
    }
}
