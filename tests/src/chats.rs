//! Files of real conversations, as messages to append.

use std::process::Command;

use pb::part::Part;
use serde_json::Value;

use crate::{Data, message, pb, result, text};

/// One conversation of a file.
#[derive(Debug, Clone)]
pub struct Chat {
    /// Its system prompt; empty when it has none.
    pub system_prompt: String,
    /// What was said.
    pub messages: Vec<pb::NewMessage>,
}

impl Data {
    /// OpenAI chat messages; a system message at the start is the system prompt.
    pub fn openai(messages: &Value) -> Chat {
        let all = messages.as_array().expect("a list of messages").as_slice();
        let (prompt, messages) = match all {
            [first, rest @ ..] if first["role"] == "system" => (first["content"].as_str().expect("a text"), rest),
            _ => ("", all),
        };
        Chat { system_prompt: prompt.to_owned(), messages: messages.iter().map(openai_message).collect() }
    }

    /// LoCoMo conv-26: two people in many sessions; the first speaker is the user.
    pub fn locomo_26(&self) -> Chat {
        let talk = &self.json("locomo/locomo4.json")[0]["conversation"];
        let sessions = (1..).map(|n| &talk[format!("session_{n}").as_str()]).take_while(|session| session.is_array());
        let said = sessions.flat_map(|session| session.as_array().expect("a list"));
        let messages = said.map(|said| {
            let user = said["speaker"] == talk["speaker_a"];
            text(if user { pb::Role::User } else { pb::Role::Assistant }, said["text"].as_str().expect("a text"))
        });
        Chat { system_prompt: String::new(), messages: messages.collect() }
    }

    /// Chinese dialogues of CrossWOZ; empty, with a line that says why, without python3 to unpack them.
    pub fn crosswoz(&self, count: usize) -> Vec<Chat> {
        let unpack = "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read('val.json'))";
        let run = Command::new("python3").arg("-c").arg(unpack).arg(self.path("crosswoz/val.json.zip")).output();
        let Some(unpacked) = run.ok().filter(|run| run.status.success()) else {
            println!("skipped: CrossWOZ needs python3 to be unpacked");
            return Vec::new();
        };
        let dialogues: Value = serde_json::from_slice(&unpacked.stdout).expect("the file is JSON");
        let dialogues = dialogues.as_object().expect("dialogues by id").values().take(count);
        dialogues.map(|dialogue| alternating(&dialogue["messages"], "content")).collect()
    }

    /// Chinese dialogues of KdConv about films.
    pub fn kdconv(&self, count: usize) -> Vec<Chat> {
        let dialogues = self.json("kdconv/film_dev.json");
        let dialogues = dialogues.as_array().expect("a list").iter().take(count);
        dialogues.map(|dialogue| alternating(&dialogue["messages"], "message")).collect()
    }
}

/// Two speakers who take turns; the first is the user.
fn alternating(messages: &Value, key: &str) -> Chat {
    let said = messages.as_array().expect("a list").iter().enumerate().map(|(index, said)| {
        let role = if index % 2 == 0 { pb::Role::User } else { pb::Role::Assistant };
        text(role, said[key].as_str().expect("a text"))
    });
    Chat { system_prompt: String::new(), messages: said.collect() }
}

fn openai_message(said: &Value) -> pb::NewMessage {
    let content = said["content"].as_str();
    match said["role"].as_str().expect("a role") {
        "user" => text(pb::Role::User, content.expect("a text")),
        "tool" => result(said["tool_call_id"].as_str().expect("an id"), content.unwrap_or_default()),
        "assistant" => {
            let mut parts: Vec<Part> =
                content.map(|text| Part::Text(pb::TextPart { text: text.into() })).into_iter().collect();
            for one in said["tool_calls"].as_array().into_iter().flatten() {
                let function = &one["function"];
                let (id, input) = (one["id"].as_str().expect("an id"), function["arguments"].as_str().expect("a text"));
                let name = function["name"].as_str().expect("a name").to_owned();
                parts.push(Part::ToolUse(pb::ToolUsePart { name, id: id.into(), input: input.into() }));
            }
            message(pb::Role::Assistant, parts)
        }
        other => panic!("role {other}"),
    }
}
