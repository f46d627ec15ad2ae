//! Sessions of the coding agent pi, format v3: lines of JSON that make a tree by `id` and `parentId`.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    Chat, Data,
    data::stem,
    message,
    pb::{self, part::Part},
    text,
};

impl Data {
    /// Sessions of pi, each its active branch, without the compactions that pi made itself.
    pub fn pi_sessions(&self) -> Vec<Chat> {
        let files = self.files("pi-sessions", ".jsonl").into_iter();
        files.map(|file| Self::pi(&self.text(&file)).named(stem(&file))).collect()
    }

    /// A session of pi: the path from the root to the last entry. Orphaned calls and answers broken off stay in it.
    pub fn pi(lines: &str) -> Chat {
        let entries: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let by_id: HashMap<&str, &Value> =
            entries.iter().filter_map(|entry| Some((entry["id"].as_str()?, entry))).collect();
        let parent = |entry: &&Value| by_id.get(entry["parentId"].as_str()?).copied();
        let mut branch: Vec<&Value> = std::iter::successors(entries.last(), parent).collect();
        branch.reverse();
        let said = branch.into_iter().filter(|entry| entry["type"] == "message").map(|entry| &entry["message"]);
        Chat { messages: said.map(pi_message).collect(), ..Default::default() }
    }
}

fn pi_message(said: &Value) -> pb::NewMessage {
    match said["role"].as_str().expect("a role") {
        "user" => message(pb::Role::User, blocks(&said["content"])),
        "assistant" => message(pb::Role::Assistant, blocks(&said["content"])),
        "toolResult" => message(pb::Role::Tool, vec![tool_result(said)]),
        "bashExecution" => {
            let (command, output) = (&said["command"], &said["output"]);
            let ran = [command, output].map(|text| text.as_str().expect("a text"));
            text(pb::Role::User, &format!("Ran `{}`\n{}", ran[0], ran[1]))
        }
        other => panic!("role {other}"),
    }
}

fn tool_result(said: &Value) -> Part {
    let texts = said["content"].as_array().expect("blocks").iter().filter_map(|block| block["text"].as_str());
    Part::ToolResult(pb::ToolResultPart {
        tool_use_id: said["toolCallId"].as_str().expect("an id").into(),
        text: texts.collect::<Vec<_>>().join("\n"),
        is_error: said["isError"].as_bool().expect("a bool"),
        media: Vec::new(),
    })
}

fn blocks(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(pb::TextPart { text: text.clone() })],
        content => content.as_array().expect("blocks").iter().map(block).collect(),
    }
}

fn block(block: &Value) -> Part {
    let text = |key: &str| block[key].as_str().expect("a text").to_owned();
    match block["type"].as_str().expect("a type") {
        "text" => Part::Text(pb::TextPart { text: text("text") }),
        "thinking" => Part::Reasoning(pb::ReasoningPart {
            text: text("thinking"),
            signature: block["thinkingSignature"].as_str().unwrap_or_default().to_owned(),
            ..Default::default()
        }),
        "toolCall" => {
            Part::ToolUse(pb::ToolUsePart { id: text("id"), name: text("name"), input: block["arguments"].to_string() })
        }
        other => panic!("block {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = r#"{"type":"session","version":3,"id":"s"}
{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"look"}}
{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[{"type":"text","text":"left"}]}}
{"type":"model_change","id":"c","parentId":"a"}
{"type":"message","id":"d","parentId":"c","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"toolCall","id":"t1","name":"bash","arguments":{"command":"ls"},"partialJson":"{"}]}}
{"type":"message","id":"e","parentId":"d","message":{"role":"toolResult","toolCallId":"t1","content":[{"type":"text","text":"no"}],"isError":true}}
{"type":"message","id":"f","parentId":"e","message":{"role":"bashExecution","command":"pwd","output":"/home"}}
{"type":"message","id":"g","parentId":"f","message":{"role":"assistant","content":[],"stopReason":"aborted"}}
"#;

    #[test]
    fn the_active_branch_is_read_and_no_other() {
        let chat = Data::pi(SESSION);
        let thought = Part::Reasoning(pb::ReasoningPart { text: "hm".into(), ..Default::default() });
        let call = Part::ToolUse(pb::ToolUsePart {
            id: "t1".into(),
            name: "bash".into(),
            input: r#"{"command":"ls"}"#.into(),
        });
        let failed =
            pb::ToolResultPart { tool_use_id: "t1".into(), text: "no".into(), is_error: true, ..Default::default() };
        let said = vec![
            text(pb::Role::User, "look"),
            message(pb::Role::Assistant, vec![thought, call]),
            message(pb::Role::Tool, vec![Part::ToolResult(failed)]),
            text(pb::Role::User, "Ran `pwd`\n/home"),
            text(pb::Role::Assistant, ""),
        ];
        assert_eq!(chat.messages, said);
    }
}
