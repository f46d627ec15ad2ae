//! Error messages of a chat: the reason, and advice.

use std::{fmt, io};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::sanitize::sanitize;

/// Why a line failed.
#[derive(Debug)]
pub(super) enum ChatError {
    /// The server refused the call, or cannot be reached.
    FailedCall(Box<Status>),
    /// An error that this program found; the text is for the person.
    Message(String),
    /// Standard output is closed, or the input cannot be read.
    Io(io::Error),
}

impl From<Status> for ChatError {
    fn from(status: Status) -> Self {
        Self::FailedCall(Box::new(status))
    }
}

impl From<io::Error> for ChatError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for ChatError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl fmt::Display for ChatError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailedCall(status) => out.write_str(&sanitize(&failed_call_text(status))),
            Self::Message(message) => out.write_str(&sanitize(message)),
            Self::Io(error) => write!(out, "{error}"),
        }
    }
}

/// The reason that the server gives (docs/errors.md); empty if the error is not from the server.
pub(super) fn reason(status: &Status) -> String {
    status
        .get_error_details()
        .error_info()
        .map(|info| info.reason.clone())
        .unwrap_or_default()
}

/// The server's message, the reason, and advice if there is any. An error without a reason is not
/// from the server: the text then says that the server cannot be reached, or has the message and
/// the gRPC code.
fn failed_call_text(status: &Status) -> String {
    let reason = reason(status);
    let message = sanitize(status.message());
    if reason.is_empty() {
        return match status.code() {
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal => {
                "the server cannot be reached; once it is back, send the message again or type /retry"
                    .to_owned()
            }
            code => format!("{message} ({code:?})"),
        };
    }
    match reason.as_str() {
        "MODEL_NOT_CONFIGURED" => not_configured(status),
        _ => match advice(&reason) {
            Some(advice) => format!("{message} ({reason})\n{advice}"),
            None => format!("{message} ({reason})"),
        },
    }
}

fn advice(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "MODEL_UNAVAILABLE" => {
            "Your message is stored, unless the model's breaker is open after many failures. Type /retry to ask again; \
             `anneal models` shows failures and breakers."
        }
        "MODEL_BUSY" | "OVERLOADED" | "TENANT_RATE_EXCEEDED" => {
            "Nothing was stored. Type /retry in a moment."
        }
        "MODEL_REFUSED" => {
            "Your message is stored. The key, the model's name or a setting of the provider is wrong: see \
             [providers] and [models] in the server's settings, then type /retry."
        }
        "CONTEXT_OVERFLOW" => {
            "Your message is stored. Shorten the system prompt, or restart the chat with a larger model (--model). \
             After /sep, earlier messages are no longer sent. If the provider cuts contexts, raise the window that it \
             loads the model with."
        }
        "TENANT_BUDGET_SPENT" => {
            "Nothing was stored. Type /retry tomorrow (UTC), or have budget.tokens_per_day raised."
        }
        "TURN_IN_PROGRESS" => {
            "Another turn of this conversation is running. Type /retry in a moment."
        }
        "TURN_OVERTAKEN" => {
            "The conversation has newer messages by now. If you still want an answer, send the message again."
        }
        "DATABASE_UNAVAILABLE" | "DEADLINE_EXCEEDED" => {
            "Type /retry in a moment: nothing is stored twice."
        }
        "CONVERSATION_NOT_FOUND" => {
            "The conversation was deleted. /list shows the others, /new starts a new one."
        }
        "MESSAGE_WITHDRAWN" => {
            "`anneal restore` restores the message; to ask it again, send it as a new message."
        }
        "ETAG_MISMATCH" | "LAST_MESSAGE_MISMATCH" => {
            "Somebody has changed the conversation in this moment. Nothing was withdrawn; look at it with /switch, then \
             try again."
        }
        "MESSAGE_NOT_FOUND" => "Messages are numbered from 1; /list says how many there are.",
        _ => return None,
    })
}

/// The settings that configure a model, and what works without one.
fn not_configured(status: &Status) -> String {
    let details = status.get_error_details();
    let model = details
        .error_info()
        .and_then(|info| info.metadata.get("model"))
        .filter(|name| !name.is_empty());
    let (what, name) = match model {
        Some(model) => (
            format!("this server calls no model named {}", sanitize(model)),
            sanitize(model),
        ),
        None => (
            "no model is configured, so there are no answers".to_owned(),
            "MODEL".to_owned(),
        ),
    };
    format!(
        "{what} (MODEL_NOT_CONFIGURED)\n\
         Nothing was stored. All commands that need no answer work: see /help. For answers, add to the server's anneal.toml:\n\
         \n\
         \x20 [providers.mine]\n\
         \x20 api = \"openai\"                    # or \"anthropic\", \"gemini\"\n\
         \x20 url = \"http://127.0.0.1:8000/v1\"  # leave it out for the provider's own address\n\
         \x20 key_env = \"OPENAI_API_KEY\"        # leave it out if no key is needed\n\
         \n\
         \x20 [models.\"{name}\"]\n\
         \x20 provider = \"mine\"\n\
         \x20 window_tokens = 128000            # leave it out for well-known models\n\
         \n\
         \x20 [chat]\n\
         \x20 model = \"{name}\"\n\
         \n\
         Start the server again, then type /retry. More in docs/models.md and docs/configuration.md.\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn refused(code: Code, reason: &str, model: &str) -> String {
        let metadata = HashMap::from([("model".to_owned(), model.to_owned())]);
        let details = ErrorDetails::with_error_info(reason, "anneal.v1", metadata);
        ChatError::from(Status::with_error_details(
            code,
            "cannot answer now",
            details,
        ))
        .to_string()
    }

    #[test]
    fn a_missing_model_names_the_settings_to_add() {
        let no_model = refused(Code::FailedPrecondition, "MODEL_NOT_CONFIGURED", "");
        for words in [
            "no model is configured",
            "[providers.mine]",
            "[models.\"MODEL\"]",
            "[chat]",
            "All commands that need no answer",
        ] {
            assert!(no_model.contains(words), "{words}: {no_model}");
        }
        let unknown_model = refused(Code::FailedPrecondition, "MODEL_NOT_CONFIGURED", "small");
        assert!(
            unknown_model.contains("no model named small")
                && unknown_model.contains("[models.\"small\"]"),
            "{unknown_model}"
        );
    }

    #[test]
    fn errors_show_their_reason_and_advice_or_that_the_server_cannot_be_reached() {
        let busy = refused(Code::ResourceExhausted, "MODEL_BUSY", "small");
        assert!(
            busy.starts_with("cannot answer now (MODEL_BUSY)") && busy.contains("/retry"),
            "{busy}"
        );
        assert_eq!(
            refused(Code::Internal, "INTERNAL", ""),
            "cannot answer now (INTERNAL)"
        );
        let unreachable = ChatError::from(Status::unavailable("tcp connect error")).to_string();
        assert!(unreachable.contains("cannot be reached"), "{unreachable}");
    }
}
