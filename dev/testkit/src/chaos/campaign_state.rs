//! State that the clients and checkers of a campaign share: channels to the servers, the history,
//! the findings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tonic::{Code, Status, transport::Channel};

use super::{
    findings::{Findings, Tally},
    history::History,
};
use crate::status_details;

/// The state of a campaign.
pub(super) struct CampaignState {
    pub(super) findings: Arc<Findings>,
    pub(super) tally: Tally,
    pub(super) history: History,
    pub(super) channels: Vec<Channel>,
    /// The id of another tenant's conversation, which the clients must not see.
    pub(super) foreign: String,
    /// The interval between two calls of a client.
    pub(super) pace: Duration,
    /// Whether the database's clock jumps. Then the age of a transaction cannot be computed.
    pub(super) clock_jumps: AtomicBool,
    stopped: AtomicBool,
}

/// A call without an answer after this time hangs: the default deadline is ten seconds.
const CALL_MOST: Duration = Duration::from_secs(14);
/// How long a call is retried: longer than any fault lasts.
const RETRIES_MOST: Duration = Duration::from_secs(90);

impl CampaignState {
    pub(super) fn new(
        findings: Arc<Findings>,
        channels: Vec<Channel>,
        foreign: String,
        pace: Duration,
    ) -> Self {
        Self {
            findings,
            tally: Tally::default(),
            history: History::default(),
            channels,
            foreign,
            pace,
            clock_jumps: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Tells the clients to complete what they have begun and to stop.
    pub(super) fn stop_clients(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Calls one server after the other until an answer is final. None if the service did not come
    /// back in time, which is a finding.
    pub(super) async fn call_with_retries<T, Answer: Future<Output = Result<T, Status>>>(
        &self,
        what: &'static str,
        first: usize,
        call: impl Fn(Channel) -> Answer,
    ) -> Option<Result<T, Status>> {
        self.call_with_retries_within(CALL_MOST, what, first, call)
            .await
    }

    /// Calls as [`Self::call_with_retries`] does, with another time limit of one call.
    pub(super) async fn call_with_retries_within<T, Answer: Future<Output = Result<T, Status>>>(
        &self,
        most: Duration,
        what: &'static str,
        first: usize,
        call: impl Fn(Channel) -> Answer,
    ) -> Option<Result<T, Status>> {
        let mut pace = interval(self.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        for attempt in first.. {
            pace.tick().await;
            self.tally.increment("operations");
            let channel = self.channels[attempt % self.channels.len()].clone();
            let status = match timeout(most, call(channel)).await {
                Ok(Ok(answer)) => return Some(Ok(answer)),
                Ok(Err(status)) if self.is_retryable(what, &status) => status,
                Ok(Err(status)) => return Some(Err(status)),
                Err(_) => {
                    self.findings.add(
                        "deadlines",
                        format!("{what} has hung for {} s", most.as_secs()),
                    );
                    Status::cancelled("given up")
                }
            };
            self.tally.increment("retried");
            if began.elapsed() > RETRIES_MOST {
                self.findings.add(
                    "availability",
                    format!("{what} was tried for a minute and a half: {status:?}"),
                );
                break;
            }
        }
        None
    }

    /// Whether the status says that a retry may succeed. INTERNAL is a finding, and is retried too.
    fn is_retryable(&self, what: &'static str, status: &Status) -> bool {
        let details = status_details(status);
        let gone = [
            Code::Unavailable,
            Code::Cancelled,
            Code::Unknown,
            Code::DeadlineExceeded,
        ];
        // A connection broke during the answer. INTERNAL of anneal itself always has a reason.
        let broke = status.code() == Code::Internal && details.reason.is_empty();
        if gone.contains(&status.code()) || broke || details.retry {
            return true;
        }
        self.findings
            .demand(details.reason != "INTERNAL", "right codes", || {
                format!("{what}: {status:?}")
            });
        details.reason == "INTERNAL"
    }
}
