//! The scripted model that answers both tenants and writes the summaries. A text of the attacker
//! can instruct it to fail or hang, as if a tenant knew how to make a provider do so.

use std::sync::Arc;

use serde_json::Value;

use super::super::{chat_client::answer_to, findings::Findings};
use crate::{ModelRequest, Say, Script, ScriptedModel};

/// The prefix of a text that instructs the model.
const INSTRUCTION_PREFIX: &str = "order: ";

/// An instruction of the attacker to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Refuse with this HTTP status.
    Refuse(u16),
    /// Never answer.
    Hang,
    /// Send one word, then neither more nor an end.
    HangAfterOne,
    /// Answer with four megabytes.
    Megabytes,
}

impl Instruction {
    /// The user's text that gives this instruction.
    pub(super) fn prompt(self) -> String {
        match self {
            Self::Refuse(status) => format!("{INSTRUCTION_PREFIX}refuse {status}"),
            Self::Hang => format!("{INSTRUCTION_PREFIX}hang"),
            Self::HangAfterOne => format!("{INSTRUCTION_PREFIX}one word"),
            Self::Megabytes => format!("{INSTRUCTION_PREFIX}megabytes"),
        }
    }

    fn read(words: &str) -> Option<Self> {
        let instruction = words.strip_prefix(INSTRUCTION_PREFIX)?;
        match instruction.split_once(' ') {
            Some(("refuse", status)) => status.parse().ok().map(Self::Refuse),
            Some(_) => Some(Self::HangAfterOne),
            None if instruction == "hang" => Some(Self::Hang),
            None => Some(Self::Megabytes),
        }
    }
}

/// Hosts, and a bucket, that no tenant may make a provider fetch from.
pub(super) const FORBIDDEN_HOSTS: [&str; 4] = [
    "169.254.169.254",
    "metadata.google.internal",
    "10.0.0.1",
    "gs://private",
];

/// Names of JSON fields whose URL a provider fetches, in every protocol.
const LINKS: [&str; 3] = ["url", "uri", "fileUri"];

/// Number of pieces of a long answer.
const PIECES: usize = 64;
/// Size of each piece of a long answer, in bytes.
const PIECE_BYTES: usize = 64 * 1_024;

/// The first path segment in requests of the worker, which ask for summaries.
const WORKER: &str = "worker";

/// Starts the model. A request with a link to a forbidden host is a finding.
pub(super) async fn start(findings: Arc<Findings>) -> ScriptedModel {
    ScriptedModel::start_without_requests(move |asked| {
        let forbidden = FORBIDDEN_HOSTS
            .into_iter()
            .find(|host| has_link_to(&asked.body, host));
        findings.demand(forbidden.is_none(), "media", || {
            format!("a request asks the model to fetch from {forbidden:?}")
        });
        answer(asked)
    })
    .await
}

/// Whether a link in the body leads to this host. A medium that is only described in text is not a
/// link.
fn has_link_to(body: &Value, host: &str) -> bool {
    match body {
        Value::Array(items) => items.iter().any(|item| has_link_to(item, host)),
        Value::Object(fields) => fields.iter().any(|(name, field)| match field {
            Value::String(text) => LINKS.contains(&name.as_str()) && text.contains(host),
            _ => has_link_to(field, host),
        }),
        _ => false,
    }
}

fn answer(asked: &ModelRequest) -> Script {
    if asked.path.split('/').nth(1) == Some(WORKER) {
        return Script::summarizes(asked);
    }
    let words = asked.texts().pop().unwrap_or_default();
    match Instruction::read(&words) {
        None => Script::says(asked, [Say::text(&answer_to(&words))]),
        Some(Instruction::Refuse(status)) => {
            Script::status(status, &[], "{\"error\":{\"message\":\"no\"}}")
        }
        Some(Instruction::Hang) => Script::hang(),
        Some(Instruction::HangAfterOne) => {
            Script::says(asked, [Say::text("one ")]).hanging_after(1)
        }
        Some(Instruction::Megabytes) => {
            let piece = "word ".repeat(PIECE_BYTES / 5);
            Script::says(asked, (0..PIECES).map(|_| Say::text(&piece)))
        }
    }
}

/// The limit of concurrent model calls, as an operator would set it. There is no limit by default,
/// and turns of this model are slow.
const CONCURRENT_CALLS: u32 = 16;

/// The settings files of servers and workers that call this model.
pub(super) fn settings(model: &ScriptedModel) -> (String, String) {
    let window = "window_tokens = ";
    let servers = model.server_settings().replace(
        window,
        &format!("concurrent_calls = {CONCURRENT_CALLS}\n{window}"),
    );
    let url = model.url();
    let worker_url = url.replace("/v1", &format!("/{WORKER}/v1"));
    let workers = format!(
        "{}[summarizer]\nmodel = \"{}\"\n",
        servers.replace(&url, &worker_url),
        crate::MODEL
    );
    (servers, workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_read_back_from_its_prompt() {
        for instruction in [
            Instruction::Refuse(429),
            Instruction::Hang,
            Instruction::HangAfterOne,
            Instruction::Megabytes,
        ] {
            assert_eq!(Instruction::read(&instruction.prompt()), Some(instruction));
        }
        assert_eq!(Instruction::read("What of note 1?"), None);
    }
}
