//! The costs of a conversation's contexts: the eras of the provider's cache, and the bills.

use askama::Template;

use crate::{
    format::{Time, number},
    render::renders,
};

renders!(Eras);

/// Cache eras, newest first.
#[derive(Debug, Clone, Template)]
#[template(path = "xray/eras.html")]
pub struct Eras {
    /// The eras.
    pub eras: Vec<Era>,
    /// Earlier ones; empty: none.
    pub next_url: String,
}

/// A time in which the prefix of the context stayed the same.
#[derive(Debug, Clone)]
pub struct Era {
    /// Its number.
    pub number: i64,
    /// Why the era before it ended.
    pub cause: String,
    /// The newest message at its begin.
    pub at: i64,
    /// The first message that changed.
    pub broken_at: i64,
    /// The last summarized message.
    pub boundary: i64,
    /// Tokens that were written anew.
    pub rewritten: u64,
    /// Tokens that each call saves.
    pub saved_per_call: u64,
    /// Calls after which it pays. None: never.
    pub pays_after: Option<u64>,
    /// Whether it has paid. None: not known.
    pub paid: Option<bool>,
    /// Calls in it.
    pub calls: i64,
    /// Input tokens.
    pub input: u64,
    /// Tokens from the cache.
    pub cached: u64,
    /// Tokens to the cache.
    pub written: u64,
    /// Tokens that were expected in the cache.
    pub expected: u64,
    /// Output tokens.
    pub output: u64,
    /// Calls that found the cache cold.
    pub cold: i64,
    /// The model.
    pub model: String,
    /// Its begin.
    pub time: Time,
}

/// Tokens that were sent and billed.
#[derive(Debug, Clone)]
pub struct UsageTable {
    /// Ways to send the context, compared.
    pub bills: Vec<Bill>,
    /// As providers have reported it.
    pub reported: Option<Reported>,
    /// Summaries of messages.
    pub summaries: i64,
    /// Checkpoints.
    pub checkpoints: i64,
    /// Tokens read for summaries.
    pub summary_read: u64,
    /// Tokens written by summaries.
    pub summary_written: u64,
    /// Health of the cache.
    pub health: String,
}

/// One way to send the context.
#[derive(Debug, Clone)]
pub struct Bill {
    /// Its name.
    pub name: &'static str,
    /// Tokens sent.
    pub sent: u64,
    /// Tokens from the cache.
    pub cached: u64,
    /// Price in units of one input token.
    pub units: f64,
    /// How often the cache broke.
    pub breaks: i64,
}

/// Tokens as providers have reported them.
#[derive(Debug, Clone)]
pub struct Reported {
    /// Calls.
    pub calls: i64,
    /// Input tokens.
    pub input: u64,
    /// Tokens from the cache.
    pub cached: u64,
    /// Tokens to the cache.
    pub written: u64,
    /// Output tokens.
    pub output: u64,
    /// Calls that found the cache cold.
    pub cold: i64,
    /// Of them, by our own change.
    pub cold_by_us: i64,
}

impl Era {
    /// Whether the rewriting has paid.
    fn payment(&self) -> String {
        match (self.pays_after, self.paid) {
            (Some(calls), Some(true)) => format!("yes, after {}", number(calls)),
            (Some(calls), _) => format!("not yet: after {}", number(calls)),
            // Nothing was rewritten, so there is nothing to pay.
            (None, _) if self.rewritten == 0 => "–".to_owned(),
            (None, _) => "saves nothing".to_owned(),
        }
    }
}

impl Bill {
    /// The price in units of an input token.
    pub(crate) fn billed(&self) -> String {
        number(self.units.round() as i64)
    }
}
