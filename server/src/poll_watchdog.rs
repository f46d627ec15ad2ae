//! Measures how much processor time single polls take on an async thread. Each of these threads
//! serves many calls, so a long computation in one call delays the others. Polls longer than
//! [`MAX_POLL_TIME`] are counted and logged.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Method;
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::{truncated_text::TruncatedText, verbs::Rpc};

/// Processor time that one poll may take before it delays other calls noticeably. An unoptimized
/// build computes four to ten times as long, and a virtual machine whose host stops it for one
/// scheduling period counts these 100 ms, too.
const MAX_POLL_TIME: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 250 } else { 100 });

/// Greatest age of a reading of the processor time with which a poll begins. Reading it is a system
/// call, which takes longer than most polls; reading the clock is none.
const MAX_READING_AGE: Duration = Duration::from_millis(1);

thread_local! {
    /// This thread's processor time, and when it was read. None: not yet.
    static LAST_READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Measures the polls of one request or task.
#[derive(Debug, Clone)]
pub(crate) struct PollWatchdog {
    /// The RPC's name, the method of an HTTP request, or a task's name.
    name: &'static str,
    /// The request's URI. Its path is logged with a slow poll.
    uri: http::Uri,
}

impl PollWatchdog {
    /// For a request and its answer.
    pub(crate) fn for_request<B>(request: &http::Request<B>) -> Self {
        let http_method = || match *request.method() {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let name = Rpc::by_path(request.uri().path()).map_or_else(http_method, |rpc| rpc.name);
        Self {
            name,
            uri: request.uri().clone(),
        }
    }

    /// For a task without a request of its own, such as a turn or a watch.
    pub(crate) fn for_task(name: &'static str) -> Self {
        Self {
            name,
            uri: http::Uri::default(),
        }
    }

    /// Runs one poll and reports it if it is slow. Counts this thread's processor time only, so
    /// that a busy machine does not cause reports.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let processor_time_before = recent_processor_time(begun);
        let output = poll();
        // A poll has taken at most as much processor time as time.
        if begun.elapsed() > MAX_POLL_TIME {
            let held = processor_time().saturating_sub(processor_time_before);
            if held > MAX_POLL_TIME {
                self.report(held);
            }
        }
        output
    }

    /// Runs this future, and reports its slow polls.
    pub(crate) async fn watch<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        poll_fn(|context| self.poll(|| future.as_mut().poll(context))).await
    }

    #[cold]
    fn report(&self, held: Duration) {
        let held_ms = held.as_millis() as u64;
        metrics::histogram!("anneal_async_thread_held_seconds", "call" => self.name)
            .record(held.as_secs_f64());
        warn!(
            held_ms,
            call = self.name,
            path = TruncatedText::new(self.uri.path()).as_str(),
            "one poll of {} occupied an async thread for {held_ms} ms",
            self.name,
        );
    }
}

/// Processor time that this thread had used at most [`MAX_READING_AGE`] before `now`.
fn recent_processor_time(now: Instant) -> Duration {
    if let Some((read_at, time)) = LAST_READING.get()
        && now.saturating_duration_since(read_at) <= MAX_READING_AGE
    {
        return time;
    }
    let time = processor_time();
    LAST_READING.set(Some((now, time)));
    time
}

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A future whose polls are watched.
pub(crate) struct WatchedFuture<F> {
    future: Pin<Box<F>>,
    watchdog: PollWatchdog,
}

impl<F: Future> WatchedFuture<F> {
    pub(crate) fn new(watchdog: PollWatchdog, future: F) -> Self {
        Self {
            future: Box::pin(future),
            watchdog,
        }
    }
}

impl<F: Future> Future for WatchedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, watchdog } = &mut *self;
        watchdog.poll(|| future.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses processor time.
    fn compute_for(time: Duration) {
        let until = processor_time() + time;
        while processor_time() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_poll_begins_with_a_reading_that_misses_at_most_a_millisecond_of_earlier_polls() {
        let watchdog = PollWatchdog::for_task("test");
        watchdog.poll(|| compute_for(5 * MAX_READING_AGE));
        let before = processor_time();
        watchdog.poll(|| {
            let (_, reading) = LAST_READING.get().expect("the poll has begun");
            assert!(before.saturating_sub(reading) <= MAX_READING_AGE);
        });
        let (read_at, _) = LAST_READING.get().expect("polls have begun");
        let reading = recent_processor_time(read_at + MAX_READING_AGE);
        assert_eq!(
            LAST_READING.get(),
            Some((read_at, reading)),
            "a recent reading is used again"
        );
    }
}
