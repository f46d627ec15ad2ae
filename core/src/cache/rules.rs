//! How the caches of models work, as their providers published it in November 2026.

use crate::{provider_format::Format, tokens::Tokens};

/// How a provider's cache finds what it can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheKind {
    /// Not known, or not used: nothing is marked, and every prefix that was sent before counts as
    /// cached.
    #[default]
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

impl CacheKind {
    /// Whether requests in this format can use such a cache.
    const fn is_of(self, format: Format) -> bool {
        match self {
            Self::None => true,
            Self::Marked => matches!(format, Format::AnthropicMessages),
            Self::AnyPrefix | Self::Breakpoints => matches!(format, Format::OpenAiChat),
            Self::Implicit => matches!(format, Format::GeminiContents),
        }
    }
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

/// Blocks that Anthropic's cache searches before each mark.
const LOOKBACK_BLOCKS: usize = 20;

const fn marked(min_tokens: u64) -> CacheRules {
    CacheRules {
        kind: CacheKind::Marked,
        min_tokens: Tokens::new(min_tokens),
        step_tokens: 1,
        lookback_blocks: LOOKBACK_BLOCKS,
    }
}

const fn any_prefix(min_tokens: u64, step_tokens: u64) -> CacheRules {
    CacheRules {
        kind: CacheKind::AnyPrefix,
        min_tokens: Tokens::new(min_tokens),
        step_tokens,
        lookback_blocks: 0,
    }
}

const fn implicit(min_tokens: u64) -> CacheRules {
    CacheRules {
        kind: CacheKind::Implicit,
        min_tokens: Tokens::new(min_tokens),
        step_tokens: 1,
        lookback_blocks: 0,
    }
}

/// OpenAI's cache from gpt-5.6 on. It searches all marks of earlier requests.
const BREAKPOINTS: CacheRules = CacheRules {
    kind: CacheKind::Breakpoints,
    min_tokens: Tokens::new(1_024),
    step_tokens: 1,
    lookback_blocks: usize::MAX,
};

/// OpenAI's cache before gpt-5.6.
const OPENAI: CacheRules = any_prefix(1_024, 128);

/// Prefixes of models' names, with dashes in place of dots, and the rules of their caches. The
/// longest prefix decides. Sources:
/// - platform.claude.com/docs/en/build-with-claude/prompt-caching;
/// - developers.openai.com/api/docs/guides/prompt-caching;
/// - ai.google.dev/gemini-api/docs/caching.
///
/// A Claude model that is not known gets the longest minimum: to expect too much would be worse
/// than a mark that does nothing.
pub(crate) const KNOWN_CACHES: [(&str, CacheRules); 22] = [
    ("claude-", marked(4_096)),
    ("claude-opus-5", marked(512)),
    ("claude-fable-5", marked(512)),
    ("claude-mythos-5", marked(512)),
    ("claude-opus-4-8", marked(1_024)),
    ("claude-opus-4-7", marked(2_048)),
    ("claude-opus-4-1", marked(1_024)),
    ("claude-opus-4-0", marked(1_024)),
    ("claude-opus-4-2025", marked(1_024)),
    ("claude-sonnet-5", marked(1_024)),
    ("claude-sonnet-4", marked(1_024)),
    ("claude-3-5-haiku", marked(2_048)),
    ("gpt-", OPENAI),
    ("gpt-5-6", BREAKPOINTS),
    ("gpt-oss", any_prefix(0, 1)),
    ("chatgpt-", OPENAI),
    ("o1", OPENAI),
    ("o3", OPENAI),
    ("o4", OPENAI),
    ("gemini-", implicit(4_096)),
    ("gemini-2-5", implicit(2_048)),
    ("deepseek-", any_prefix(64, 64)),
];

impl CacheRules {
    /// The rules of an ideal cache, which is assumed where a cache is not known.
    pub const IDEAL: Self = Self {
        kind: CacheKind::None,
        min_tokens: Tokens::ZERO,
        step_tokens: 1,
        lookback_blocks: 0,
    };

    /// The rules of a model's cache, by the format of its contexts and its name at the provider. A
    /// provider before the name (`anthropic/claude-…`) and letter case are ignored.
    pub fn of(format: Format, served_as: &str) -> Self {
        let known = known_rules(served_as).filter(|rules| rules.kind.is_of(format));
        known.unwrap_or(match format {
            Format::Neutral => Self::IDEAL,
            Format::AnthropicMessages => marked(4_096),
            Format::OpenAiChat => any_prefix(0, 1),
            Format::GeminiContents => implicit(4_096),
        })
    }

    /// Whether a prefix of so many tokens counted here is long enough to be cached. `ratio`: the
    /// model's tokens per token counted here.
    pub(crate) fn reaches_minimum(&self, tokens: Tokens, ratio: Option<f64>) -> bool {
        tokens.get() as f64 * ratio.unwrap_or(1.0) >= self.min_tokens.get() as f64
    }

    /// Of a prefix of so many tokens, as they are counted here: those that a cache of any prefix
    /// holds.
    pub(crate) fn round_down(&self, tokens: Tokens, ratio: Option<f64>) -> Tokens {
        if !self.reaches_minimum(tokens, ratio) {
            return Tokens::ZERO;
        }
        if self.step_tokens <= 1 {
            return tokens;
        }
        let ratio = ratio.unwrap_or(1.0);
        let steps = (tokens.get() as f64 * ratio) as u64 / self.step_tokens;
        Tokens::new(((steps * self.step_tokens) as f64 / ratio) as u64)
    }
}

/// The kind of cache that a model has, by its name alone.
pub(crate) fn known_kind(served_as: &str) -> CacheKind {
    known_rules(served_as).map_or(CacheKind::None, |rules| rules.kind)
}

/// Whether OpenAI's cache keeps what this model has read for a day if a request asks for it. Later
/// models than gpt-5.5 refuse the field (developers.openai.com/api/docs/guides/prompt-caching,
/// 2026), and so do some of the small ones (OpenHands/software-agent-sdk, pull request 1345).
pub fn can_be_cached_for_a_day(served_as: &str) -> bool {
    let name = served_as.to_ascii_lowercase();
    let is_small = name.contains("mini") || name.contains("nano");
    let version = name
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_prefix("gpt-"))
        .and_then(|rest| rest.split('-').next());
    let can_be = matches!(
        version,
        Some("4.1" | "5" | "5.0" | "5.1" | "5.2" | "5.3" | "5.4" | "5.5")
    );
    can_be && !is_small
}

fn known_rules(served_as: &str) -> Option<CacheRules> {
    let name = served_as.rsplit('/').next().unwrap_or(served_as);
    let name = name.to_ascii_lowercase().replace('.', "-");
    let fitting = KNOWN_CACHES
        .iter()
        .filter(|(prefix, _)| name.starts_with(prefix));
    fitting
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(_, rules)| *rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimum(format: Format, name: &str) -> (CacheKind, u64) {
        let rules = CacheRules::of(format, name);
        (rules.kind, rules.min_tokens.get())
    }

    #[test]
    fn the_longest_matching_prefix_decides_the_rules_of_a_model() {
        let anthropic = |name| minimum(Format::AnthropicMessages, name);
        assert_eq!(
            anthropic("claude-sonnet-4-5-20250929"),
            (CacheKind::Marked, 1_024)
        );
        assert_eq!(
            anthropic("anthropic/Claude-Opus-4.7"),
            (CacheKind::Marked, 2_048)
        );
        assert_eq!(anthropic("claude-opus-4-6"), (CacheKind::Marked, 4_096));
        assert_eq!(anthropic("claude-haiku-9"), (CacheKind::Marked, 4_096));
        assert_eq!(
            minimum(Format::GeminiContents, "gemini-2.5-pro"),
            (CacheKind::Implicit, 2_048)
        );
        let openai = |name| minimum(Format::OpenAiChat, name);
        assert_eq!(openai("gpt-5.6-mini"), (CacheKind::Breakpoints, 1_024));
        assert_eq!(openai("gpt-5.5"), (CacheKind::AnyPrefix, 1_024));
        assert_eq!(openai("my-own"), (CacheKind::AnyPrefix, 0));
    }

    #[test]
    fn a_model_behind_another_protocol_has_no_cache_of_its_own_protocol() {
        assert_eq!(
            minimum(Format::OpenAiChat, "claude-opus-5").0,
            CacheKind::AnyPrefix
        );
        assert_eq!(
            CacheRules::of(Format::Neutral, "claude-opus-5"),
            CacheRules::IDEAL
        );
    }

    #[test]
    fn only_some_of_openais_models_cache_for_a_day() {
        for name in ["gpt-5", "gpt-5.5-pro", "openai/gpt-5.4", "GPT-4.1"] {
            assert!(can_be_cached_for_a_day(name), "{name}");
        }
        for name in [
            "gpt-5.6",
            "gpt-6",
            "gpt-4o",
            "gpt-5-mini",
            "gpt-4.1-nano",
            "o3",
            "small",
        ] {
            assert!(!can_be_cached_for_a_day(name), "{name}");
        }
    }

    #[test]
    fn a_cache_of_any_prefix_holds_whole_steps_of_the_models_tokens() {
        let held = |tokens, ratio| OPENAI.round_down(Tokens::new(tokens), ratio).get();
        assert_eq!(held(1_023, None), 0);
        assert_eq!(held(1_024, None), 1_024);
        assert_eq!(held(1_279, None), 1_152);
        assert_eq!(held(900, Some(1.25)), 819, "1,125 of the model's tokens");
        assert_eq!(held(1_100, Some(0.9)), 0, "990 of the model's tokens");
    }
}
