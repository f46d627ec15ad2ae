//! The names that fields of the RPCs have in requests of this API.

use tonic::Status;

use crate::http::{openai::errors::ApiError, problem::Problem};

/// How the fields of one request are called.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldNames {
    /// How many messages of the request stand before those of the RPC.
    pub(super) before: usize,
    /// The parameter with the output limit.
    pub(super) output_limit: &'static str,
}

impl FieldNames {
    /// The names, if this many more messages stand before those of the RPC.
    pub(super) const fn after(self, messages: usize) -> Self {
        Self {
            before: self.before + messages,
            ..self
        }
    }

    /// The error of an RPC that was refused or has failed.
    pub(super) fn refusal(self, status: &Status) -> ApiError {
        let error = ApiError::of_problem(&Problem::of_rpc(status), |field| self.name(field));
        if error.code() == Some("context_length_exceeded") {
            return error.with_param("messages");
        }
        error
    }

    fn name(self, field: &str) -> String {
        let field = field.strip_prefix("options.").unwrap_or(field);
        if let Some(rest) = field.strip_prefix("messages[") {
            let index = rest
                .split_once(']')
                .map(|(index, _)| index.parse::<usize>());
            return match index {
                Some(Ok(index)) => format!("messages[{}]", self.before + index),
                Some(Err(_)) | None => "messages".to_owned(),
            };
        }
        match field {
            "conversation_id" => "anneal-conversation".to_owned(),
            "request_id" => "Idempotency-Key".to_owned(),
            "max_output_tokens" => self.output_limit.to_owned(),
            "system_prompt" => "messages[0]".to_owned(),
            "user_id" => "user".to_owned(),
            tool if tool.starts_with("tools[") => tool
                .replace("].input_schema", "].function.parameters")
                .replace("].name", "].function.name"),
            other => other.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn fields_have_the_names_of_the_request() {
        let names = FieldNames {
            before: 2,
            output_limit: "max_tokens",
        };
        for (field, expected) in [
            ("messages[3].parts[0].media.uri", "messages[5]"),
            ("messages", "messages"),
            ("options.max_output_tokens", "max_tokens"),
            (
                "options.tools[1].input_schema",
                "tools[1].function.parameters",
            ),
            ("tools[0].name", "tools[0].function.name"),
            ("options.temperature", "temperature"),
            (
                "options.response_format.json_schema.name",
                "response_format.json_schema.name",
            ),
            ("system_prompt", "messages[0]"),
        ] {
            let refused = names.refusal(&Failure::invalid(field, "is wrong").into());
            assert_eq!(refused.object()["param"], expected);
        }
        let after = names
            .after(3)
            .refusal(&Failure::invalid("messages[0]", "is wrong").into());
        assert_eq!(after.object()["param"], "messages[5]");
    }
}
