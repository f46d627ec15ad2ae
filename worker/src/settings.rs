//! What an operator sets for the workers.

use std::net::{Ipv4Addr, SocketAddr};

use anneal_core::tokens::Tokens;
use serde::{Deserialize, Serialize};

/// How much a worker does at once, and how often it looks for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// Where `/healthz`, `/readyz` and `/metrics` are.
    pub http_address: SocketAddr,
    /// Conversations claimed for counting at once, of one tenant all, where no other has any, and a quarter at least.
    pub count_batch: u32,
    /// Milliseconds from one claim for counting to the next, where the first was not full: more is counted at once.
    pub count_gap_ms: u32,
    /// Counting jobs that run at once because they are large or failed among others.
    pub count_concurrency: u32,
    /// Checkpoint jobs that run at once, and as many summarising jobs.
    pub summary_concurrency: u32,
    /// Threads for counting and extractive summaries; 0: one per core.
    pub threads: u32,
    /// Milliseconds between two looks for work when nobody rings.
    pub poll_ms: u32,
    /// Seconds that running jobs get to finish when the worker is stopped.
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

/// What happens while the model gives no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// The built-in summariser makes one, labelled as such.
    #[default]
    Extractive,
    /// None is made; contexts go on with the originals, and the job tries again.
    None,
}

/// Who writes summaries, and how long they may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizerSettings {
    /// The model that writes them, by its name in the configuration; empty: the built-in summariser.
    pub model: String,
    /// What happens while the model gives none.
    pub fallback: Fallback,
    /// Tokens of a checkpoint's summary at most.
    pub checkpoint_tokens: Tokens,
    /// Tokens of a large message's summary at most.
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
