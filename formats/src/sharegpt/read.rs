//! Reads ShareGPT messages.

use std::collections::BTreeMap;

use anneal_core::message::{Message, Part, Role};

use super::{OPEN_CALLS, ShareGpt};
use crate::json::{Fields, Notes, Unreadable, short_name};

impl ShareGpt {
    pub(super) fn read(
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
            "function_call" => (Role::Assistant, self.call(value, notes)),
            "tool" | "observation" | "function_response" => (Role::Tool, self.result(value)),
            other => return Err(Unreadable(format!("unknown speaker {}", short_name(other)))),
        };
        Ok(Message {
            role,
            parts: vec![part],
            metadata: BTreeMap::new(),
        })
    }

    /// A call: JSON with `name` and `arguments`, or any other text.
    fn call(&mut self, value: String, notes: &mut Notes) -> Part {
        self.calls += 1;
        let id = format!("call_{}", self.calls);
        if self.open.len() < OPEN_CALLS {
            self.open.push_back(id.clone());
        }
        let call = Fields::parse(&value).and_then(|call| {
            let parsed = (call.required_text("name")?, call.text_or_raw("arguments")?);
            notes.unread(&call, &["name", "arguments"], "function calls");
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

    /// A tool result. It answers the oldest call without a result.
    fn result(&mut self, value: String) -> Part {
        let id = self.open.pop_front().unwrap_or_else(|| "call_0".into());
        Part::ToolResult {
            id,
            text: value,
            is_error: false,
            media: Vec::new(),
        }
    }
}
