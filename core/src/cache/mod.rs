//! The provider's prompt cache: how a model's cache works, which part of a request it depends on,
//! and the places up to which a request asks it to cache.
//!
//! - `break_reason`: why the beginning of a context differs from the previous one.

mod break_reason;

use serde::{Deserialize, Serialize};

pub use break_reason::BreakReason;

use crate::{digest::Digest, provider_format::Format, tokens::Tokens};

/// How a provider's cache finds what it can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// Not known, or not used: nothing is marked, and every prefix that was sent before counts as
    /// cached.
    None,
    /// Up to places that the request marks (Anthropic).
    Marked,
    /// Any prefix, in steps (OpenAI before gpt-5.6).
    AnyPrefix,
    /// Up to the newest message and to places that the request marks (OpenAI from gpt-5.6 on).
    Breakpoints,
    /// Any prefix, without a promise (Gemini).
    Implicit,
}

/// The rules of a model's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheRules {
    /// How it finds what it can read.
    pub kind: CacheKind,
    /// Shortest prefix that is cached, in the model's tokens.
    pub min_tokens: Tokens,
    /// A cached prefix is a multiple of this many tokens long.
    pub step_tokens: u64,
    /// Blocks before a mark among which the cache looks for an earlier mark.
    pub lookback_blocks: usize,
}

impl CacheRules {
    /// The rules of an ideal cache, which is assumed for models whose rules are not known.
    pub const IDEAL: Self = Self {
        kind: CacheKind::None,
        min_tokens: Tokens::ZERO,
        step_tokens: 1,
        lookback_blocks: 0,
    };

    /// The rules of a model's cache, by the format of its contexts and its name at the provider. No
    /// model's rules are known yet.
    pub const fn of(_format: Format, _served_as: &str) -> Self {
        Self::IDEAL
    }
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

/// How long one mark is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheTtl {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    OneHour,
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

/// Why a place can be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePointKind {
    /// End of the system prompt.
    System,
    /// End of the checkpoint's summary.
    Summary,
    /// Before the next message that will change.
    Stable,
    /// End of the last call's context.
    LastEnd,
    /// End of the context.
    End,
}

/// A place in a context up to which a provider can cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CachePoint {
    /// Why it can be marked.
    pub kind: CachePointKind,
    /// Index of the message that ends there.
    pub message: usize,
    /// Index of its part that ends there.
    pub part: usize,
    /// Tokens up to there, with framing and tools.
    pub tokens: Tokens,
}

/// A place that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheMark {
    /// The place.
    pub point: CachePoint,
    /// How long the provider keeps it.
    pub ttl: CacheTtl,
}
