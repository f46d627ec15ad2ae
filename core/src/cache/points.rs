//! Which places of a context a request marks, so that the provider caches up to there.

use super::{CacheAsk, CacheKind, CacheTtl};
use crate::tokens::Tokens;

/// Why a place can be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePointKind {
    /// End of the system prompt.
    System,
    /// End of the checkpoint's summary.
    Summary,
    /// Before the next message that will change: the oldest large one that is sent as its original.
    Stable,
    /// The last place that the last call left in the cache, if no other mark is near enough for the
    /// cache to find it. Unless the context has changed, this is the end of the last call's context.
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

impl CachePoint {
    /// Whether both are the same place.
    pub(crate) const fn is_at(&self, other: &Self) -> bool {
        self.message == other.message && self.part == other.part
    }
}

/// A place that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheMark {
    /// The place.
    pub point: CachePoint,
    /// How long the provider keeps it, at least.
    pub ttl: CacheTtl,
}

/// Most marks of one request.
const MAX_MARKS: usize = 4;

/// The marks of a request with these points: at most four, in the order of the context. A prefix
/// that is too short to be cached is not marked. `ratio`: the model's tokens per token counted here.
pub fn marks(points: &[CachePoint], ask: &CacheAsk, ratio: Option<f64>) -> Vec<CacheMark> {
    if !ask.marks {
        return Vec::new();
    }
    // In the order of their use.
    let kinds: &[CachePointKind] = match ask.rules.kind {
        CacheKind::Marked => &[
            CachePointKind::End,
            CachePointKind::System,
            CachePointKind::LastEnd,
            CachePointKind::Stable,
            CachePointKind::Summary,
        ],
        // The end needs no mark.
        CacheKind::Breakpoints => &[CachePointKind::System, CachePointKind::Stable],
        CacheKind::None | CacheKind::AnyPrefix | CacheKind::Implicit => &[],
    };
    let has_system_prompt = points
        .iter()
        .any(|point| point.kind == CachePointKind::System);
    let tools_have_one = ask.tools_ttl(has_system_prompt, ratio).is_some();
    let most = MAX_MARKS - usize::from(tools_have_one);
    let mut chosen: Vec<CachePoint> = Vec::with_capacity(MAX_MARKS);
    let wanted = kinds
        .iter()
        .filter_map(|kind| points.iter().find(|point| point.kind == *kind));
    for point in wanted {
        let is_new = !chosen.iter().any(|other| other.is_at(point));
        if chosen.len() < most && is_new && ask.rules.reaches_minimum(point.tokens, ratio) {
            chosen.push(*point);
        }
    }
    chosen.sort_unstable_by_key(|point| (point.message, point.part));
    chosen
        .into_iter()
        .map(|point| CacheMark {
            point,
            ttl: ask.retention.ttl(point.kind),
        })
        .collect()
}
