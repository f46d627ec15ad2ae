//! Models: the operator's settings for them, and a table of known context windows and prices of
//! cached input.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cache::{self, CacheKind, CacheRetention, CacheRules},
    policy_error::PolicyError,
    provider_format::Format,
    tokens::Tokens,
};

/// Prices of cached input, in thousandths of the price of plain input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Price of input that is read from the cache.
    pub cached: u32,
    /// Price of input that is written to the cache.
    pub write: u32,
}

impl Default for Prices {
    /// Anthropic's prices.
    fn default() -> Self {
        Self {
            cached: 100,
            write: 1_250,
        }
    }
}

impl Prices {
    /// How much more a token costs if it is written to the cache instead of read from it, in
    /// multiples of the price of reading: `(write - cached) / cached`.
    pub fn rho(self) -> f64 {
        f64::from(self.write.saturating_sub(self.cached)) / f64::from(self.cached.max(1))
    }

    /// These prices of a model that has such a cache, if it is asked to keep what is marked for so
    /// long. Without marks, a cache that needs them costs nothing and gives nothing.
    const fn under(self, kind: CacheKind, retention: CacheRetention, marks: bool) -> Self {
        match (kind, retention) {
            (CacheKind::Marked, _) if !marks => Self {
                cached: 1_000,
                write: 1_000,
            },
            (CacheKind::Marked, CacheRetention::Long) => Self {
                write: 2_000,
                ..self
            },
            _ => self,
        }
    }

    /// These prices, with the given ones in place of their own.
    pub(crate) const fn with(self, cached: Option<u32>, write: Option<u32>) -> Self {
        Self {
            cached: if let Some(price) = cached {
                price
            } else {
                self.cached
            },
            write: if let Some(price) = write {
                price
            } else {
                self.write
            },
        }
    }

    pub(crate) fn check(self) -> Result<(), PolicyError> {
        if self.cached == 0 || self.cached > 10_000 {
            return Err(PolicyError::new(
                "cache_read_price",
                "from 1 to 10000 (thousandths of plain input's price)",
            ));
        }
        if self.write == 0 || self.write > 10_000 {
            return Err(PolicyError::new(
                "cache_write_price",
                "from 1 to 10000 (thousandths of plain input's price)",
            ));
        }
        Ok(())
    }
}

/// Window and prices of one model. A field is None if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Model {
    /// Its context window, in tokens.
    pub window: Option<Tokens>,
    /// Its provider's prices for cached input.
    pub prices: Option<Prices>,
}

impl Model {
    /// This model with the window that its provider named in an error, if that is smaller than the
    /// known window or no window is known.
    #[must_use]
    pub fn with_learnt_window(self, learnt_window: Option<Tokens>) -> Self {
        let window = match (self.window, learnt_window) {
            (Some(window), Some(learnt)) => Some(window.min(learnt)),
            (window, learnt) => window.or(learnt),
        };
        Self { window, ..self }
    }
}

/// The operator's settings for a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// The name of the configured provider that serves it; None: anneal never calls this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name for it; None: the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_as: Option<String>,
    /// Most output tokens of one call; None: 4,096, but at most a quarter of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Tokens>,
    /// Most calls in flight, over all processes; None: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u32>,
    /// Its context window, in tokens; None: as in the shipped table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    /// Price of input read from the cache, in thousandths of plain input's price; None: see
    /// [`Models::find`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read_price: Option<u32>,
    /// Price of input written to the cache, in thousandths of plain input's price; None: see
    /// [`Models::find`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_price: Option<u32>,
}

/// The configured models. Other models are looked up in the shipped table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Models(BTreeMap<String, ModelSettings>);

impl Models {
    /// Window and prices of a model: from the configuration's entry with exactly this name, then
    /// from the longest matching prefix in the shipped table. The table ignores a provider before
    /// the name (`anthropic/claude-…`) and letter case. If only one price is known, the other is
    /// Anthropic's.
    pub fn find(&self, name: &str) -> Model {
        self.find_with(name, CacheRetention::Short, true)
    }

    /// [`Self::find`], with the prices that apply if what is marked is kept for so long, and with or
    /// without marks. The operator's prices apply in any case.
    pub fn find_with(&self, name: &str, retention: CacheRetention, marks: bool) -> Model {
        let known = known_model(name);
        let prices = known
            .prices
            .map(|prices| prices.under(self.cache_kind(name), retention, marks));
        let known = Model { prices, ..known };
        let Some(settings) = self.0.get(name) else {
            return known;
        };
        let has_prices = settings
            .cache_read_price
            .or(settings.cache_write_price)
            .is_some();
        let prices = (has_prices || known.prices.is_some()).then(|| {
            known
                .prices
                .unwrap_or_default()
                .with(settings.cache_read_price, settings.cache_write_price)
        });
        Model {
            window: settings.window_tokens.or(known.window),
            prices,
        }
    }

    /// The kind of cache that a model has, by the provider's name for it.
    pub fn cache_kind(&self, name: &str) -> CacheKind {
        cache::known_kind(self.served_as(name))
    }

    /// The rules of a model's cache, by the format of its contexts and the provider's name for it.
    pub(crate) fn cache_rules(&self, format: Format, name: &str) -> CacheRules {
        CacheRules::of(format, self.served_as(name))
    }

    /// The provider's name for a model.
    pub(crate) fn served_as<'a>(&'a self, name: &'a str) -> &'a str {
        let settings = self.0.get(name);
        settings
            .and_then(|settings| settings.served_as.as_deref())
            .unwrap_or(name)
    }

    /// The configured models, with their settings.
    pub fn configured(&self) -> impl Iterator<Item = (&str, &ModelSettings)> {
        self.0
            .iter()
            .map(|(name, settings)| (name.as_str(), settings))
    }

    /// Checks that every entry is valid.
    pub fn check(&self) -> Result<(), PolicyError> {
        for (name, settings) in &self.0 {
            self.find(name).prices.unwrap_or_default().check()?;
            if settings
                .window_tokens
                .is_some_and(|window| window == Tokens::ZERO)
            {
                return Err(PolicyError::new("window_tokens", "at least 1"));
            }
        }
        Ok(())
    }
}

/// Prefix of the name, window in tokens, and the prices of [`Prices`]: cached input, written input.
type KnownModel = (&'static str, u64, Option<(u32, u32)>);

/// Models as their providers published them in November 2026. A model has no prices here if its
/// provider has none for cached input, or if it has only other hosts, which set their own.
pub(crate) const KNOWN_MODELS: [KnownModel; 35] = [
    ("claude-", 200_000, Some((100, 1_250))),
    ("gpt-5", 400_000, Some((100, 1_000))),
    ("gpt-5.6", 400_000, Some((100, 1_250))),
    ("gpt-4.1", 1_047_576, Some((250, 1_000))),
    ("gpt-4o", 128_000, Some((500, 1_000))),
    ("gpt-4-turbo", 128_000, None),
    ("gpt-4-32k", 32_768, None),
    ("gpt-4", 8_192, None),
    ("gpt-3.5-turbo", 16_385, None),
    ("gpt-oss", 131_072, None),
    ("o1", 200_000, Some((500, 1_000))),
    ("o1-mini", 128_000, Some((500, 1_000))),
    ("o3", 200_000, Some((250, 1_000))),
    ("o3-mini", 200_000, Some((500, 1_000))),
    ("o4-mini", 200_000, Some((250, 1_000))),
    ("gemini-", 1_048_576, Some((250, 1_000))),
    ("gemini-1.5-pro", 2_097_152, Some((250, 1_000))),
    ("deepseek-", 131_072, Some((100, 1_000))),
    ("grok-4", 256_000, Some((250, 1_000))),
    ("grok-3", 131_072, Some((250, 1_000))),
    ("kimi-k2", 262_144, Some((250, 1_000))),
    ("glm-4", 131_072, Some((200, 1_000))),
    ("glm-4.6", 204_800, Some((200, 1_000))),
    ("minimax-m2", 204_800, None),
    ("qwen3", 262_144, None),
    ("qwen2.5", 131_072, None),
    ("mistral-large", 131_072, None),
    ("mistral-medium", 131_072, None),
    ("mistral-small", 131_072, None),
    ("codestral", 262_144, None),
    ("command-r", 128_000, None),
    ("command-a", 256_000, None),
    ("llama-3", 131_072, None),
    ("llama-4", 1_048_576, None),
    ("gemma-3", 131_072, None),
];

fn known_model(name: &str) -> Model {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let fitting = KNOWN_MODELS
        .iter()
        .filter(|(prefix, ..)| name.starts_with(prefix));
    let Some((_, window, prices)) = fitting.max_by_key(|(prefix, ..)| prefix.len()) else {
        return Model::default();
    };
    Model {
        window: Some(Tokens::new(*window)),
        prices: prices.map(|(cached, write)| Prices { cached, write }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_prefix_decides_the_window_of_a_model() {
        let window = |name| Models::default().find(name).window.map(Tokens::get);
        assert_eq!(window("gpt-4o-mini"), Some(128_000));
        assert_eq!(window("gpt-4"), Some(8_192));
        assert_eq!(window("openai/GPT-4.1-nano"), Some(1_047_576));
        assert_eq!(window("my-own"), None);
    }

    #[test]
    fn the_configured_window_replaces_the_known_one_and_a_providers_error_may_lower_it() {
        let settings = ModelSettings {
            window_tokens: Some(Tokens::new(32_000)),
            ..ModelSettings::default()
        };
        let models = Models(BTreeMap::from([("gpt-4o".to_owned(), settings)]));
        let model = models.find("gpt-4o");
        assert_eq!(model.window, Some(Tokens::new(32_000)));
        assert_eq!(
            model.prices,
            Some(Prices {
                cached: 500,
                write: 1_000
            })
        );
        assert_eq!(
            model.with_learnt_window(Some(Tokens::new(8_000))).window,
            Some(Tokens::new(8_000))
        );
        assert_eq!(
            Model::default()
                .with_learnt_window(Some(Tokens::new(8_000)))
                .window,
            Some(Tokens::new(8_000))
        );
    }

    #[test]
    fn written_input_costs_more_if_it_is_kept_for_an_hour() {
        let models = Models::default();
        let prices = |name, retention, marks| {
            let prices = models.find_with(name, retention, marks).prices;
            prices.map(|prices| (prices.cached, prices.write))
        };
        let claude = "claude-sonnet-4-5";
        let (short, long) = (CacheRetention::Short, CacheRetention::Long);
        assert_eq!(prices(claude, short, true), Some((100, 1_250)));
        assert_eq!(
            prices(claude, CacheRetention::LongHead, true),
            Some((100, 1_250))
        );
        assert_eq!(prices(claude, long, true), Some((100, 2_000)));
        assert_eq!(prices(claude, long, false), Some((1_000, 1_000)));
        assert_eq!(prices("gpt-5.5", long, false), Some((100, 1_000)));
        assert_eq!(prices("gpt-5.6", short, false), Some((100, 1_250)));
    }

    #[test]
    fn rho_is_the_relative_extra_cost_of_writing_to_the_cache() {
        assert!((Prices::default().rho() - 11.5).abs() < 1e-9);
        assert!(
            (Prices {
                cached: 20,
                write: 1_000
            }
            .rho()
                - 49.0)
                .abs()
                < 1e-9
        );
    }
}
