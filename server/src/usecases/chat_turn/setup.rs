//! How a turn calls its models: options and the provider's cache.

use anneal_core::{
    cache::{CacheAsk, CacheRetention},
    chat_options::ChatOptions,
    digest::{self, Digest},
    policy::PolicyOverrides,
    tokens::{Encoding, Tokens},
};
use anneal_llm::provider::Model;
use anneal_store::Conversation;

use super::{
    options::{self, InheritedOptions},
    request::TurnRequest,
};
use crate::settings::ReloadableSettings;

/// The agent of a turn that has none.
pub(super) const NO_AGENT: &str = "";

/// How a turn calls its models.
#[derive(Debug, Clone)]
pub(super) struct TurnSetup {
    /// How the models answer.
    pub(super) options: ChatOptions,
    /// Those of them that the request does not set.
    pub(super) inherited: InheritedOptions,
    /// Tokens of the options, which are sent beside the context.
    pub(super) reserved: Tokens,
    encoding: Encoding,
    /// Whether requests say what the provider should cache.
    marks: bool,
    retention: CacheRetention,
    /// Requests with the same key share a cache. A fork begins like its source. None: the turn is
    /// not stored, and nothing says which requests begin like it.
    cache_key: Option<String>,
    /// Digest of the conversation's system prompt.
    pub(super) system_prompt: Digest,
}

impl TurnSetup {
    /// The setup of a turn of this conversation. `policy` is the conversation's, resolved.
    pub(super) fn of(
        turn: &TurnRequest,
        conversation: &Conversation,
        policy: &PolicyOverrides,
        settings: &ReloadableSettings,
    ) -> Self {
        let attributes = &conversation.attributes;
        let stored = attributes.chat_options.clone();
        let options =
            options::of_turn(turn.options.clone(), stored, &attributes.agent_id, settings);
        let origin = conversation.forked_from.map(|origin| origin.conversation);
        Self {
            cache_key: Some(origin.unwrap_or(conversation.id).to_string()),
            system_prompt: digest::of_content(&attributes.system_prompt),
            ..Self::with_options(options, attributes.encoding, policy)
        }
    }

    /// The setup of a turn that is not stored. `policy` is the server's, resolved.
    pub(super) fn of_unstored(
        turn: &TurnRequest,
        encoding: Encoding,
        policy: &PolicyOverrides,
        settings: &ReloadableSettings,
    ) -> Self {
        let stored = ChatOptions::default();
        let options = options::of_turn(turn.options.clone(), stored, NO_AGENT, settings);
        Self::with_options(options, encoding, policy)
    }

    /// A setup without a key of the cache and without a system prompt.
    fn with_options(
        (options, inherited): (ChatOptions, InheritedOptions),
        encoding: Encoding,
        policy: &PolicyOverrides,
    ) -> Self {
        Self {
            reserved: options::reserved_tokens(&options, encoding),
            options,
            inherited,
            encoding,
            marks: policy.cache_marks.unwrap_or(true),
            retention: policy.cache_retention.unwrap_or_default(),
            cache_key: None,
            system_prompt: digest::of_content(""),
        }
    }

    /// What a context for this model needs to know of the provider's cache.
    pub(super) fn cache_ask(&self, model: &Model) -> CacheAsk {
        CacheAsk {
            rules: model.cache_rules(),
            retention: self.retention,
            marks: self.asks_for_marks(model),
            identity: self.options.identity(model.name(), self.encoding),
        }
    }

    /// Whether contexts for this model say what its provider should cache.
    pub(super) fn asks_for_marks(&self, model: &Model) -> bool {
        self.marks && model.asks_for_cache()
    }

    /// The key of the cache, where a provider asks for one.
    pub(super) fn cache_key(&self) -> Option<&str> {
        self.cache_key.as_deref().filter(|_| self.marks)
    }

    /// Whether the provider should keep what it caches for its longest time.
    pub(super) fn wants_long_retention(&self) -> bool {
        self.marks && self.retention == CacheRetention::Long
    }
}
