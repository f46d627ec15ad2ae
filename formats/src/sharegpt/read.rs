//! Reads ShareGPT messages.

use std::collections::BTreeMap;

use anneal_core::message::{Message, Part, Role};

use super::{MAX_OPEN_CALLS, ShareGpt};
use crate::json::{Fields, Notes, Unreadable, short_name};

impl ShareGpt {
    /// The message of a record.
    pub(super) fn parse_message(
        &mut self,
        record: &Fields,
        notes: &mut Notes,
    ) -> Result<Message, Unreadable> {
        let from = record.required_text("from")?;
        let value = record.required_text("value")?;
        let (role, part) = match from.as_str() {
            "human" | "user" => (Role::User, Part::Text { text: value }),
            "gpt" | "chatgpt" | "assistant" | "bing" | "bard" => {
                (Role::Assistant, Part::Text { text: value })
            }
            "system" => (Role::System, Part::Text { text: value }),
            "function_call" => (Role::Assistant, self.number_call(value, notes)),
            "tool" | "observation" | "function_response" => (Role::Tool, self.match_result(value)),
            other => return Err(Unreadable(format!("unknown speaker {}", short_name(other)))),
        };
        Ok(Message {
            role,
            parts: vec![part],
            metadata: BTreeMap::new(),
        })
    }

    /// Parses a call (JSON with `name` and `arguments`, or any other text), and gives it the next
    /// id.
    fn number_call(&mut self, value: String, notes: &mut Notes) -> Part {
        self.calls += 1;
        let id = format!("call_{}", self.calls);
        if self.open_calls.len() < MAX_OPEN_CALLS {
            self.open_calls.push_back(id.clone());
        }
        let call = Fields::parse(&value).and_then(|call| {
            let parsed = (call.required_text("name")?, call.text_or_raw("arguments")?);
            notes.note_unread_fields(&call, &["name", "arguments"], "function calls");
            Ok(parsed)
        });
        match call {
            Ok((name, arguments)) => Part::ToolUse {
                id,
                name,
                input: arguments.unwrap_or_default(),
            },
            Err(_) => Part::ToolUse {
                id,
                name: "function".into(),
                input: value,
            },
        }
    }

    /// Makes a tool result for the oldest call that has no result yet, and takes it off the list of
    /// these calls.
    fn match_result(&mut self, value: String) -> Part {
        // No call has the id `call_0`: they are numbered from 1.
        let id = self
            .open_calls
            .pop_front()
            .unwrap_or_else(|| "call_0".into());
        Part::ToolResult {
            id,
            text: value,
            is_error: false,
            media: Vec::new(),
        }
    }
}
