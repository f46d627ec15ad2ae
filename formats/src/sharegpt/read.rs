//! A message as ShareGPT writes it.

use std::collections::BTreeMap;

use anneal_core::message::{Message, Part, Role};

use super::{OPEN_CALLS, ShareGpt};
use crate::json::{Bad, Fields, Notes, named};

impl ShareGpt {
    /// The message of a record.
    pub(super) fn read(&mut self, record: &Fields, notes: &mut Notes) -> Result<Message, Bad> {
        let from = record.must("from")?;
        let value = record.must("value")?;
        let (role, part) = match from.as_str() {
            "human" | "user" => (Role::User, Part::Text { text: value }),
            "gpt" | "chatgpt" | "assistant" | "bing" | "bard" => (Role::Assistant, Part::Text { text: value }),
            "system" => (Role::System, Part::Text { text: value }),
            "function_call" => (Role::Assistant, self.call(value, notes)),
            "tool" | "observation" | "function_response" => (Role::Tool, self.result(value)),
            other => return Err(Bad(format!("unknown speaker {}", named(other)))),
        };
        Ok(Message { role, parts: vec![part], metadata: BTreeMap::new() })
    }

    /// A call: JSON of `name` and `arguments`, or else just a text.
    fn call(&mut self, value: String, notes: &mut Notes) -> Part {
        self.calls += 1;
        let id = format!("call_{}", self.calls);
        if self.open.len() < OPEN_CALLS {
            self.open.push_back(id.clone());
        }
        let said = Fields::parse(&value).and_then(|call| {
            let said = (call.must("name")?, call.label("arguments")?);
            notes.unread(&call, &["name", "arguments"], "function calls");
            Ok(said)
        });
        match said {
            Ok((name, arguments)) => Part::ToolUse { id, name, input: arguments.unwrap_or_default() },
            Err(_) => Part::ToolUse { id, name: "function".into(), input: value },
        }
    }

    /// A tool's answer to the oldest call without one.
    fn result(&mut self, value: String) -> Part {
        let id = self.open.pop_front().unwrap_or_else(|| "call_0".into());
        Part::ToolResult { id, text: value, is_error: false, media: Vec::new() }
    }
}
