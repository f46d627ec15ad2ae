//! The options of a turn: those of the request, of the conversation and of the agent together.

use anneal_core::{
    chat_options::{ChatOptions, ResponseFormat, Tool, ToolChoice},
    tokens::{Encoding, Tokens},
};
use anneal_store::Conversation;

use crate::settings::ReloadableSettings;

/// Tokens that an option takes beside its text: its name and its marks.
const TOKENS_PER_OPTION: Tokens = Tokens::new(4);

/// The options of a turn in this conversation.
pub(super) fn of_turn(
    request: ChatOptions,
    conversation: &Conversation,
    settings: &ReloadableSettings,
) -> ChatOptions {
    let attributes = &conversation.attributes;
    let agent = settings.agents.get(&attributes.agent_id);
    resolve(
        request,
        attributes.chat_options.clone(),
        agent.map(|agent| agent.chat.options()),
    )
}

/// The options in force: each from the request, else from the conversation (`stored`), else from the
/// agent. A request that names no tools and chooses none switches those of the others off.
fn resolve(request: ChatOptions, stored: ChatOptions, agent: Option<ChatOptions>) -> ChatOptions {
    let switches_tools_off =
        request.tools.is_none() && request.tool_choice == Some(ToolChoice::None);
    let mut options = request.over(stored).over(agent.unwrap_or_default());
    if switches_tools_off {
        options.tools = None;
    }
    options
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
        assert_eq!(resolve(request, stored, Some(agent)), expected);
    }

    #[test]
    fn a_request_that_chooses_no_tool_switches_stored_tools_off() {
        let stored = ChatOptions {
            tools: Some(tools("look")),
            ..ChatOptions::default()
        };
        let none = ChatOptions {
            tool_choice: Some(ToolChoice::None),
            ..ChatOptions::default()
        };
        assert_eq!(resolve(none.clone(), stored.clone(), None).tools, None);
        let own = ChatOptions {
            tools: Some(tools("other")),
            ..none
        };
        assert_eq!(resolve(own, stored, None).tools, Some(tools("other")));
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
