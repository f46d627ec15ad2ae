//! A watchdog: how long calls keep an async thread at work. Each of these threads serves many calls, so that whoever computes
//! on one keeps others waiting. What holds one for too long is counted and logged.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Method;
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::{brief::Brief, verbs::Rpc};

/// Processor time that one poll may take. Above it, one call delays others noticeably.
const MOST: Duration = Duration::from_millis(100);

/// Who is polled.
#[derive(Debug, Clone)]
pub(crate) struct Polled {
    /// The RPC's name, the method of an HTTP request, or a task's name.
    name: &'static str,
    /// For the log.
    uri: http::Uri,
}

impl Polled {
    /// A request and its answer.
    pub(crate) fn of<B>(request: &http::Request<B>) -> Self {
        let other = || match *request.method() {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let name = Rpc::at(request.uri().path()).map_or_else(other, |rpc| rpc.name);
        Self { name, uri: request.uri().clone() }
    }

    /// Work that is no call's own.
    pub(crate) fn task(name: &'static str) -> Self {
        Self { name, uri: http::Uri::default() }
    }

    /// Runs one poll. Only this thread's processor time counts, so that a busy machine is not blamed on a call.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> T) -> T {
        let begun = processor_time();
        let polled = poll();
        let held = processor_time().saturating_sub(begun);
        if held > MOST {
            self.report(held);
        }
        polled
    }

    #[cold]
    fn report(&self, held: Duration) {
        let held_ms = held.as_millis() as u64;
        metrics::histogram!("async_thread_held_seconds", "call" => self.name).record(held.as_secs_f64());
        warn!(
            held_ms,
            call = self.name,
            path = Brief::new(self.uri.path()).as_str(),
            "{} kept a thread that serves all calls at work for {held_ms} ms",
            self.name,
        );
    }
}

/// Processor time that this thread has taken.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A future whose polls are watched.
pub(crate) struct Watched<F> {
    future: Pin<Box<F>>,
    polled: Polled,
}

impl<F: Future> Watched<F> {
    /// Watches a future.
    pub(crate) fn new(polled: Polled, future: F) -> Self {
        Self { future: Box::pin(future), polled }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, polled } = &mut *self;
        polled.poll(|| future.as_mut().poll(context))
    }
}
