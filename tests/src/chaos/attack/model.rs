//! The model that answers both tenants and writes the summaries: what it does with a turn stands in the user's words, as a
//! tenant that knows how to make a provider fail would write them.

use std::sync::Arc;

use serde_json::Value;

use super::super::{findings::Findings, turns::answer_to};
use crate::{Asked, Say, Script, ScriptedModel};

/// The beginning of words that say how the model answers.
const ORDER: &str = "order: ";

/// What the attacker lets the model do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Refuse with this HTTP status.
    Refuse(u16),
    /// Say nothing.
    Hang,
    /// Say one word, and then nothing.
    HangAfterOne,
    /// Say four megabytes.
    Megabytes,
}

impl Order {
    /// The words that order it.
    pub(super) fn words(self) -> String {
        match self {
            Self::Refuse(status) => format!("{ORDER}refuse {status}"),
            Self::Hang => format!("{ORDER}hang"),
            Self::HangAfterOne => format!("{ORDER}one word"),
            Self::Megabytes => format!("{ORDER}megabytes"),
        }
    }

    fn read(words: &str) -> Option<Self> {
        let order = words.strip_prefix(ORDER)?;
        match order.split_once(' ') {
            Some(("refuse", status)) => status.parse().ok().map(Self::Refuse),
            Some(_) => Some(Self::HangAfterOne),
            None if order == "hang" => Some(Self::Hang),
            None => Some(Self::Megabytes),
        }
    }
}

/// Addresses that no tenant may have a provider ask.
pub(super) const FORBIDDEN_HOSTS: [&str; 4] =
    ["169.254.169.254", "metadata.google.internal", "10.0.0.1", "gs://private"];

/// What fields are called whose text a provider fetches, in every protocol.
const LINKS: [&str; 3] = ["url", "uri", "fileUri"];

/// Pieces of a long answer, and bytes of each.
const PIECES: usize = 64;
const PIECE_BYTES: usize = 64 * 1_024;

/// The word in the path of requests that the worker makes.
const WORKER: &str = "worker";

/// Starts the model. A request that names a forbidden address is a finding.
pub(super) async fn start(findings: Arc<Findings>) -> ScriptedModel {
    ScriptedModel::start_without_memory(move |asked| {
        let forbidden = FORBIDDEN_HOSTS.into_iter().find(|host| has_link_to(&asked.body, host));
        findings.demand(forbidden.is_none(), "media", || format!("the model was asked to read {forbidden:?}"));
        answer(asked)
    })
    .await
}

/// Whether a link in the body leads there. A medium that is only described is no link.
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

fn answer(asked: &Asked) -> Script {
    if asked.path.split('/').nth(1) == Some(WORKER) {
        return Script::summarizes(asked);
    }
    let words = asked.texts().pop().unwrap_or_default();
    match Order::read(&words) {
        None => Script::says(asked, [Say::text(&answer_to(&words))]),
        Some(Order::Refuse(status)) => Script::status(status, &[], "{\"error\":{\"message\":\"no\"}}"),
        Some(Order::Hang) => Script::hang(),
        Some(Order::HangAfterOne) => Script::says(asked, [Say::text("one ")]).hanging_after(1),
        Some(Order::Megabytes) => {
            let piece = "word ".repeat(PIECE_BYTES / 5);
            Script::says(asked, (0..PIECES).map(|_| Say::text(&piece)))
        }
    }
}

/// Calls of the model at once, as its operator would say: there is no limit by default, and its turns are slow.
const CALLS: u32 = 16;

/// The settings files of servers and of workers that call this model.
pub(super) fn settings(model: &ScriptedModel) -> (String, String) {
    let window = "window_tokens = ";
    let servers = model.server_settings().replace(window, &format!("concurrent_calls = {CALLS}\n{window}"));
    let url = model.url();
    let own = url.replace("/v1", &format!("/{WORKER}/v1"));
    let workers = format!("{}[summarizer]\nmodel = \"{}\"\n", servers.replace(&url, &own), crate::MODEL);
    (servers, workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_from_its_words() {
        for order in [Order::Refuse(429), Order::Hang, Order::HangAfterOne, Order::Megabytes] {
            assert_eq!(Order::read(&order.words()), Some(order));
        }
        assert_eq!(Order::read("What of note 1?"), None);
    }
}
