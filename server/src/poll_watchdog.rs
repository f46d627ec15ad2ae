//! Measures how much processor time single polls take on an async thread. Each of these threads
//! serves many calls, so a long computation in one call delays the others. Polls longer than
//! [`MAX_POLL_TIME`] are counted and logged.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Method;
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::{truncated_text::TruncatedText, verbs::Rpc};

/// Processor time that one poll may take before it delays other calls noticeably.
const MAX_POLL_TIME: Duration = Duration::from_millis(100);

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
        let begun = processor_time();
        let output = poll();
        let held = processor_time().saturating_sub(begun);
        if held > MAX_POLL_TIME {
            self.report(held);
        }
        output
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
