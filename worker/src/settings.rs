//! The operator's settings for workers and summaries.

use std::net::{Ipv4Addr, SocketAddr};

use anneal_core::tokens::Tokens;
use serde::{Deserialize, Serialize};

/// A worker's address for probes, how much it does at once, and how often it polls and audits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Address of `/healthz`, `/readyz` and `/metrics`.
    pub http_address: SocketAddr,
    /// Most conversations in one claim for counting. A tenant gets at most an equal share of the
    /// claim or a quarter of it, whichever is more; all of it if no other tenant has due jobs.
    pub count_batch: u32,
    /// Least milliseconds from a claim for counting that was not full to the next claim. Waiting
    /// makes the next batch larger.
    pub count_gap_ms: u32,
    /// Most counting jobs that run at once outside of a batch: those of large conversations, those
    /// of a batch that failed, and those that eight batches have skipped because another
    /// transaction had locked their conversation.
    pub count_concurrency: u32,
    /// Most checkpoint jobs that run at once. Jobs that summarize large messages have the same
    /// limit for themselves, so up to twice as many jobs write summaries at once.
    pub summary_concurrency: u32,
    /// Most threads that count single conversations or write extractive summaries; 0: one per core.
    /// Batches of counting have threads of their own.
    pub threads: u32,
    /// Milliseconds between two polls for work when no notification comes.
    pub poll_ms: u32,
    /// Seconds that running jobs have to finish when the worker stops.
    pub stop_seconds: u32,
    /// Seconds between two audits; 0: none.
    pub audit_interval_seconds: u32,
    /// Most conversations that one audit checks.
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

/// What replaces a summary that the model could not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// A summary of the built-in summarizer, labeled as such.
    #[default]
    Extractive,
    /// Nothing: contexts hold the original messages, and the job is tried again until it is given
    /// up.
    None,
}

/// The model that writes summaries, what replaces it if it fails, and the lengths of summaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizerSettings {
    /// Name of the model in the configuration; empty: the built-in summarizer.
    pub model: String,
    /// What replaces a summary that the model could not write.
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
