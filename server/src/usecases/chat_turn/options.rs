//! The options of a turn: those of the request, of the conversation and of the agent together.

use anneal_core::{
    chat_options::{ChatOptions, Tool},
    tokens::{Encoding, Tokens},
};
use anneal_store::Conversation;

use crate::settings::ReloadableSettings;

/// The options of a turn in this conversation. Neither conversations nor agents have options yet.
pub(super) fn of_turn(
    request: ChatOptions,
    _conversation: &Conversation,
    _settings: &ReloadableSettings,
) -> ChatOptions {
    resolve(request, None, None)
}

/// The options in force: each from the request, else from the conversation (`stored`), else from the
/// agent.
pub(super) fn resolve(
    request: ChatOptions,
    stored: Option<ChatOptions>,
    agent: Option<&ChatOptions>,
) -> ChatOptions {
    let with_stored = request.over(stored.unwrap_or_default());
    match agent {
        Some(agent) => with_stored.over(agent.clone()),
        None => with_stored,
    }
}

/// Estimated tokens of what is sent beside the context: the declared tools.
pub(super) fn reserved_tokens(options: &ChatOptions, encoding: Encoding) -> Tokens {
    let estimate = |tool: &Tool| tool.estimate_tokens(encoding);
    options.tools().iter().map(estimate).sum()
}
