//! Decides whether a provider's answer is a context overflow, and of which kind. An error is judged
//! by its codes, then by known wordings at the start of its own message, then by the sense of its
//! words, then by its HTTP status; a success by its content, its end and its token counts. A body
//! is never searched for words, because bodies quote users' content. Of the headers, only the
//! content type and Amazon's error type are read: `provider/http.rs` reads `Retry-After`.
//!
//! - `body`: the format of a body.
//! - `error_fields`: the codes and messages in an error; `figures`: its numbers as a text.
//! - `codes`: what each code means.
//! - `wording`: what each known message means; `pattern`: matches one against a message.
//! - `wrapping`: removes what gateways put before a message.
//! - `sense`: what an unknown message likely means.
//! - `success`: content, end and counts of an answer that looks like success.

mod body;
mod codes;
mod error_fields;
mod figures;
mod pattern;
mod sense;
mod success;
mod wording;
mod wrapping;

pub(crate) use body::is_html;
use body::{Body, Event, Stream};
use codes::CodeMeaning;
use error_fields::ErrorFields;
use sense::Sense;
use success::AnswerState;

/// Bytes of a body that are read; errors are far shorter.
pub const BODY_BYTES: usize = anneal_core::limits::PROVIDER_BODY_BYTES;

/// Fewest sent tokens for which a truncated prompt is detected. In a shorter prompt, the tokens
/// that the provider adds around the messages are too large a part of its count.
const MIN_SENT_TOKENS: u64 = 256;

/// A model provider's answer to one call.
#[derive(Debug, Clone, Copy)]
pub struct ProviderAnswer<'a> {
    /// HTTP status.
    pub status: u16,
    /// HTTP headers; names in upper or lower case.
    pub headers: &'a [(String, String)],
    /// The decompressed body in any format. Only [`BODY_BYTES`] of it are read.
    pub body: &'a [u8],
    /// How the answer was requested.
    pub delivery: Delivery,
    /// Sent tokens, counted much as the model's tokenizer does. A provider that counts far fewer
    /// has truncated the prompt.
    pub sent_tokens: Option<u64>,
    /// The model's window in tokens, as far as it is known. An error in unknown words is no
    /// overflow if far fewer tokens were sent.
    pub window_tokens: Option<u64>,
}

impl ProviderAnswer<'_> {
    const fn request_size(&self) -> RequestSize {
        RequestSize {
            sent: self.sent_tokens,
            window: self.window_tokens,
        }
    }
}

/// The figures of a request with which an error in unknown words is compared. None: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestSize {
    /// Tokens that were sent.
    pub(crate) sent: Option<u64>,
    /// Tokens of the model's window.
    pub(crate) window: Option<u64>,
}

/// How an answer was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// As one document.
    Whole,
    /// As a stream of events, whose end may be missing.
    Streamed,
}

/// Whether an answer means that the context is too long, and which limit it exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverflowKind {
    /// Success, or an error that a shorter prompt does not fix.
    NotOverflow,
    /// The prompt alone is longer than the window.
    Input,
    /// The prompt fits the window, but not together with the output limit: a smaller limit may be
    /// enough.
    InputPlusOutput,
    /// The request has too many bytes for the provider or a proxy. It must be shorter, but its
    /// tokens do not matter.
    Bytes,
    /// One text has too many characters. That message must be split or shortened.
    MessageTooLong,
    /// The request exceeds the account's quota, so waiting does not help. The quota is not the
    /// model's window.
    QuotaTooSmall,
    /// A success without content, without an end or with a truncated prompt: a failure, not an
    /// answer.
    Silent,
    /// An answer whose output reached the end of the window: incomplete. Most providers report it
    /// as a success, LM Studio as an error.
    OutputTruncated,
}

impl OverflowKind {
    /// Whether the context does not fit the window, so that a smaller one should be built and sent.
    pub const fn is_overflow(self) -> bool {
        matches!(self, Self::Input | Self::InputPlusOutput)
    }
}

/// How certain a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Confidence {
    /// A code, a known wording or a status has decided.
    Certain,
    /// The sense of a wording that is not known has decided. A shorter context is worth a try, but
    /// nothing is learnt from the error.
    Likely,
}

/// The verdict on an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classification {
    /// The kind of overflow; [`OverflowKind::NotOverflow`] if it is none.
    pub kind: OverflowKind,
    /// Tokens of the model's window, or of its input limit, when the answer names them. Never a
    /// quota, or a limit in bytes or characters, because the value may be stored as the model's
    /// window. Only of a certain verdict.
    pub limit_tokens: Option<u64>,
    /// Tokens of the prompt, when the answer names them; in a breakdown, those of the messages. Only
    /// of a certain verdict.
    pub prompt_tokens: Option<u64>,
    /// The rule that decided: a code, the name of a wording, or the name of another check such as
    /// `status-413`. Stable, and never content of a user.
    pub rule: &'static str,
    /// How certain the verdict is.
    pub confidence: Confidence,
    /// Of a likely verdict: the first 64 bits of a digest of the message without quotations and
    /// numbers. It tells wordings apart in a log, which must not have their content.
    pub wording: Option<u64>,
}

impl Classification {
    const fn new(kind: OverflowKind, rule: &'static str) -> Self {
        Self {
            kind,
            limit_tokens: None,
            prompt_tokens: None,
            rule,
            confidence: Confidence::Certain,
            wording: None,
        }
    }

    const fn likely(sense: Sense) -> Self {
        Self {
            confidence: Confidence::Likely,
            wording: Some(sense.wording),
            ..Self::new(sense.kind, sense.rule)
        }
    }

    /// Whether the context does not fit the window.
    pub const fn is_overflow(&self) -> bool {
        self.kind.is_overflow()
    }
}

/// The verdict on an answer. Linear in the body, and never fails.
pub fn classify(answer: &ProviderAnswer<'_>) -> Classification {
    let read = &answer.body[..answer.body.len().min(BODY_BYTES)];
    let text = String::from_utf8_lossy(read);
    let body = body::parse(&text, header(answer, "content-type"));
    if (200..300).contains(&answer.status) {
        return success(answer, &body);
    }
    failure(answer, &body)
}

/// An error within an answer that began as a success.
pub(crate) struct StreamError {
    /// Whether the error means that the context is too long.
    pub(crate) verdict: Classification,
    /// The HTTP status that the error names or implies.
    pub(crate) status: Option<u16>,
}

/// The error in one event of a stream, or in one document; None if the JSON is part of an answer.
pub(crate) fn stream_error(event_name: &str, json: &str, size: RequestSize) -> Option<StreamError> {
    const OK: u16 = 200;
    // Errors are short, and parsed JSON takes many times its size in memory.
    let json = &json[..json.floor_char_boundary(BODY_BYTES)];
    let is_error = event_name == "error";
    // The JSON is parsed only if it may be an error: if it holds "error" or "exception" (the first
    // letter may be a capital, so it is left out below), `__type` or `base_resp`.
    if !is_error
        && !["rror", "xception", "__type", "base_resp"]
            .iter()
            .any(|word| json.contains(word))
    {
        return None;
    }
    let value = serde_json::from_str(json).ok();
    let fields = match value {
        Some(value) if is_error => error_fields::from_failure(&value),
        Some(value) => error_fields::from_answer(&value)?,
        None if is_error => error_fields::from_failure(&serde_json::Value::from(json)),
        None => return None,
    };
    let by_code = || fields.codes.iter().find_map(|code| codes::status_of(code));
    let status = fields.statuses.first().copied().or_else(by_code);
    Some(StreamError {
        verdict: classify_error(&fields, status.unwrap_or(OK), size),
        status,
    })
}

/// Whether the provider counted far fewer tokens than were sent, so it has truncated the prompt
/// without an error. False if the tokens sent are unknown or few, or the provider counted none.
pub(crate) fn is_prompt_truncated(prompt_tokens: u64, sent_tokens: Option<u64>) -> bool {
    let state = AnswerState {
        prompt_tokens: Some(prompt_tokens),
        ..AnswerState::default()
    };
    is_truncated(&state, sent_tokens)
}

fn header<'a>(answer: &ProviderAnswer<'a>, name: &str) -> Option<&'a str> {
    let found = answer
        .headers
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// The verdict on an answer with an error status.
fn failure(answer: &ProviderAnswer<'_>, body: &Body<'_>) -> Classification {
    let header_code = header(answer, "x-amzn-errortype")
        .map(|name| error_fields::strip_namespace(name).to_owned());
    let verdict = |mut fields: ErrorFields| {
        fields.codes.extend(header_code.clone());
        classify_error(&fields, answer.status, answer.request_size())
    };
    match body {
        // Cerebras sends an empty body when the prompt is too long. One try with a smaller prompt
        // shows whether the length was the cause.
        Body::Empty if matches!(answer.status, 400 | 413) => {
            Classification::new(OverflowKind::Input, "status-without-body")
        }
        Body::Empty => verdict(ErrorFields::default()),
        Body::Html(page) => verdict(error_fields::from_page(body::text_of_page(page))),
        Body::PlainText(words) => {
            let words = body::last_of_traceback(words).unwrap_or(words);
            verdict(error_fields::from_failure(&serde_json::Value::from(words)))
        }
        Body::Json(value) => verdict(error_fields::from_failure(value)),
        Body::Stream(stream) => {
            let verdicts = stream
                .events
                .iter()
                .map(|event| verdict(error_fields::from_failure(event.value())));
            first_about_size(verdicts).unwrap_or(verdict(ErrorFields::default()))
        }
    }
}

/// The verdict on an answer with a success status: an error within it, a silent or truncated
/// answer, or a good one.
fn success(answer: &ProviderAnswer<'_>, body: &Body<'_>) -> Classification {
    let verdict = |fields: ErrorFields| {
        classify_error(
            &fields,
            fields.statuses.first().copied().unwrap_or(answer.status),
            answer.request_size(),
        )
    };
    let error = match body {
        Body::Empty => return Classification::new(OverflowKind::Silent, "empty-body"),
        Body::Html(_) | Body::PlainText(_) => {
            return Classification::new(OverflowKind::NotOverflow, "unknown-answer");
        }
        Body::Json(value) => error_fields::from_answer(value).map(verdict),
        Body::Stream(stream) => {
            first_about_size(stream.events.iter().filter_map(error_in_event).map(verdict))
        }
    };
    if let Some(verdict) = error {
        return verdict;
    }
    let mut state = AnswerState::default();
    match body {
        Body::Json(value) => state.take(value),
        Body::Stream(stream) => stream
            .events
            .iter()
            .for_each(|event| state.take(event.value())),
        _ => {}
    }
    let stream = if let Body::Stream(stream) = body {
        Some(stream)
    } else {
        None
    };
    // A longer body was read only in part: content and end may be in the rest.
    let silent = if answer.body.len() > BODY_BYTES {
        None
    } else {
        silence_rule(answer, &state, stream)
    };
    let shortened = || is_truncated(&state, answer.sent_tokens).then_some("prompt-shortened");
    match silent.or_else(shortened) {
        _ if state.stop.as_deref() == Some("model_context_window_exceeded") => Classification::new(
            OverflowKind::OutputTruncated,
            "model_context_window_exceeded",
        ),
        Some(rule) => Classification::new(OverflowKind::Silent, rule),
        None => Classification::new(OverflowKind::NotOverflow, "success"),
    }
}

fn error_in_event(event: &Event) -> Option<ErrorFields> {
    match event {
        Event::Error(value) => Some(error_fields::from_failure(value)),
        Event::Other(value) => error_fields::from_answer(value),
    }
}

impl Event {
    const fn value(&self) -> &serde_json::Value {
        match self {
            Self::Error(value) | Self::Other(value) => value,
        }
    }
}

/// The rule by which a success counts as silent: its stream has no events or no end, or it has no
/// content. None if it is not silent.
fn silence_rule(
    answer: &ProviderAnswer<'_>,
    state: &AnswerState,
    stream: Option<&Stream>,
) -> Option<&'static str> {
    if let Some(stream) = stream {
        if stream.events.is_empty() {
            return Some("stream-without-events");
        }
        let is_over = state.stop.is_some() || (stream.is_done && state.has_content);
        if state.is_known && !is_over {
            return Some("stream-without-end");
        }
    }
    let rule = if answer.delivery == Delivery::Streamed {
        "stream-without-content"
    } else {
        "answer-without-content"
    };
    state.is_empty_answer().then_some(rule)
}

/// Whether the provider counted less than three fifths of the sent tokens. Ollama keeps about half
/// of its window and drops the rest of a longer prompt; two tokenizers differ by less than two
/// fifths on the same text. False below [`MIN_SENT_TOKENS`], or if a count is 0 or missing.
fn is_truncated(state: &AnswerState, sent: Option<u64>) -> bool {
    let sent = sent.filter(|sent| *sent >= MIN_SENT_TOKENS);
    let counted = state.prompt_tokens.filter(|counted| *counted > 0);
    sent.zip(counted)
        .is_some_and(|(sent, counted)| counted.saturating_mul(5) < sent.saturating_mul(3))
}

/// The first verdict that is about size; if there is none, the first verdict.
fn first_about_size(verdicts: impl Iterator<Item = Classification>) -> Option<Classification> {
    let mut other = None;
    for verdict in verdicts {
        if verdict.kind != OverflowKind::NotOverflow {
            return Some(verdict);
        }
        other.get_or_insert(verdict);
    }
    other
}

/// The verdict on an error: by its codes, then by the known wordings and the sense of its message,
/// then by its status.
fn classify_error(fields: &ErrorFields, status: u16, size: RequestSize) -> Classification {
    let matched = fields
        .messages
        .iter()
        .find_map(|message| wording::match_message(message));
    let by_words = matched.map(|matched| Classification {
        limit_tokens: matched.limit,
        prompt_tokens: matched.prompt,
        ..Classification::new(matched.kind, matched.rule)
    });
    let mut codes = fields.codes.iter();
    let by_code = codes.find_map(|code| match codes::look_up(code)? {
        CodeMeaning::Overflow(kind, rule) => Some(Classification::new(kind, rule)),
        CodeMeaning::Unrelated => None,
    });
    let is_unrelated = fields.is_unrelated() || codes::is_unrelated_status(status);
    let is_unknown = matched.is_none() && !is_unrelated && may_be_overflow(status);
    let likely = || {
        let found = is_unknown.then(|| sense_of(fields, size)).flatten();
        found.map(Classification::likely)
    };
    if let Some(by_code) = by_code {
        // A request that is too large may have too many tokens: then its message says so.
        if by_code.kind == OverflowKind::Bytes
            && let Some(verdict) = likely()
        {
            return verdict;
        }
        // A message about the window is more precise than the code: it gives the kind and the
        // numbers. But a quota stays a quota.
        let precise = by_words
            .filter(|words| words.is_overflow() && by_code.kind != OverflowKind::QuotaTooSmall);
        let mut verdict = precise.map_or(by_code, |words| Classification {
            rule: by_code.rule,
            ..words
        });
        if verdict.is_overflow() {
            verdict.limit_tokens = verdict.limit_tokens.or(fields.limit);
            verdict.prompt_tokens = verdict.prompt_tokens.or(fields.prompt);
        }
        return verdict;
    }
    let by_words =
        by_words.filter(|words| !is_unrelated || words.kind == OverflowKind::QuotaTooSmall);
    if let Some(words) = by_words {
        return words;
    }
    if let Some(verdict) = likely() {
        return verdict;
    }
    if status == 413 && !is_unrelated {
        Classification::new(OverflowKind::Bytes, "status-413")
    } else {
        Classification::new(OverflowKind::NotOverflow, "other-error")
    }
}

/// The sense of an error: of its messages and asides, then of its codes.
fn sense_of(fields: &ErrorFields, size: RequestSize) -> Option<Sense> {
    let mut texts = fields.messages.iter().chain(&fields.asides);
    let mut codes = fields.codes.iter();
    texts
        .find_map(|text| {
            // A text of one word is a code.
            if text.contains(char::is_whitespace) {
                sense::judge(text, size)
            } else {
                sense::judge_code(text, size)
            }
        })
        .or_else(|| codes.find_map(|code| sense::judge_code(code, size)))
}

/// Whether an error with this status may be an overflow in unknown words. Success: the error is
/// within an answer.
const fn may_be_overflow(status: u16) -> bool {
    matches!(status, 200..=299 | 400 | 404 | 413 | 414 | 422 | 500..=503 | 507)
}
