//! Callers that each wait for an answer before they call again: what a service does at most.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tonic::Status;

use super::{Load, tally::Tally};

/// A number of callers, as fast as they can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    /// Calls under way at once.
    pub(crate) callers: u64,
    /// What comes first and is not measured.
    pub(crate) warm_up: Duration,
    /// How long it is measured.
    pub(crate) time: Duration,
}

impl Closed {
    /// Calls, and returns what came back within the measured time. A caller's calls have numbers that are equal modulo the
    /// number of callers.
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
                        tally.note(caller, outcome, took, took);
                    }
                    number += self.callers;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done?;
        }
        Ok(tally.load(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_wait_for_their_answers_and_refusals_are_told_apart() {
        let how = Closed { callers: 4, warm_up: Duration::from_millis(20), time: Duration::from_secs(2) };
        let call = |number: u64| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if number.is_multiple_of(4) { Err(Status::resource_exhausted("")) } else { Ok(()) }
        };
        let load = how.run(call).await.unwrap();
        // Three callers at most 200 times a second each, however slow this machine is.
        assert!(load.rate() > 0.0 && load.rate() <= 3.0 * 200.0 * 1.1, "{}", load.rate());
        assert!(load.latencies.p50() >= 5.0, "{}", load.latencies.p50());
        assert!(load.refused() > 0 && load.clean().is_err());
    }
}
