//! The options of a turn: those of the request, of the conversation and of the agent together.

use anneal_core::{
    chat_options::{ChatOptions, Tool},
    tokens::{Encoding, Tokens},
};

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

/// Estimated tokens of the declared tools, in the default encoding: the model is not chosen yet.
pub(super) fn tools_tokens(options: &ChatOptions) -> Tokens {
    let encoding = Encoding::default();
    let estimate = |tool: &Tool| tool.estimate_tokens(encoding);
    options.tools().iter().map(estimate).sum()
}
