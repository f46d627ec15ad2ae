//! The options of a turn: those of the request, of the conversation and of the agent together.

use crate::settings::ReloadableSettings;
use anneal_core::{
    chat_options::{ChatOption, ChatOptions, ResponseFormat, Tool},
    tokens::{Encoding, Tokens},
};

/// Tokens that an option takes beside its text: its name and its marks.
const TOKENS_PER_OPTION: Tokens = Tokens::new(4);

/// The options that the conversation sets, and not the request, and those that only the agent sets.
/// A caller may not know of either.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InheritedOptions {
    of_conversation: Vec<ChatOption>,
    of_agent: Vec<ChatOption>,
}

impl InheritedOptions {
    /// The end of a sentence about an option: where it comes from, if not from the request.
    pub(super) fn origin(&self, option: ChatOption) -> &'static str {
        if self.of_conversation.contains(&option) {
            " (set by the conversation)"
        } else if self.of_agent.contains(&option) {
            " (set by the agent)"
        } else {
            ""
        }
    }
}

/// The options of a turn with this agent, and which of them are not from its request. `stored`:
/// those of its conversation.
pub(super) fn of_turn(
    request: ChatOptions,
    stored: ChatOptions,
    agent_id: &str,
    settings: &ReloadableSettings,
) -> (ChatOptions, InheritedOptions) {
    let agent = settings.agents.get(agent_id);
    let agent = agent.map(|agent| agent.chat.options()).unwrap_or_default();
    resolve(request, stored, agent)
}

/// The options in force: each from the request, else from the conversation (`stored`), else from the
/// agent. Tools that a request chooses not to call are sent all the same: without them nothing of
/// the provider's cache would be of use.
fn resolve(
    request: ChatOptions,
    stored: ChatOptions,
    agent: ChatOptions,
) -> (ChatOptions, InheritedOptions) {
    let (of_request, mut of_conversation) = (request.given(), stored.given());
    of_conversation.retain(|option| !of_request.contains(option));
    let mut of_agent = agent.given();
    of_agent.retain(|option| !of_request.contains(option) && !of_conversation.contains(option));
    let inherited = InheritedOptions {
        of_conversation,
        of_agent,
    };
    (request.over(stored).over(agent), inherited)
}

/// Estimated tokens of what is sent beside the context: the declared tools, a schema of the answer,
/// and other texts.
pub(super) fn reserved_tokens(options: &ChatOptions, encoding: Encoding) -> Tokens {
    let tools = options.tools().iter();
    let tools: Tokens = tools
        .map(|tool: &Tool| tool.estimate_tokens(encoding))
        .sum();
    let schema = match &options.response_format {
        Some(ResponseFormat::JsonSchema { name, schema, .. }) => {
            encoding.estimate(name) + encoding.estimate(schema)
        }
        Some(ResponseFormat::JsonObject) | None => Tokens::ZERO,
    };
    let given = [
        options.tool_choice.is_some(),
        options.parallel_tool_calls.is_some(),
        options.response_format.is_some(),
        options.stop.is_some(),
        options.reasoning_effort.is_some(),
        options.metadata.is_some(),
    ];
    let count = given.into_iter().filter(|is_given| *is_given);
    let names: Tokens = count.map(|_| TOKENS_PER_OPTION).sum();
    tools + schema + names
}

#[cfg(test)]
mod tests {
    use anneal_core::chat_options::ToolChoice;

    use super::*;

    fn tools(name: &str) -> Vec<Tool> {
        let tool = Tool::new(name.into(), String::new(), "{}".into());
        vec![tool.expect("a valid tool")]
    }

    #[test]
    fn each_option_comes_from_the_first_level_that_has_it() {
        let request = ChatOptions {
            temperature: Some(0.25),
            ..ChatOptions::default()
        };
        let stored = ChatOptions {
            temperature: Some(0.5),
            top_p: Some(0.5),
            ..ChatOptions::default()
        };
        let agent = ChatOptions {
            top_p: Some(0.75),
            tools: Some(tools("look")),
            ..ChatOptions::default()
        };
        let expected = ChatOptions {
            temperature: Some(0.25),
            top_p: Some(0.5),
            tools: Some(tools("look")),
            ..ChatOptions::default()
        };
        let (options, inherited) = resolve(request, stored, agent);
        assert_eq!(options, expected);
        for (option, origin) in [
            (ChatOption::Temperature, ""),
            (ChatOption::TopP, " (set by the conversation)"),
            (ChatOption::Tools, " (set by the agent)"),
            (ChatOption::Stop, ""),
        ] {
            assert_eq!(inherited.origin(option), origin, "{option:?}");
        }
    }

    #[test]
    fn a_request_that_chooses_no_tool_declares_the_stored_tools() {
        let stored = ChatOptions {
            tools: Some(tools("look")),
            tool_choice: Some(ToolChoice::Required),
            ..ChatOptions::default()
        };
        let none = ChatOptions {
            tool_choice: Some(ToolChoice::None),
            ..ChatOptions::default()
        };
        let expected = ChatOptions {
            tool_choice: Some(ToolChoice::None),
            ..stored.clone()
        };
        let (options, _) = resolve(none, stored, ChatOptions::default());
        assert_eq!(options, expected);
    }

    #[test]
    fn a_schema_and_each_option_take_tokens() {
        let encoding = Encoding::default();
        let reserved = |options: &ChatOptions| reserved_tokens(options, encoding);
        let mut options = ChatOptions {
            temperature: Some(0.5),
            ..ChatOptions::default()
        };
        assert_eq!(reserved(&options), Tokens::ZERO);
        options.tool_choice = Some(ToolChoice::Auto);
        assert_eq!(reserved(&options), TOKENS_PER_OPTION);
        options.response_format = Some(ResponseFormat::JsonSchema {
            name: "answer".into(),
            schema: "{\"type\": \"object\"}".repeat(10),
            strict: true,
        });
        assert!(reserved(&options) > TOKENS_PER_OPTION + Tokens::new(40));
    }
}
