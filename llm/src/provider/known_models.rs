//! What is known of a model by its name at the provider: which options of a call it accepts.
//!
//! A row of a table holds for its version and the later ones, up to the next row above it. So a
//! version that is newer than the table is treated as the newest one in it. Of a name that no table
//! has, only that is assumed which every model of the protocol accepts.

use anneal_core::chat_options::ReasoningEffort as Effort;

/// Major and minor number in a model's name.
type Version = (u8, u8);

/// The sampling options that a model accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Temperature and top_p, also together.
    Both,
    /// Temperature or top_p.
    One,
    /// Neither.
    Neither,
}

/// How a model's thinking follows its effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thinking {
    /// A request with an effort has to ask for it (`thinking: adaptive`).
    Adaptive,
    /// A request cannot ask for it by an effort.
    Separate,
}

/// A Claude model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claude {
    pub(super) sampling: Sampling,
    /// Whether its answers can follow a schema.
    pub(super) has_schemas: bool,
    thinking: Thinking,
    /// The efforts that it accepts; [`Effort::None`] among them: its thinking can be
    /// switched off.
    pub(super) efforts: &'static [Effort],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Fable,
    Mythos,
    Opus,
    Sonnet,
    Haiku,
}

const NEWEST: Claude = Claude {
    sampling: Sampling::Neither,
    has_schemas: true,
    thinking: Thinking::Adaptive,
    efforts: &[
        Effort::None,
        Effort::Low,
        Effort::Medium,
        Effort::High,
        Effort::XHigh,
        Effort::Max,
    ],
};
/// A model that always thinks.
const ALWAYS_THINKING: Claude = Claude {
    efforts: &[
        Effort::Low,
        Effort::Medium,
        Effort::High,
        Effort::XHigh,
        Effort::Max,
    ],
    ..NEWEST
};
const WITHOUT_XHIGH: Claude = Claude {
    sampling: Sampling::One,
    efforts: &[
        Effort::None,
        Effort::Low,
        Effort::Medium,
        Effort::High,
        Effort::Max,
    ],
    ..NEWEST
};
const UP_TO_HIGH: Claude = Claude {
    sampling: Sampling::One,
    thinking: Thinking::Separate,
    efforts: &[Effort::None, Effort::Low, Effort::Medium, Effort::High],
    ..NEWEST
};
const WITHOUT_EFFORT: Claude = Claude {
    efforts: &[],
    ..UP_TO_HIGH
};
const WITHOUT_SCHEMAS: Claude = Claude {
    has_schemas: false,
    ..WITHOUT_EFFORT
};
const OLDEST: Claude = Claude {
    sampling: Sampling::Both,
    ..WITHOUT_SCHEMAS
};
/// A model that is not Anthropic's, or whose name does not say which it is.
const UNKNOWN: Claude = Claude {
    has_schemas: true,
    ..OLDEST
};

/// The newest version of a family comes first.
///
/// Efforts: platform.claude.com/docs/en/build-with-claude/effort, docs.aws.amazon.com/bedrock,
/// claude-messages-adaptive-thinking (2026-11: Fable and Mythos cannot switch thinking off, Mythos
/// Preview has no xhigh). Sampling, two sampling options together, thinking: anthropics/skills
/// 2026-07-01, `claude-api/shared/model-migration.md`; Haiku 5.5: release notes of yoagent 0.27.3
/// (2026-11). Schemas: the same repository, `tool-use-concepts.md`.
const CLAUDE: [(Family, Version, Claude); 17] = [
    (Family::Fable, (0, 0), ALWAYS_THINKING),
    (Family::Mythos, (5, 0), ALWAYS_THINKING),
    (
        Family::Mythos,
        (0, 0),
        Claude {
            efforts: &[Effort::Low, Effort::Medium, Effort::High, Effort::Max],
            ..NEWEST
        },
    ),
    (Family::Opus, (4, 7), NEWEST),
    (Family::Opus, (4, 6), WITHOUT_XHIGH),
    (Family::Opus, (4, 5), UP_TO_HIGH),
    (Family::Opus, (4, 1), WITHOUT_EFFORT),
    (Family::Opus, (4, 0), WITHOUT_SCHEMAS),
    (Family::Opus, (0, 0), OLDEST),
    (Family::Sonnet, (5, 0), NEWEST),
    (Family::Sonnet, (4, 6), WITHOUT_XHIGH),
    (Family::Sonnet, (4, 5), WITHOUT_EFFORT),
    (Family::Sonnet, (4, 0), WITHOUT_SCHEMAS),
    (Family::Sonnet, (0, 0), OLDEST),
    (Family::Haiku, (5, 0), NEWEST),
    (Family::Haiku, (4, 0), WITHOUT_EFFORT),
    (Family::Haiku, (0, 0), OLDEST),
];

impl Claude {
    /// The model with this name at its provider.
    pub(super) fn of(served_as: &str) -> Self {
        let Some((family, version)) = claude_name(served_as) else {
            return UNKNOWN;
        };
        let row = CLAUDE
            .iter()
            .find(|(of, from, _)| *of == family && version >= *from);
        row.map_or(UNKNOWN, |(_, _, claude)| *claude)
    }

    /// The type of `thinking` that a request with this effort needs; None: it has no such field.
    pub(super) fn thinking(&self, effort: Option<Effort>) -> Option<&'static str> {
        match effort? {
            Effort::None => Some("disabled"),
            _ if self.thinking == Thinking::Adaptive => Some("adaptive"),
            _ => None,
        }
    }
}

/// Family and version in names such as `claude-opus-4-5-20251101`, `claude-3-5-haiku@20241022` and
/// `us.anthropic.claude-sonnet-4-20250514-v1:0`.
fn claude_name(served_as: &str) -> Option<(Family, Version)> {
    let name = served_as.to_ascii_lowercase();
    let (_, name) = name.split_once("claude-")?;
    let words: Vec<&str> = name.split(['-', '.', '@', ':']).collect();
    let family = words.iter().find_map(|word| match *word {
        "fable" => Some(Family::Fable),
        "mythos" => Some(Family::Mythos),
        "opus" => Some(Family::Opus),
        "sonnet" => Some(Family::Sonnet),
        "haiku" => Some(Family::Haiku),
        _ => None,
    })?;
    // A date is not a number of a version: it exceeds a byte.
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let version = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    Some((family, version))
}

/// A Gemini model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gemini {
    /// (0, 0) if the name does not say it.
    version: Version,
    is_flash: bool,
    is_lite: bool,
}

impl Gemini {
    /// The model with this name at its provider.
    pub(super) fn of(served_as: &str) -> Self {
        let name = served_as.to_ascii_lowercase();
        let version = name
            .split_once("gemini-")
            .and_then(|(_, rest)| version(rest));
        Self {
            version: version.unwrap_or_default(),
            is_flash: name.contains("flash"),
            is_lite: name.contains("lite"),
        }
    }

    /// The efforts for which it has a level of thinking. Before version 3 there are budgets instead
    /// (docs.cloud.google.com/gemini-enterprise-agent-platform/models/thinking, 2026-11).
    pub(super) fn efforts(self) -> &'static [Effort] {
        if self.version < (3, 0) {
            &[]
        } else if self.is_lite || self.is_flash && self.version < (3, 7) {
            &[Effort::Minimal, Effort::Low, Effort::Medium, Effort::High]
        } else if self.version == (3, 0) {
            &[Effort::Low, Effort::High]
        } else {
            &[Effort::Low, Effort::Medium, Effort::High]
        }
    }

    /// Whether its answers are sampled as the request says. Gemini 4 ignores temperature and top_p
    /// ("What's new in Gemini 4 Argon", ai.google.dev, 2026-10-13).
    pub(super) fn has_sampling(self) -> bool {
        self.version < (4, 0)
    }

    /// Whether the shape of an answer can be given beside tools
    /// (ai.google.dev/gemini-api/docs/structured-output, 2026).
    pub(super) fn has_shapes_beside_tools(self) -> bool {
        self.version >= (3, 0)
    }
}

/// The name of an effort in the protocols of OpenAI and Anthropic.
pub(super) const fn effort_name(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "none",
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::XHigh => "xhigh",
        Effort::Max => "max",
    }
}

/// The version at the beginning of a name, such as `3.1-pro` and `4-argon`.
fn version(name: &str) -> Option<Version> {
    let numbers = name.split('-').next()?;
    let (major, minor) = numbers.split_once('.').unwrap_or((numbers, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claude_model_is_found_by_each_form_of_its_name() {
        for (name, expected) in [
            ("claude-opus-4-5-20251101", UP_TO_HIGH),
            ("anthropic/claude-opus-4.6", WITHOUT_XHIGH),
            ("us.anthropic.claude-opus-4-6-v1:0", WITHOUT_XHIGH),
            ("claude-opus-4-20250514", WITHOUT_SCHEMAS),
            ("anthropic.claude-sonnet-4-20250514-v1:0", WITHOUT_SCHEMAS),
            ("claude-sonnet-4-5@20250929", WITHOUT_EFFORT),
            ("claude-3-5-haiku-20241022", OLDEST),
            ("Claude-Haiku-4-5", WITHOUT_EFFORT),
            ("claude-fable-5-1", ALWAYS_THINKING),
            ("claude-opus-5", NEWEST),
            ("claude-sonnet-7-2", NEWEST),
            ("claude-instant", UNKNOWN),
            ("kimi-k3", UNKNOWN),
        ] {
            assert_eq!(Claude::of(name), expected, "{name}");
        }
        let preview = Claude::of("claude-mythos-preview");
        assert!(!preview.efforts.contains(&Effort::XHigh));
        assert!(!preview.efforts.contains(&Effort::None));
    }

    #[test]
    fn a_gemini_model_has_the_levels_of_its_version() {
        let levels = |name| Gemini::of(name).efforts().len();
        for (name, expected) in [
            ("gemini-2.5-flash", 0),
            ("gemini-flash-latest", 0),
            ("gemma-4", 0),
            ("gemini-3-pro-preview", 2),
            ("models/gemini-3.1-pro-preview", 3),
            ("gemini-3.5-flash", 4),
            ("gemini-3.7-flash", 3),
            ("gemini-3.8-flash-lite", 4),
            ("gemini-4-argon", 3),
        ] {
            assert_eq!(levels(name), expected, "{name}");
        }
    }
}
