//! The operator's settings for workers and summaries.

use std::net::{Ipv4Addr, SocketAddr};

use anneal_core::tokens::Tokens;
use serde::{Deserialize, Serialize};

/// How much a worker does at once, and how often it polls for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Address of `/healthz`, `/readyz` and `/metrics`.
    pub http_address: SocketAddr,
    /// Conversations in one claim for counting. One tenant gets all of them where no other tenant
    /// has any, and at least a quarter.
    pub count_batch: u32,
    /// Milliseconds from one claim for counting to the next when the first was not full. Waiting
    /// makes the next batch larger.
    pub count_gap_ms: u32,
    /// Counting jobs that run at once outside of a batch: large ones, and those that failed in a
    /// batch.
    pub count_concurrency: u32,
    /// Checkpoint jobs that run at once. The same number of summarising jobs runs beside them.
    pub summary_concurrency: u32,
    /// Threads for counting and for extractive summaries; 0: one per core.
    pub threads: u32,
    /// Milliseconds between two polls for work when no notification comes.
    pub poll_ms: u32,
    /// Seconds that running jobs have to finish when the worker stops.
    pub stop_seconds: u32,
    /// Seconds between two audits; 0: none.
    pub audit_interval_seconds: u32,
    /// Conversations that one audit checks.
    pub audit_sample: u32,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            http_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8_081)),
            count_batch: 256,
            count_gap_ms: 25,
            count_concurrency: 4,
            summary_concurrency: 2,
            threads: 0,
            poll_ms: 1_000,
            stop_seconds: 20,
            audit_interval_seconds: 60,
            audit_sample: 4,
        }
    }
}

/// The replacement of a summary that the model does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// A summary of the built-in summariser, labelled as such.
    #[default]
    Extractive,
    /// Nothing: contexts hold the original messages, and the job is tried again.
    None,
}

/// The model that writes summaries, and the lengths of summaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizerSettings {
    /// Name of the model in the configuration; empty: the built-in summariser.
    pub model: String,
    /// The replacement of a summary that the model does not write.
    pub fallback: Fallback,
    /// Most tokens of a checkpoint's summary.
    pub checkpoint_tokens: Tokens,
    /// Most tokens of a large message's summary.
    pub message_tokens: Tokens,
}

impl Default for SummarizerSettings {
    fn default() -> Self {
        Self {
            model: String::new(),
            fallback: Fallback::default(),
            checkpoint_tokens: Tokens::new(2_000),
            message_tokens: Tokens::new(500),
        }
    }
}
