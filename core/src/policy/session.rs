//! From the server's settings, a profile and a conversation's overrides to the policy in force.

use super::{Cooling, KeepRecent, LargeSummaries, Policy, PolicyOverrides, Profile, TokenThreshold};
use crate::{
    digest,
    model::{self, Model, Models},
    tokens::Tokens,
    trigger,
};

/// What holds for conversations that say nothing themselves: the `[session]` settings and the table of models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    own: PolicyOverrides,
    models: Models,
}

impl Session {
    /// The server's settings.
    pub const fn new(own: PolicyOverrides, models: Models) -> Self {
        Self { own, models }
    }

    /// The keys that the server sets.
    pub const fn own(&self) -> &PolicyOverrides {
        &self.own
    }

    /// The policy in force under a conversation's overrides. `learnt` is the window that a provider has named.
    ///
    /// Each key comes from the first that sets it: the conversation; its profile; the server's settings; their profile;
    /// the default profile. Keys that no profile sets (model, window, prices) come from the conversation or the server.
    pub fn policy(&self, overrides: &PolicyOverrides, learnt: Option<Tokens>) -> Policy {
        let set = self.resolved(overrides);
        let model = set.model.as_deref().map(|name| self.models.find(name)).unwrap_or_default();
        let Model { window, prices } = model.with_learnt(learnt);
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
            cache_ttl_seconds: set.cache_ttl_seconds.unwrap_or(CACHE_TTL_SECONDS),
            window: window.unwrap_or(ASSUMED_WINDOW),
            window_known: window.is_some(),
            prices: prices.with(set.cache_read_price, set.cache_write_price),
        }
    }

    /// Every key that is set, profiles spelt out.
    pub fn resolved(&self, overrides: &PolicyOverrides) -> PolicyOverrides {
        let base = self.base(overrides.profile);
        overrides.clone().over(base)
    }

    /// What a conversation of this profile (None: of none) starts from.
    fn base(&self, profile: Option<Profile>) -> PolicyOverrides {
        let own = self.own.clone();
        if let Some(profile) = profile {
            return profile.settings().over(own);
        }
        let preset = own.profile.unwrap_or(Profile::Default).settings();
        own.over(preset)
    }

    /// A number that differs when the settings do, what is shipped with them, or how triggers go by them.
    pub fn fingerprint(&self) -> i64 {
        let bases = std::iter::once(None).chain(Profile::ALL.into_iter().map(Some)).map(|profile| self.base(profile));
        let settings = (trigger::VERSION, bases.collect::<Vec<_>>(), &self.models, model::KNOWN.as_slice());
        let digest = digest::of_content(&format!("{settings:?}"));
        digest.first_chunk().copied().map_or(0, i64::from_be_bytes)
    }

    /// The same for statements that decide about coolness themselves: a JSON object from profile name ("" for none) to
    /// those of its keys that statements read. It goes with every context: no more than that.
    pub fn bases(&self) -> String {
        let all = std::iter::once(None).chain(Profile::ALL.into_iter().map(Some));
        let bases = all.map(|profile| (profile.map_or("", Profile::name), self.base(profile).read_by_statements()));
        let bases: std::collections::BTreeMap<&str, PolicyOverrides> = bases.collect();
        serde_json::to_string(&bases).unwrap_or_default()
    }
}

/// How long providers keep a cached prefix that nobody asks for.
const CACHE_TTL_SECONDS: u32 = 300;
/// The window of a model that nobody knows.
const ASSUMED_WINDOW: Tokens = Tokens::new(128_000);
