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
    /// Whether clients change stored messages.
    changes: AtomicBool,
    stopped: AtomicBool,
}

/// A call that has no answer after this time is a finding. The server's default deadline is 10 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(14);
/// How long a call is retried. This is longer than any fault lasts.
const RETRY_TIMEOUT: Duration = Duration::from_secs(90);

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
            changes: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
        }
    }

    /// Tells the clients not to change stored messages.
    pub(super) fn forbid_changes(&self) {
        self.changes.store(false, Ordering::SeqCst);
    }

    /// Whether clients change stored messages.
    pub(super) fn has_changes(&self) -> bool {
        self.changes.load(Ordering::SeqCst)
    }

    /// Tells the clients to complete what they have begun and to stop.
    pub(super) fn stop_clients(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Calls one server after the other, beginning with number `first`, until an answer is final.
    /// None if there was none within [`RETRY_TIMEOUT`], which is a finding.
    pub(super) async fn call_with_retries<T, Answer: Future<Output = Result<T, Status>>>(
        &self,
        what: &'static str,
        first: usize,
        call: impl Fn(Channel) -> Answer,
    ) -> Option<Result<T, Status>> {
        self.call_with_retries_within(CALL_TIMEOUT, what, first, call)
            .await
    }

    /// Calls as [`Self::call_with_retries`] does, with `limit` as the time limit of each try.
    pub(super) async fn call_with_retries_within<T, Answer: Future<Output = Result<T, Status>>>(
        &self,
        limit: Duration,
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
            let status = match timeout(limit, call(channel)).await {
                Ok(Ok(answer)) => return Some(Ok(answer)),
                Ok(Err(status)) if self.is_retryable(what, &status) => status,
                Ok(Err(status)) => return Some(Err(status)),
                Err(_) => {
                    self.findings.add(
                        "deadlines",
                        format!("{what} had no answer within {} s", limit.as_secs()),
                    );
                    Status::cancelled("given up")
                }
            };
            self.tally.increment("retried");
            if began.elapsed() > RETRY_TIMEOUT {
                self.findings.add(
                    "availability",
                    format!(
                        "{what} was retried for {} s: {status:?}",
                        RETRY_TIMEOUT.as_secs()
                    ),
                );
                break;
            }
        }
        None
    }

    /// Whether the status says that a retry may succeed. INTERNAL is a finding, and is retried too.
    fn is_retryable(&self, what: &'static str, status: &Status) -> bool {
        let details = status_details(status);
        let no_answer = [
            Code::Unavailable,
            Code::Cancelled,
            Code::Unknown,
            Code::DeadlineExceeded,
        ];
        // A connection broke during the answer. INTERNAL of anneal itself always has a reason.
        let broke = status.code() == Code::Internal && details.reason.is_empty();
        if no_answer.contains(&status.code()) || broke || details.retry {
            return true;
        }
        self.findings
            .demand(details.reason != "INTERNAL", "right codes", || {
                format!("{what}: {status:?}")
            });
        details.reason == "INTERNAL"
    }
}
