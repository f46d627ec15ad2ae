//! Runs of agents and sessions of pi, parsed like files of `anneal import`.

use std::io::Cursor;

use anneal_core::message::{Message, Part};
use anneal_formats::{Branches, FileEvent, Format, Head, ReadOptions, Stopped, Strictness};
use serde_json::Value;

use crate::{Chat, TranscriptFolder, pb, transcript_folder::stem};

impl TranscriptFolder {
    /// A conversation from OpenAI chat messages. A system message at the start becomes the system
    /// prompt.
    pub fn openai(messages: &Value) -> Chat {
        let mut chats = conversations(&messages.to_string(), Format::OpenAi);
        chats.pop().map(|(_, chat)| chat).expect("a conversation")
    }

    /// Airline tasks of tau-bench: an agent with tools and a simulated customer; four trials of
    /// each task.
    pub fn tau_bench(&self) -> Vec<Chat> {
        let runs = conversations(
            &self.text("tau-bench/airline-tasks-0-24.json"),
            Format::OpenAi,
        )
        .into_iter();
        runs.map(|(head, chat)| {
            let label = |name: &str| &head.metadata[name];
            chat.named(format!(
                "airline task {}, trial {}",
                label("openai.task_id"),
                label("openai.trial")
            ))
        })
        .collect()
    }

    /// Runs of SWE-agent. Some have one user message and many tool calls. In the others every
    /// observation is a user message.
    pub fn swe_agent(&self) -> Vec<Chat> {
        self.read_each("swe-agent", ".traj", Format::OpenAi)
    }

    /// Runs of mini-swe-agent. Every observation is a user message; one of these has 868,167
    /// characters.
    pub fn mini_swe_agent(&self) -> Vec<Chat> {
        self.read_each("mini-swe-agent", ".traj.json", Format::OpenAi)
    }

    /// Sessions of pi: the active branch of each, without the compactions that pi made. Calls
    /// without results and interrupted answers are included.
    pub fn pi_sessions(&self) -> Vec<Chat> {
        self.read_each("pi-sessions", ".jsonl", Format::Pi)
    }

    /// Reads the files of a folder with this ending. Each is one conversation, named after its
    /// file.
    fn read_each(&self, folder: &str, ending: &str, format: Format) -> Vec<Chat> {
        let files = self.files(folder, ending).into_iter();
        let chats = files.map(|file| {
            let mut chats = conversations(&self.text(&file), format);
            let (_, chat) = chats.pop().expect("a conversation");
            chat.named(stem(&file))
        });
        chats.collect()
    }
}

/// Parses the conversations of a file, each with its head (title, system prompt, metadata).
fn conversations(text: &str, format: Format) -> Vec<(Head, Chat)> {
    let options = ReadOptions {
        strict: Strictness::Strict,
        branches: Branches::Active,
        name: String::new(),
    };
    let mut chats: Vec<(Head, Chat)> = Vec::new();
    let mut sink = |found: FileEvent| -> Result<(), Stopped> {
        match (found, chats.last_mut()) {
            (FileEvent::Conversation(head), _) => {
                let chat = Chat {
                    system_prompt: head.system_prompt.clone(),
                    ..Default::default()
                };
                chats.push((head, chat));
            }
            (FileEvent::Message(message), Some((_, chat))) => {
                chat.messages.push(to_append(message));
            }
            _ => {}
        }
        Ok(())
    };
    anneal_formats::read_from(Cursor::new(text), format, &options, &mut sink)
        .expect("the file is valid");
    chats
}

/// The message as tests append it: without metadata. An answer that was interrupted before its
/// first word gets an empty text.
fn to_append(mut message: Message) -> pb::NewMessage {
    message.metadata.clear();
    if message.parts.is_empty() {
        message.parts.push(Part::Text {
            text: String::new(),
        });
    }
    message.into()
}
