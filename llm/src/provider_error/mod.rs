//! Is this answer of a provider a context overflow, and of which kind? Codes first, then wordings that stand at the start
//! of the error's own message. Nothing is searched for through a body, because bodies quote what users wrote.

mod body;
mod claim;
mod codes;
mod shape;
mod success;
mod wording;
mod wrapping;

use body::{Body, Event, Stream};
use claim::Claim;
use codes::Code;
use success::Progress;

/// Bytes of a body that are looked at; errors are far shorter.
pub const BODY_BYTES: usize = anneal_core::limits::PROVIDER_BODY_BYTES;

/// Fewest tokens sent from which a shortened prompt is concluded: below, framing weighs too much.
const SENT_LEAST: u64 = 256;

/// An answer of a model provider to one call.
#[derive(Debug, Clone, Copy)]
pub struct ProviderAnswer<'a> {
    /// HTTP status.
    pub status: u16,
    /// HTTP headers; names in upper or lower case.
    pub headers: &'a [(String, String)],
    /// The body, decompressed: JSON, server-sent events, lines of JSON, HTML, anything. [`BODY_BYTES`] of it count.
    pub body: &'a [u8],
    /// How the answer was asked for.
    pub delivery: Delivery,
    /// Tokens that were sent, counted close to the model's own tokenizer: tells a prompt that was cut short in silence.
    pub sent_tokens: Option<u64>,
}

/// How an answer was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// As one document.
    Whole,
    /// As a stream of events, which has an end that can be missing.
    Streamed,
}

/// What an answer means for the size of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverflowKind {
    /// Something else: success, or an error that a shorter prompt does not mend.
    NotOverflow,
    /// The prompt alone is longer than the window.
    Input,
    /// The prompt fits, the prompt and the room asked for output do not: asking for less output may be enough.
    InputPlusOutput,
    /// The request has too many bytes for the provider or a proxy: shorten it, but token arithmetic does not apply.
    Bytes,
    /// One text has too many characters: split or shorten that message.
    MessageTooLong,
    /// The request is larger than the account's quota ever grants: waiting does not help, and the window is another.
    QuotaTooSmall,
    /// Looks like success, but nothing was said, or the prompt was cut short without a word: a failure, not an answer.
    Silent,
    /// A success whose output ran into the window: incomplete.
    OutputTruncated,
}

impl OverflowKind {
    /// Whether the context does not fit the window, so that a smaller one should be built and sent.
    pub const fn is_overflow(self) -> bool {
        matches!(self, Self::Input | Self::InputPlusOutput)
    }
}

/// The verdict on an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classification {
    /// What it is.
    pub kind: OverflowKind,
    /// Tokens of the model's window (of its input where the provider limits that apart), when the answer names them.
    /// Quotas and limits in bytes or characters are never here: what is here may be learnt for the model.
    pub limit_tokens: Option<u64>,
    /// Tokens of the prompt, when the answer names them; of a breakdown, its messages.
    pub prompt_tokens: Option<u64>,
    /// The rule that decided: a code, or the name of a wording. Stable, and never content.
    pub rule: &'static str,
}

impl Classification {
    const fn new(kind: OverflowKind, rule: &'static str) -> Self {
        Self { kind, limit_tokens: None, prompt_tokens: None, rule }
    }

    /// Whether the context does not fit the window.
    pub const fn is_overflow(&self) -> bool {
        self.kind.is_overflow()
    }
}

/// The verdict on an answer. Linear in the body, and never fails.
pub fn classify(answer: &ProviderAnswer<'_>) -> Classification {
    let looked_at = &answer.body[..answer.body.len().min(BODY_BYTES)];
    let text = String::from_utf8_lossy(looked_at);
    let body = body::read(&text, header(answer, "content-type"));
    if (200..300).contains(&answer.status) {
        return success(answer, &body);
    }
    failure(answer, &body)
}

/// An error within an answer that began as a success.
pub(crate) struct Midway {
    /// What it means for the size of the context.
    pub(crate) verdict: Classification,
    /// The HTTP status that it would have had, where it says so.
    pub(crate) status: Option<u16>,
}

/// The error that one event of a stream, or one document, holds; None for a piece of an answer.
pub(crate) fn midway(event: &str, json: &str) -> Option<Midway> {
    const OK: u16 = 200;
    // Errors are short, and reading JSON of any shape takes many times its size.
    let json = &json[..json.floor_char_boundary(BODY_BYTES)];
    let is_error = event == "error";
    // Parsed only where it can be an error: `"error"`, `"errors"`, `…Exception`, and where something failed.
    if !is_error && !["rror", "xception", "__type", "base_resp"].iter().any(|word| json.contains(word)) {
        return None;
    }
    let value = serde_json::from_str(json).ok();
    let claim = match value {
        Some(value) if is_error => claim::of_failure(&value),
        Some(value) => claim::of_answer(&value)?,
        None if is_error => claim::of_failure(&serde_json::Value::from(json)),
        None => return None,
    };
    let by_code = || claim.codes.iter().find_map(|code| codes::status(code));
    let status = claim.statuses.first().copied().or_else(by_code);
    Some(Midway { verdict: judge(&claim, status.unwrap_or(OK)), status })
}

/// Whether a provider that counted this prompt read far fewer tokens than were sent: it cut the rest off in silence.
pub(crate) fn is_cut_short(prompt_tokens: u64, sent_tokens: Option<u64>) -> bool {
    let progress = Progress { prompt_tokens: Some(prompt_tokens), ..Progress::default() };
    shortened(&progress, sent_tokens)
}

fn header<'a>(answer: &ProviderAnswer<'a>, name: &str) -> Option<&'a str> {
    let found = answer.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// An answer with a status of failure.
fn failure(answer: &ProviderAnswer<'_>, body: &Body<'_>) -> Classification {
    let named = header(answer, "x-amzn-errortype").map(|name| claim::plain(name).to_owned());
    let verdict = |mut claim: Claim| {
        claim.codes.extend(named.clone());
        judge(&claim, answer.status)
    };
    match body {
        // Cerebras says no more than this when the prompt is too long. One smaller attempt shows whether it was that.
        Body::Empty if matches!(answer.status, 400 | 413) => {
            Classification::new(OverflowKind::Input, "status-without-body")
        }
        Body::Empty | Body::Page => verdict(Claim::default()),
        Body::Words(words) => verdict(claim::of_failure(&serde_json::Value::from(*words))),
        Body::Json(value) => verdict(claim::of_failure(value)),
        Body::Stream(stream) => {
            let verdicts = stream.events.iter().map(|event| verdict(claim::of_failure(event.value())));
            first(verdicts).unwrap_or(verdict(Claim::default()))
        }
    }
}

/// An answer with a status of success: an error within, a hollow answer, or a good one.
fn success(answer: &ProviderAnswer<'_>, body: &Body<'_>) -> Classification {
    let verdict = |claim: Claim| judge(&claim, claim.statuses.first().copied().unwrap_or(answer.status));
    let failed = match body {
        Body::Empty => return Classification::new(OverflowKind::Silent, "empty-body"),
        Body::Page | Body::Words(_) => return Classification::new(OverflowKind::NotOverflow, "unknown-answer"),
        Body::Json(value) => claim::of_answer(value).map(verdict),
        Body::Stream(stream) => first(stream.events.iter().filter_map(claim_of_event).map(verdict)),
    };
    if let Some(verdict) = failed {
        return verdict;
    }
    let mut progress = Progress::default();
    match body {
        Body::Json(value) => progress.take(value),
        Body::Stream(stream) => stream.events.iter().for_each(|event| progress.take(event.value())),
        _ => {}
    }
    let stream = if let Body::Stream(stream) = body { Some(stream) } else { None };
    let silent = if answer.body.len() > BODY_BYTES { None } else { hollow(answer, &progress, stream) };
    let shortened = || shortened(&progress, answer.sent_tokens).then_some("prompt-shortened");
    match silent.or_else(shortened) {
        _ if progress.stop.as_deref() == Some("model_context_window_exceeded") => {
            Classification::new(OverflowKind::OutputTruncated, "model_context_window_exceeded")
        }
        Some(rule) => Classification::new(OverflowKind::Silent, rule),
        None => Classification::new(OverflowKind::NotOverflow, "success"),
    }
}

fn claim_of_event(event: &Event) -> Option<Claim> {
    match event {
        Event::Error(value) => Some(claim::of_failure(value)),
        Event::Other(value) => claim::of_answer(value),
    }
}

impl Event {
    const fn value(&self) -> &serde_json::Value {
        match self {
            Self::Error(value) | Self::Other(value) => value,
        }
    }
}

/// Why a whole answer counts as none.
fn hollow(answer: &ProviderAnswer<'_>, progress: &Progress, stream: Option<&Stream>) -> Option<&'static str> {
    if let Some(stream) = stream {
        if stream.events.is_empty() {
            return Some("stream-without-events");
        }
        let is_over = progress.stop.is_some() || (stream.is_done && progress.said);
        if progress.is_known && !is_over {
            return Some("stream-without-end");
        }
    }
    let rule = if answer.delivery == Delivery::Streamed { "stream-without-content" } else { "answer-without-content" };
    progress.is_hollow().then_some(rule)
}

/// Whether the provider read far fewer tokens than were sent. Ollama keeps about half of its window and drops the rest;
/// two tokenizers differ by less than two fifths on the same text.
fn shortened(progress: &Progress, sent: Option<u64>) -> bool {
    let sent = sent.filter(|sent| *sent >= SENT_LEAST);
    let read = progress.prompt_tokens.filter(|read| *read > 0);
    sent.zip(read).is_some_and(|(sent, read)| read.saturating_mul(5) < sent.saturating_mul(3))
}

/// The first verdict that is about size, or else the first.
fn first(verdicts: impl Iterator<Item = Classification>) -> Option<Classification> {
    let mut other = None;
    for verdict in verdicts {
        if verdict.kind != OverflowKind::NotOverflow {
            return Some(verdict);
        }
        other.get_or_insert(verdict);
    }
    other
}

/// The verdict on an error: what its code proves, then what its message says, then its status.
fn judge(claim: &Claim, status: u16) -> Classification {
    let proven: Vec<Code> = claim.codes.iter().filter_map(|code| codes::read(code)).collect();
    let said = claim.messages.iter().find_map(|message| wording::read(message));
    let by_words = said.map(|said| Classification {
        kind: said.kind,
        limit_tokens: said.limit,
        prompt_tokens: said.prompt,
        rule: said.rule,
    });
    let by_code = proven.iter().find_map(|code| match code {
        Code::Kind(kind, rule) => Some(Classification::new(*kind, rule)),
        Code::Elsewhere => None,
    });
    if let Some(by_code) = by_code {
        // A code names the error, its words may say more: which side is too long, and the numbers.
        let precise = by_words.filter(|words| words.is_overflow() && by_code.kind != OverflowKind::QuotaTooSmall);
        let mut verdict = precise.map_or(by_code, |words| Classification { rule: by_code.rule, ..words });
        if verdict.is_overflow() {
            verdict.limit_tokens = verdict.limit_tokens.or(claim.limit);
            verdict.prompt_tokens = verdict.prompt_tokens.or(claim.prompt);
        }
        return verdict;
    }
    let is_elsewhere = proven.contains(&Code::Elsewhere)
        || codes::is_elsewhere(status)
        || claim.statuses.iter().any(|status| codes::is_elsewhere(*status));
    match by_words {
        Some(words) if !is_elsewhere || words.kind == OverflowKind::QuotaTooSmall => words,
        _ if status == 413 && !is_elsewhere => Classification::new(OverflowKind::Bytes, "status-413"),
        _ => Classification::new(OverflowKind::NotOverflow, "other-error"),
    }
}
