//! Which options a model accepts. An option that it does not accept is refused, and never dropped.
//! `known_models` says what is known of a model by its name.

use anneal_core::chat_options::{
    ChatOption, ChatOptions, ReasoningEffort, ResponseFormat, ToolChoice,
};

use super::{
    Api, Model,
    known_models::{Claude, Gemini, Sampling, effort_name},
};

/// Most stop texts of each protocol.
const OPENAI_STOP_TEXTS: usize = 4;
const ANTHROPIC_STOP_TEXTS: usize = 16;
const GEMINI_STOP_TEXTS: usize = 5;

/// Anthropic accepts no top_p below this beside thinking.
const MIN_TOP_P_BESIDE_THINKING: f32 = 0.95;

/// The only key of Anthropic's metadata.
const USER_ID: &str = "user_id";

/// Why a model does not accept an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRefusal {
    /// The option.
    pub option: ChatOption,
    /// Why, as a sentence without a subject and without a full stop.
    pub sentence: String,
}

/// The refused option, and the reason.
type Refused = (ChatOption, String);

impl Model {
    /// Refuses the first option that the model does not accept.
    pub fn check_options(&self, options: &ChatOptions) -> Result<(), OptionRefusal> {
        let (protocol, checked) = match self.provider.api {
            Api::OpenAi => (
                "OpenAI",
                check_openai(options, self.provider.is_default_host),
            ),
            Api::Anthropic => (
                "Anthropic",
                check_anthropic(options, Claude::of(&self.served_as)),
            ),
            Api::Gemini => ("Gemini", check_gemini(options, Gemini::of(&self.served_as))),
        };
        check_tool_choice(options)
            .and(checked)
            .map_err(|(option, reason)| OptionRefusal {
                option,
                sentence: format!(
                    "is not accepted by the model {} ({protocol}): {reason}",
                    self.name
                ),
            })
    }
}

/// A choice of a tool needs that tool.
fn check_tool_choice(options: &ChatOptions) -> Result<(), Refused> {
    let is_declared = |name: &str| options.tools().iter().any(|tool| tool.name() == name);
    match &options.tool_choice {
        Some(ToolChoice::Named(name)) if !is_declared(name) => refuse(
            ChatOption::ToolChoice,
            format!("no tool {name:?} is declared"),
        ),
        Some(ToolChoice::Required) if options.tools().is_empty() => {
            refuse(ChatOption::ToolChoice, "no tool is declared")
        }
        _ => Ok(()),
    }
}

fn check_openai(options: &ChatOptions, is_default_host: bool) -> Result<(), Refused> {
    check_stop(options, OPENAI_STOP_TEXTS)?;
    if options.metadata.is_some() && is_default_host {
        return refuse(
            ChatOption::Metadata,
            "it takes labels only for answers that it stores, and it is asked to store none",
        );
    }
    Ok(())
}

fn check_anthropic(options: &ChatOptions, claude: Claude) -> Result<(), Refused> {
    match &options.response_format {
        Some(ResponseFormat::JsonObject) => {
            return refuse(
                ChatOption::ResponseFormat,
                "it writes JSON only by a schema",
            );
        }
        Some(ResponseFormat::JsonSchema { .. }) if !claude.has_schemas => {
            return refuse(ChatOption::ResponseFormat, "it cannot follow a schema");
        }
        _ => {}
    }
    if let Some(effort) = options.reasoning_effort {
        check_effort(effort, claude.efforts)?;
    }
    check_sampling(options, claude)?;
    check_stop(options, ANTHROPIC_STOP_TEXTS)?;
    let mut stop = options.stop.iter().flatten();
    if stop.any(|text| text.trim().is_empty()) {
        return refuse(ChatOption::Stop, "a stop text must not be blank");
    }
    let is_forced = matches!(
        options.tool_choice,
        Some(ToolChoice::Required | ToolChoice::Named(_))
    );
    if is_forced && thinks(options, claude) {
        return refuse(
            ChatOption::ToolChoice,
            "it cannot be made to call a tool while it thinks: leave out reasoning_effort",
        );
    }
    let mut keys = options.metadata.iter().flatten().map(|(key, _)| key);
    if keys.any(|key| key != USER_ID) {
        return refuse(ChatOption::Metadata, format!("its only key is {USER_ID}"));
    }
    Ok(())
}

/// Checks temperature and top_p for Anthropic.
fn check_sampling(options: &ChatOptions, claude: Claude) -> Result<(), Refused> {
    let (temperature, top_p) = (options.temperature, options.top_p);
    if claude.sampling == Sampling::Neither {
        let no_sampling = "its sampling cannot be set";
        if temperature.is_some() {
            return refuse(ChatOption::Temperature, no_sampling);
        }
        if top_p.is_some() {
            return refuse(ChatOption::TopP, no_sampling);
        }
    }
    if temperature.is_some_and(|value| value > 1.0) {
        return refuse(ChatOption::Temperature, "it takes 0 to 1");
    }
    if claude.sampling == Sampling::One && temperature.is_some() && top_p.is_some() {
        return refuse(ChatOption::TopP, "it takes temperature or top_p, not both");
    }
    if thinks(options, claude) {
        if temperature.is_some() {
            return refuse(
                ChatOption::Temperature,
                "it takes none while it thinks: leave out reasoning_effort",
            );
        }
        if top_p.is_some_and(|value| value < MIN_TOP_P_BESIDE_THINKING) {
            return refuse(ChatOption::TopP, "it takes 0.95 to 1 while it thinks");
        }
    }
    Ok(())
}

/// Whether the options make a Claude model think.
fn thinks(options: &ChatOptions, claude: Claude) -> bool {
    claude.thinking(options.reasoning_effort) == Some("adaptive")
}

fn check_gemini(options: &ChatOptions, gemini: Gemini) -> Result<(), Refused> {
    if options.parallel_tool_calls == Some(false) {
        return refuse(
            ChatOption::ParallelToolCalls,
            "parallel calls cannot be switched off",
        );
    }
    // Tools that are not to be called are left out beside a shape (`request.rs`).
    let has_tools = !options.tools().is_empty() && options.tool_choice != Some(ToolChoice::None);
    if options.response_format.is_some() && has_tools && !gemini.has_shapes_beside_tools() {
        return refuse(
            ChatOption::ResponseFormat,
            "before Gemini 3 it cannot be given beside tools",
        );
    }
    if !gemini.has_sampling() {
        let no_sampling = "it ignores sampling options";
        if options.temperature.is_some() {
            return refuse(ChatOption::Temperature, no_sampling);
        }
        if options.top_p.is_some() {
            return refuse(ChatOption::TopP, no_sampling);
        }
    }
    check_stop(options, GEMINI_STOP_TEXTS)?;
    if let Some(effort) = options.reasoning_effort {
        check_effort(effort, gemini.efforts())?;
    }
    if options.metadata.is_some() {
        return refuse(ChatOption::Metadata, "it takes no labels");
    }
    Ok(())
}

fn check_stop(options: &ChatOptions, most: usize) -> Result<(), Refused> {
    if options.stop.as_ref().is_some_and(|stop| stop.len() > most) {
        return refuse(
            ChatOption::Stop,
            format!("it takes at most {most} stop texts"),
        );
    }
    Ok(())
}

fn check_effort(effort: ReasoningEffort, accepted: &[ReasoningEffort]) -> Result<(), Refused> {
    if accepted.is_empty() {
        return refuse(ChatOption::ReasoningEffort, "no effort of it is known");
    }
    if !accepted.contains(&effort) {
        let names: Vec<&str> = accepted.iter().copied().map(effort_name).collect();
        return refuse(
            ChatOption::ReasoningEffort,
            format!("its efforts are {}", names.join(", ")),
        );
    }
    Ok(())
}

fn refuse(option: ChatOption, reason: impl Into<String>) -> Result<(), Refused> {
    Err((option, reason.into()))
}
