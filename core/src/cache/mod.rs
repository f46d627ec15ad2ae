//! The provider's prompt cache: how a model's cache works, which part of a request it depends on,
//! and the places up to which a request asks it to cache.
//!
//! - `rules`: how the caches of models work.
//! - `points`: which places of a context are marked, and for how long.
//! - `break_reason`: why the beginning of a context differs from the previous one.

mod break_reason;
mod points;
mod rules;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use break_reason::BreakReason;
pub use points::{CacheMark, CachePoint, CachePointKind, marks};
pub use rules::{CacheKind, CacheRules, can_be_cached_for_a_day};
pub(crate) use rules::{KNOWN_CACHES, known_kind};

use crate::{digest::Digest, tokens::Tokens};

/// Number of calls after which a break of the cache has paid: each saves `saved` tokens, and
/// `rewritten` tokens were written to the cache again. `rho`: [`crate::model::Prices::rho`]. None:
/// nothing is saved.
pub fn pays_back_after(rho: f64, rewritten: Tokens, saved: Tokens) -> Option<u64> {
    (saved > Tokens::ZERO)
        .then(|| (rho * rewritten.get() as f64 / saved.get() as f64).ceil() as u64)
}

/// How long the provider should keep what is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheRetention {
    /// The provider's shortest time.
    #[default]
    Short,
    /// An hour for system prompt and summary, the shortest time for the rest.
    LongHead,
    /// The provider's longest time.
    Long,
}

impl CacheRetention {
    /// How long a mark of this kind is kept.
    pub(crate) const fn ttl(self, kind: CachePointKind) -> CacheTtl {
        match (self, kind) {
            (Self::Long, _)
            | (Self::LongHead, CachePointKind::System | CachePointKind::Summary) => {
                CacheTtl::OneHour
            }
            (Self::Short | Self::LongHead, _) => CacheTtl::FiveMinutes,
        }
    }
}

/// How long one mark is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheTtl {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    OneHour,
}

impl CacheTtl {
    /// The time in seconds.
    pub const fn seconds(self) -> u32 {
        match self {
            Self::FiveMinutes => 300,
            Self::OneHour => 3_600,
        }
    }
}

/// What of a request beside its context the provider's cache depends on. None: not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestIdentity {
    /// Name of the model.
    pub model: Option<String>,
    /// Digest of the declared tools.
    pub tools: Option<Digest>,
    /// Digest of the options that are part of a cache's key.
    pub options: Option<Digest>,
    /// Tokens of the declared tools, which come before the context.
    pub tools_tokens: Tokens,
}

impl RequestIdentity {
    /// Why a cache that was written by a request with the identity `before` is useless for this
    /// one. None: it is not, as far as is known. What is not known on one side equals anything.
    pub fn change_since(&self, before: &Self) -> Option<BreakReason> {
        if differ(self.model.as_ref(), before.model.as_ref()) {
            Some(BreakReason::Model)
        } else if differ(self.tools.as_ref(), before.tools.as_ref()) {
            Some(BreakReason::Tools)
        } else if differ(self.options.as_ref(), before.options.as_ref()) {
            Some(BreakReason::Options)
        } else {
            None
        }
    }

    /// This identity, with what it does not know from `before`, to be recorded. Tokens are not.
    #[must_use]
    pub fn over(&self, before: Option<&Self>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Self {
            model: self.model.clone().or(before.model),
            tools: self.tools.or(before.tools),
            options: self.options.or(before.options),
            tools_tokens: Tokens::ZERO,
        }
    }
}

fn differ<T: PartialEq>(now: Option<&T>, before: Option<&T>) -> bool {
    now.zip(before).is_some_and(|(now, before)| now != before)
}

/// What a caller wants to know about the cache, or to ask of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheAsk {
    /// The rules of the model's cache.
    pub rules: CacheRules,
    /// How long what is marked should be kept.
    pub retention: CacheRetention,
    /// Whether the rendered context gets marks.
    pub marks: bool,
    /// The request beside the context.
    pub identity: RequestIdentity,
}

impl CacheAsk {
    /// How long the provider should keep the declared tools, if they are marked. They are if there
    /// is no system prompt behind them that has a mark.
    pub fn tools_ttl(&self, has_system_prompt: bool, ratio: Option<f64>) -> Option<CacheTtl> {
        let tokens = self.identity.tools_tokens;
        let is_marked = self.marks
            && self.rules.kind == CacheKind::Marked
            && !has_system_prompt
            && tokens > Tokens::ZERO
            && self.rules.reaches_minimum(tokens, ratio);
        is_marked.then(|| self.retention.ttl(CachePointKind::System))
    }
}
