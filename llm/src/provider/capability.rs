//! Which options a model accepts. An option that it does not accept is refused, and never dropped.

use anneal_core::chat_options::ChatOptions;

use super::Model;

/// Why a model does not accept an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRefusal {
    /// The name of the option.
    pub field: &'static str,
    /// Why, as a sentence without a subject and without a full stop.
    pub sentence: String,
}

impl Model {
    /// Refuses the first option that calls of this model do not send. Tools, temperature and the
    /// limit of output are sent to every provider.
    pub fn check_options(&self, options: &ChatOptions) -> Result<(), OptionRefusal> {
        let not_sent = [
            ("tool_choice", options.tool_choice.is_some()),
            ("parallel_tool_calls", options.parallel_tool_calls.is_some()),
            ("response_format", options.response_format.is_some()),
            ("top_p", options.top_p.is_some()),
            ("stop", options.stop.is_some()),
            ("reasoning_effort", options.reasoning_effort.is_some()),
            ("metadata", options.metadata.is_some()),
        ];
        match not_sent.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((field, _)) => Err(OptionRefusal {
                field,
                sentence: format!("cannot be sent to the model {}", self.name()),
            }),
        }
    }
}
