//! Runs of agents: tau-bench, SWE-agent and mini-swe-agent. All keep OpenAI chat messages or nearly so.

use serde_json::Value;

use crate::{
    Chat, Data,
    data::stem,
    message,
    pb::{self, part::Part},
    result, text,
};

impl Data {
    /// OpenAI chat messages; a system message at the start is the system prompt.
    pub fn openai(messages: &Value) -> Chat {
        let all = messages.as_array().expect("a list of messages").as_slice();
        let (prompt, messages) = match all {
            [first, rest @ ..] if first["role"] == "system" => (first["content"].as_str().expect("a text"), rest),
            _ => ("", all),
        };
        Chat {
            name: String::new(),
            system_prompt: prompt.to_owned(),
            messages: messages.iter().map(openai_message).collect(),
        }
    }

    /// tau-bench, airline tasks: an agent with tools and a played customer; four trials of each task.
    pub fn tau_bench(&self) -> Vec<Chat> {
        let runs = self.json("tau-bench/airline-tasks-0-24.json");
        let runs = runs.as_array().expect("a list").iter();
        runs.map(|run| {
            Self::openai(&run["traj"]).named(format!("airline task {}, trial {}", run["task_id"], run["trial"]))
        })
        .collect()
    }

    /// SWE-agent: one user message and many calls, or every observation a user message.
    pub fn swe_agent(&self) -> Vec<Chat> {
        let files = self.files("swe-agent", ".traj").into_iter();
        files.map(|file| Self::openai(&self.json(&file)["history"]).named(stem(&file))).collect()
    }

    /// mini-swe-agent: every observation a user message; one of them is of 868,167 characters.
    pub fn mini_swe_agent(&self) -> Vec<Chat> {
        let files = self.files("mini-swe-agent", ".traj.json").into_iter();
        files.map(|file| Self::openai(&self.json(&file)["messages"]).named(stem(&file))).collect()
    }
}

fn openai_message(said: &Value) -> pb::NewMessage {
    let content = said["content"].as_str();
    match said["role"].as_str().expect("a role") {
        "user" => text(pb::Role::User, content.expect("a text")),
        "tool" => {
            // SWE-agent has a list of one.
            let id = said["tool_call_id"].as_str().or_else(|| said["tool_call_ids"][0].as_str()).expect("an id");
            result(id, content.unwrap_or_default())
        }
        "assistant" => {
            let words = content.map(|text| Part::Text(pb::TextPart { text: text.into() }));
            let calls = said["tool_calls"].as_array().into_iter().flatten().map(tool_use);
            message(pb::Role::Assistant, words.into_iter().chain(calls).collect())
        }
        other => panic!("role {other}"),
    }
}

fn tool_use(call: &Value) -> Part {
    let function = &call["function"];
    Part::ToolUse(pb::ToolUsePart {
        id: call["id"].as_str().expect("an id").into(),
        name: function["name"].as_str().expect("a name").into(),
        input: function["arguments"].as_str().expect("a text").into(),
    })
}
