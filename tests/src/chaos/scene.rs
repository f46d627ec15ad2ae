//! What all who take part in a campaign share: where the servers are, what was said, what was found.

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
    history::Ledger,
};
use crate::refusal;

/// One campaign, as its clients see it.
pub(super) struct Scene {
    pub(super) findings: Arc<Findings>,
    pub(super) tally: Tally,
    pub(super) ledger: Ledger,
    pub(super) channels: Vec<Channel>,
    /// A conversation of another tenant: for everybody here it does not exist.
    pub(super) foreign: String,
    /// Between two calls of a client.
    pub(super) pace: Duration,
    /// The database's clock jumps: how long a transaction has been open cannot be told from it.
    pub(super) clock_jumps: AtomicBool,
    enough: AtomicBool,
}

/// Longer than any call may take: ten seconds when its caller does not say how long, and what it takes to say so.
const CALL_MOST: Duration = Duration::from_secs(14);
/// How long a call is tried: longer than whatever is done to the service lasts.
const TRIES_MOST: Duration = Duration::from_secs(90);

impl Scene {
    pub(super) fn new(findings: Arc<Findings>, channels: Vec<Channel>, foreign: String, pace: Duration) -> Self {
        Self {
            findings,
            tally: Tally::default(),
            ledger: Ledger::default(),
            channels,
            foreign,
            pace,
            clock_jumps: AtomicBool::new(false),
            enough: AtomicBool::new(false),
        }
    }

    /// Clients end what they have begun, and begin nothing more.
    pub(super) fn end(&self) {
        self.enough.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.enough.load(Ordering::SeqCst)
    }

    /// Calls one server after the other until one gives an answer that trying again does not change. None: the service did not
    /// come back, which is a finding.
    pub(super) async fn answered<T, Answer: Future<Output = Result<T, Status>>>(
        &self,
        what: &'static str,
        first: usize,
        call: impl Fn(Channel) -> Answer,
    ) -> Option<Result<T, Status>> {
        self.answered_within(CALL_MOST, what, first, call).await
    }

    /// The same where one call may take so long.
    pub(super) async fn answered_within<T, Answer: Future<Output = Result<T, Status>>>(
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
            self.tally.one("operations");
            let channel = self.channels[attempt % self.channels.len()].clone();
            let status = match timeout(most, call(channel)).await {
                Ok(Ok(answer)) => return Some(Ok(answer)),
                Ok(Err(status)) if self.is_to_retry(what, &status) => status,
                Ok(Err(status)) => return Some(Err(status)),
                Err(_) => {
                    self.findings.add("deadlines", format!("{what} has hung for {} s", most.as_secs()));
                    Status::cancelled("given up")
                }
            };
            self.tally.one("retried");
            if began.elapsed() > TRIES_MOST {
                self.findings.add("availability", format!("{what} was tried for a minute and a half: {status:?}"));
                break;
            }
        }
        None
    }

    /// Whether the answer says that another try may have another one. What says neither that nor why not is a finding.
    fn is_to_retry(&self, what: &'static str, status: &Status) -> bool {
        let said = refusal(status);
        let gone = [Code::Unavailable, Code::Cancelled, Code::Unknown, Code::DeadlineExceeded];
        // A connection that breaks within an answer; what anneal itself calls internal has a reason.
        let broke = status.code() == Code::Internal && said.reason.is_empty();
        if gone.contains(&status.code()) || broke || said.retry {
            return true;
        }
        self.findings.demand(said.reason != "INTERNAL", "right codes", || format!("{what}: {status:?}"));
        said.reason == "INTERNAL"
    }
}
