//! The settings that a conversation, a call, or the server's `[session]` section can set.

use serde::{Deserialize, Serialize};

use super::{Cooling, IdleCheckpoints, KeepRecent, LargeSummaries, Profile, TokenThreshold};
use crate::{cache::CacheRetention, tokens::Tokens};

macro_rules! overrides {
    ($($(#[$doc:meta])* $key:ident: $kind:ty,)*) => {
        /// Settings of one level (a call, a conversation, a profile or the server): those that are
        /// set. For an absent key the value of the next level applies. Stored as jsonb, or read
        /// from `[session]`.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct PolicyOverrides {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$kind>,)*
        }

        impl PolicyOverrides {
            /// The names of all keys.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            /// These settings, with those of `other` for keys that are absent here.
            #[must_use]
            pub fn over(self, other: Self) -> Self {
                Self { $($key: self.$key.or(other.$key),)* }
            }
        }
    };
}

impl PolicyOverrides {
    /// Only the keys that statements in `store/sql` read by name.
    pub(super) fn keys_read_by_sql(self) -> Self {
        Self {
            large_message_threshold: self.large_message_threshold,
            hot_zone_radius: self.hot_zone_radius,
            hot_zone_calls: self.hot_zone_calls,
            cooling: self.cooling,
            model: self.model,
            ..Self::default()
        }
    }
}

overrides! {
    /// A shipped preset. The other keys of the same level override its values.
    profile: Profile,
    /// See [`super::Policy::token_threshold`].
    token_threshold: TokenThreshold,
    /// See [`super::Policy::max_message_count`].
    max_message_count: u32,
    /// See [`super::Policy::keep_recent`].
    keep_recent: KeepRecent,
    /// See [`super::Policy::large_message_threshold`].
    large_message_threshold: Tokens,
    /// See [`super::Policy::hot_zone_radius`].
    hot_zone_radius: u32,
    /// See [`super::Policy::hot_zone_calls`].
    hot_zone_calls: u32,
    /// See [`super::Policy::cooling`].
    cooling: Cooling,
    /// See [`super::Policy::large_summaries`].
    large_summaries: LargeSummaries,
    /// See [`super::Policy::store_tool_messages`].
    store_tool_messages: bool,
    /// See [`super::Policy::cache_ttl_seconds`].
    cache_ttl_seconds: u32,
    /// The model that the conversation is for. It decides window and prices.
    model: String,
    /// The model's context window, if it differs from the known one.
    window_tokens: Tokens,
    /// Price of input read from the cache, in thousandths of plain input's price, if it differs
    /// from the model's known one.
    cache_read_price: u32,
    /// Price of input written to the cache, in thousandths of plain input's price.
    cache_write_price: u32,
    /// See [`super::Policy::cache_marks`].
    cache_marks: bool,
    /// See [`super::Policy::cache_retention`].
    cache_retention: CacheRetention,
    /// See [`super::Policy::idle_checkpoints`].
    idle_checkpoints: IdleCheckpoints,
    /// See [`super::Policy::keep_partial`].
    keep_partial: bool,
}
