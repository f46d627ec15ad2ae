//! The settings in force for a conversation: the server's settings, a profile and the
//! conversation's overrides become one policy.

use std::collections::BTreeSet;

use super::{
    Cooling, KeepRecent, LargeSummaries, Policy, PolicyOverrides, Profile, TokenThreshold,
};
use crate::{
    cache::{self, CacheKind, CacheRetention, CacheRules, can_be_cached_for_a_day},
    digest,
    model::{self, Model, Models},
    provider_format::Format,
    tokens::Tokens,
};

/// The settings of conversations without overrides: the `[session]` section, and the configured
/// models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionSettings {
    server: PolicyOverrides,
    models: Models,
    /// Names of the models whose requests do not ask for their provider's cache.
    unmarked: BTreeSet<String>,
}

impl SessionSettings {
    /// Settings from the `[session]` section and the configured models.
    pub const fn new(server: PolicyOverrides, models: Models) -> Self {
        Self {
            server,
            models,
            unmarked: BTreeSet::new(),
        }
    }

    /// These settings, if requests of the models with these names do not ask for their provider's
    /// cache. Their policies have the prices and the lifetime of a cache without marks.
    #[must_use]
    pub fn with_unmarked(self, models: impl IntoIterator<Item = String>) -> Self {
        Self {
            unmarked: models.into_iter().collect(),
            ..self
        }
    }

    /// The rules of a model's cache, if contexts in this format ask for it.
    pub fn cache_rules(&self, format: Format, model: &str) -> CacheRules {
        self.models.cache_rules(format, model)
    }

    /// The window of a model: the known one, or `learnt`, which its provider named in an error,
    /// whichever is smaller. None: neither is there.
    pub fn window_of(&self, model: &str, learnt: Option<Tokens>) -> Option<Tokens> {
        self.models.find(model).with_learnt_window(learnt).window
    }

    /// The policy in force with a conversation's overrides. `learnt_window` is the window that the
    /// provider named in an error.
    ///
    /// Each key comes from the first of these that sets it:
    /// 1. the conversation;
    /// 2. the conversation's profile;
    /// 3. the server's settings;
    /// 4. if the conversation has no profile: the server's profile, or else the default profile.
    ///
    /// Keys that no profile sets (model, window, prices, lifetime of the cache) come from the
    /// conversation, the server, or the model.
    pub fn policy(&self, overrides: &PolicyOverrides, learnt_window: Option<Tokens>) -> Policy {
        let set = self.resolved(overrides);
        let cache_marks = set.cache_marks.unwrap_or(true);
        let cache_retention = set.cache_retention.unwrap_or_default();
        let name = set.model.as_deref();
        // Requests ask for the cache if both the policy and the model's provider say so.
        let asks = cache_marks && name.is_none_or(|name| !self.unmarked.contains(name));
        let model = name
            .map(|name| self.models.find_with(name, cache_retention, asks))
            .unwrap_or_default();
        let Model { window, prices } = model.with_learnt_window(learnt_window);
        let prices = prices.unwrap_or_default();
        let window = set.window_tokens.or(window);
        Policy {
            token_threshold: set.token_threshold.unwrap_or(TokenThreshold::Auto),
            max_message_count: set.max_message_count.unwrap_or(0),
            keep_recent: set.keep_recent.unwrap_or(KeepRecent::Turns(5)),
            large_message_threshold: set.large_message_threshold.unwrap_or_default(),
            hot_zone_radius: set.hot_zone_radius.unwrap_or(0),
            hot_zone_calls: set.hot_zone_calls.unwrap_or(0),
            cooling: set.cooling.unwrap_or(Cooling::Strict),
            large_summaries: set.large_summaries.unwrap_or(LargeSummaries::Eager),
            store_tool_messages: set.store_tool_messages.unwrap_or(true),
            cache_ttl_seconds: set
                .cache_ttl_seconds
                .unwrap_or_else(|| self.cache_ttl_seconds(name, cache_retention, asks)),
            window: window.unwrap_or(ASSUMED_WINDOW),
            window_known: window.is_some(),
            prices: prices.with(set.cache_read_price, set.cache_write_price),
            cache_marks,
            cache_retention,
            idle_checkpoints: set.idle_checkpoints.unwrap_or_default(),
            keep_partial: set.keep_partial.unwrap_or(true),
        }
    }

    /// Seconds that the provider of a model keeps an unused prefix in its cache. `asks`: whether
    /// requests ask for the cache. Only requests that do are kept for longer than usual.
    fn cache_ttl_seconds(&self, model: Option<&str>, retention: CacheRetention, asks: bool) -> u32 {
        let Some(model) = model else {
            return SHORT_TTL_SECONDS;
        };
        let is_long = asks && retention == CacheRetention::Long;
        match self.models.cache_kind(model) {
            CacheKind::Breakpoints => BREAKPOINT_TTL_SECONDS,
            CacheKind::Marked if is_long => LONG_TTL_SECONDS,
            CacheKind::AnyPrefix
                if is_long && can_be_cached_for_a_day(self.models.served_as(model)) =>
            {
                LONG_TTL_SECONDS
            }
            _ => SHORT_TTL_SECONDS,
        }
    }

    /// The value of every key that the conversation, the server or a profile sets.
    pub fn resolved(&self, overrides: &PolicyOverrides) -> PolicyOverrides {
        let base = self.base(overrides.profile);
        overrides.clone().over(base)
    }

    /// The settings that apply to a conversation with this profile where its overrides set no key.
    /// None: the conversation has no profile.
    fn base(&self, profile: Option<Profile>) -> PolicyOverrides {
        let server = self.server.clone();
        if let Some(profile) = profile {
            return profile.settings().over(server);
        }
        let preset = server.profile.unwrap_or(Profile::Default).settings();
        server.over(preset)
    }

    /// A number that differs if the settings, the shipped profiles and models, or the rules of
    /// triggers differ. It is stored with trigger bounds, which are valid only while it is the
    /// same.
    pub fn fingerprint(&self) -> i64 {
        let bases = std::iter::once(None)
            .chain(Profile::ALL.into_iter().map(Some))
            .map(|profile| self.base(profile));
        let settings = (
            TRIGGER_RULES_VERSION,
            bases.collect::<Vec<_>>(),
            (&self.models, &self.unmarked),
            model::KNOWN_MODELS.as_slice(),
            cache::KNOWN_CACHES.as_slice(),
        );
        let digest = digest::of_content(&format!("{settings:?}"));
        digest.first_chunk().copied().map_or(0, i64::from_be_bytes)
    }

    /// A JSON object that has for each profile's name ("" for no profile) an object with the
    /// profile's settings that SQL statements read, such as those that decide which messages are
    /// cool. It is sent with many statements, so it holds no other settings.
    pub fn bases(&self) -> String {
        let all = std::iter::once(None).chain(Profile::ALL.into_iter().map(Some));
        let bases = all.map(|profile| {
            (
                profile.map_or("", Profile::name),
                self.base(profile).keys_read_by_sql(),
            )
        });
        let bases: std::collections::BTreeMap<&str, PolicyOverrides> = bases.collect();
        serde_json::to_string(&bases).unwrap_or_default()
    }

    /// Names of the profiles ("" for no profile) whose conversations keep no tool messages, unless
    /// their overrides say otherwise.
    pub fn profiles_without_tool_messages(&self) -> Vec<&'static str> {
        std::iter::once(None)
            .chain(Profile::ALL.into_iter().map(Some))
            .filter(|profile| self.base(*profile).store_tool_messages == Some(false))
            .map(|profile| profile.map_or("", Profile::name))
            .collect()
    }
}

/// Version of the rules by which `trigger` computes its bounds. Bounds computed under another
/// version are ignored.
const TRIGGER_RULES_VERSION: u64 = 2;

/// Seconds that providers keep an unused prefix in their caches, unless a setting says otherwise.
const SHORT_TTL_SECONDS: u32 = 300;
/// The same of prefixes that they are asked to keep for longer.
const LONG_TTL_SECONDS: u32 = 3_600;
/// The same of OpenAI's models from gpt-5.6 on.
const BREAKPOINT_TTL_SECONDS: u32 = 1_800;

/// The window assumed for an unknown model, in tokens.
const ASSUMED_WINDOW: Tokens = Tokens::new(128_000);
