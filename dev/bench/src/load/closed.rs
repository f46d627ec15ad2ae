//! Closed-loop load: each caller waits for an answer before it calls again. Measures the maximum
//! throughput of a service.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tonic::Status;

use super::{Load, tally::Tally};

/// A number of callers that call as fast as they can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClosedLoop {
    /// Number of concurrent calls.
    pub(crate) callers: u64,
    /// Time before the measurement starts.
    pub(crate) warm_up: Duration,
    /// Duration of the measurement.
    pub(crate) time: Duration,
}

impl ClosedLoop {
    /// Runs the load and returns the results of the calls that finished within the measured time.
    /// Caller `k` makes the calls with the numbers `k`, `k + callers`, `k + 2 * callers` and so on.
    pub(crate) async fn run<C, F>(self, call: C) -> anyhow::Result<Load>
    where
        C: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let tally = Arc::new(Tally::new());
        let from = Instant::now() + self.warm_up;
        let until = from + self.time;
        let mut tasks = JoinSet::new();
        for caller in 0..self.callers {
            let (call, tally) = (call.clone(), Arc::clone(&tally));
            tasks.spawn(async move {
                let mut number = caller;
                loop {
                    let begun = Instant::now();
                    if begun >= until {
                        return;
                    }
                    let outcome = call(number).await;
                    let took = begun.elapsed();
                    if (from..until).contains(&(begun + took)) {
                        tally.record(caller, outcome, took, took);
                    }
                    number += self.callers;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done?;
        }
        Ok(tally.to_load(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_wait_for_answers_and_failed_calls_count_as_refused() {
        let closed_loop = ClosedLoop {
            callers: 4,
            warm_up: Duration::from_millis(20),
            time: Duration::from_secs(2),
        };
        let call = |number: u64| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if number.is_multiple_of(4) {
                Err(Status::resource_exhausted(""))
            } else {
                Ok(())
            }
        };
        let load = closed_loop.run(call).await.unwrap();
        // Three callers with at most 200 calls per second each, however slow this machine is, and
        // a tolerance of 10 %. The numbers of the fourth are multiples of 4, so all of its calls
        // fail.
        assert!(
            load.rate() > 0.0 && load.rate() <= 3.0 * 200.0 * 1.1,
            "{}",
            load.rate()
        );
        assert!(load.latencies.p50() >= 5.0, "{}", load.latencies.p50());
        assert!(load.refused() > 0 && load.require_success().is_err());
    }
}
