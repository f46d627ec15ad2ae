//! OpenAI's prompt cache, as these pages describe it (read in November 2026):
//!
//! - developers.openai.com/api/docs/guides/prompt-caching;
//! - the parameters of Chat Completions, `types/chat/completion_create_params.py` in
//!   github.com/openai/openai-python.
//!
//! Before gpt-5.6:
//!
//! - Any beginning that an earlier request has sent is cached, in steps of 128 tokens (the page's
//!   own sequence is 1024, 1152, 1280, 1408), from 1,024 tokens on. Here a beginning ends with a
//!   text: what two different texts have in common is not cached.
//! - It lives for five minutes without use, or for a day with `prompt_cache_retention`.
//! - Writing costs nothing: what is not read is plain input.
//!
//! From gpt-5.6 on:
//!
//! - A request writes at its breakpoints: an implicit one at the end of the latest message of a
//!   user or a tool, and the latest three explicit ones. The mode `explicit` of
//!   `prompt_cache_options` leaves out the implicit one.
//! - A read finds a beginning that was written, up to a breakpoint of the conversation: where one
//!   is or was, which is the end of any message of a user or a tool. The latest 80 are searched
//!   (the parameters; the page said 50 in July).
//! - The minimum is 1,024 tokens. There are no steps.
//! - `prompt_cache_key` must be the same. Without a key nothing is promised, and nothing found
//!   here.
//! - An entry lives 30 minutes from its last write or read.
//! - What is read costs a tenth of plain input, what is written 1.25 times as much as plain input.
//! - A breakpoint in an answer is refused, and any breakpoint by an older model.

use std::collections::{HashMap, HashSet};

use super::{
    BilledCall, MarkFault, Refresh,
    prefix::{Prefix, PrefixReader, TextCounts},
    request_json::{Content, Fields, Refusal},
};

/// The shortest beginning that is cached, in tokens.
const SHORTEST: u64 = 1_024;
/// Tokens of a step, before gpt-5.6.
const STEP: u64 = 128;
/// Seconds for which a beginning lives without use, before gpt-5.6.
const LIFETIME: u64 = 300;
/// The same with the longest retention.
const LONG_LIFETIME: u64 = 24 * 3_600;
/// Seconds for which an entry lives, from gpt-5.6 on.
const BREAKPOINT_LIFETIME: u64 = 30 * 60;
/// Most breakpoints that a request writes.
const MAX_WRITES: usize = 4;
/// Breakpoints that a read searches.
const SEARCHED: usize = 80;

/// Price of what is read from the cache, in hundredths of the price of plain input.
const READ_PRICE: u64 = 10;
/// Price of what is written, from gpt-5.6 on.
const WRITE_PRICE: u64 = 125;

/// A text or call of a message.
#[derive(Debug, Clone, Copy)]
struct Piece {
    prefix: Prefix,
    /// Whether it has an explicit breakpoint.
    is_marked: bool,
    /// Whether it is the last one of a message of a user or a tool.
    ends_question: bool,
}

impl Piece {
    const fn new(prefix: Prefix, is_marked: bool) -> Self {
        Self {
            prefix,
            is_marked,
            ends_question: false,
        }
    }
}

/// A request, as far as the cache is concerned.
struct Request {
    pieces: Vec<Piece>,
    model: String,
    has_key: bool,
    is_kept_long: bool,
    /// Whether an implicit breakpoint is left out.
    is_explicit: bool,
}

/// The entries of the cache: the last second of each, by the hash of what it holds.
#[derive(Default)]
pub(super) struct OpenAiCache(HashMap<u64, u64>);

impl OpenAiCache {
    /// Bills a request that starts in the second `now`.
    pub(super) fn bill(
        &mut self,
        json: &str,
        now: u64,
        (refresh, fault): (Refresh, MarkFault),
        counts: &mut TextCounts,
    ) -> Result<BilledCall, Refusal> {
        let mut request = read_request(json, counts)?;
        let marks = request.pieces.iter().filter(|piece| piece.is_marked);
        let marks = marks.count();
        let input = request.pieces.last().map_or(0, |last| last.prefix.tokens);
        if !has_breakpoints(&request.model) {
            if marks > 0 {
                let words = "prompt_cache_breakpoint is not supported with this model";
                return Err(Refusal(words.to_owned()));
            }
            let cached = self.reuse(&request, now);
            return Ok(BilledCall {
                input,
                cached,
                written: 0,
                long_written: 0,
                marks,
                units: cached * READ_PRICE + (input - cached) * 100,
            });
        }
        request.spoil(fault);
        let (cached, written) = self.read_and_write(&request, refresh, now);
        Ok(BilledCall {
            input,
            cached,
            written,
            long_written: 0,
            marks,
            units: cached * READ_PRICE + written * WRITE_PRICE + (input - cached - written) * 100,
        })
    }

    fn holds(&self, prefix: Prefix, now: u64) -> bool {
        self.0.get(&prefix.hash).is_some_and(|until| now <= *until)
    }

    /// Before gpt-5.6: the tokens that are read. Afterwards the whole request is held.
    fn reuse(&mut self, request: &Request, now: u64) -> u64 {
        let held = request
            .pieces
            .iter()
            .map(|piece| piece.prefix)
            .take_while(|prefix| self.holds(*prefix, now));
        let tokens = held.last().map_or(0, |prefix| prefix.tokens);
        let lifetime = if request.is_kept_long {
            LONG_LIFETIME
        } else {
            LIFETIME
        };
        let all = request.pieces.iter().map(|piece| piece.prefix.hash);
        self.0.extend(all.map(|hash| (hash, now + lifetime)));
        if tokens < SHORTEST {
            0
        } else {
            tokens / STEP * STEP
        }
    }

    /// From gpt-5.6 on: the tokens that are read, and those that are written.
    fn read_and_write(&mut self, request: &Request, refresh: Refresh, now: u64) -> (u64, u64) {
        let is_kept = |prefix: &Prefix| prefix.tokens >= SHORTEST && request.has_key;
        let searched = request.pieces.iter().rev();
        let searched =
            searched.filter(|piece| piece.is_marked || piece.ends_question && !request.is_explicit);
        let read = searched
            .take(SEARCHED)
            .map(|piece| piece.prefix)
            .find(|prefix| is_kept(prefix) && self.holds(*prefix, now));
        let cached = read.map_or(0, |prefix| prefix.tokens);
        let until = now + BREAKPOINT_LIFETIME;
        self.0.extend(read.map(|prefix| (prefix.hash, until)));
        let mut end = cached;
        for prefix in request.written().into_iter().filter(is_kept) {
            end = end.max(prefix.tokens);
            if prefix.tokens > cached || refresh == Refresh::All || !self.holds(prefix, now) {
                self.0.insert(prefix.hash, until);
            }
        }
        (cached, end - cached)
    }
}

impl Request {
    /// The entries that the request asks for.
    fn written(&self) -> Vec<Prefix> {
        let questions = self.pieces.iter().rev().filter(|piece| piece.ends_question);
        let implicit = questions.take(usize::from(!self.is_explicit));
        let explicit = self.pieces.iter().rev().filter(|piece| piece.is_marked);
        let most_explicit = MAX_WRITES - usize::from(!self.is_explicit);
        implicit
            .chain(explicit.take(most_explicit))
            .map(|piece| piece.prefix)
            .collect()
    }

    /// Changes the breakpoints that the cache gets to see.
    fn spoil(&mut self, fault: MarkFault) {
        if fault == MarkFault::None {
            return;
        }
        let marked: HashSet<usize> = (1..self.pieces.len())
            .filter(|place| self.pieces[*place].is_marked)
            .map(|place| place - 1)
            .collect();
        for (place, piece) in self.pieces.iter_mut().enumerate() {
            piece.is_marked = fault == MarkFault::OneBlockEarly && marked.contains(&place);
        }
    }
}

/// Whether the model's cache has breakpoints: from gpt-5.6 on.
fn has_breakpoints(model: &str) -> bool {
    let version = model.strip_prefix("gpt-").unwrap_or_default();
    let version = version.split('-').next().unwrap_or_default();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let major = numbers.next().and_then(Result::ok).unwrap_or(0);
    let minor = numbers.next().and_then(Result::ok).unwrap_or(0);
    (major, minor) >= (5, 6)
}

fn read_request(json: &str, counts: &mut TextCounts) -> Result<Request, Refusal> {
    let fields = Fields::parse(json)?;
    let mut reader = PrefixReader::new(counts);
    let mut request = Request {
        pieces: Vec::new(),
        model: fields.text("model")?,
        has_key: fields.json("prompt_cache_key").is_some(),
        is_kept_long: fields.text("prompt_cache_retention")? == "24h",
        is_explicit: fields
            .json("prompt_cache_options")
            .map(Fields::parse)
            .transpose()?
            .map_or(Ok(false), |options| {
                options.text("mode").map(|mode| mode == "explicit")
            })?,
    };
    reader.read_key(&request.model);
    for name in ["prompt_cache_key", "response_format"] {
        reader.read_key(fields.json(name).unwrap_or_default());
    }
    for tool in fields.list("tools")? {
        reader.read_key(tool);
        let function = Fields::parse(tool)?;
        let function = Fields::parse(function.json("function").unwrap_or("{}"))?;
        reader.count_text(&function.text("name")?);
        reader.count_text(&function.text("description")?);
        reader.count_text(function.json("parameters").unwrap_or_default());
    }
    for message in fields.list("messages")? {
        read_message(&Fields::parse(message)?, &mut reader, &mut request.pieces)?;
    }
    Ok(request)
}

/// Reads a message. Each text of a user counts as a message of its own, because anneal stores it as
/// one.
fn read_message(
    message: &Fields<'_>,
    reader: &mut PrefixReader<'_>,
    pieces: &mut Vec<Piece>,
) -> Result<(), Refusal> {
    let role = message.text("role")?;
    let before = pieces.len();
    reader.read_framing(&role);
    reader.read_key(&message.text("tool_call_id")?);
    match message.content("content")? {
        Content::Text(text) => {
            reader.read_text(&text);
            pieces.push(Piece::new(reader.prefix(), false));
        }
        Content::Items(items) => {
            for (place, json) in items.into_iter().enumerate() {
                let piece = Fields::parse(json)?;
                let kind = piece.text("type")?;
                if kind != "text" {
                    return Err(Refusal(format!("unknown type of a content part: {kind}")));
                }
                let is_marked = is_marked(&piece, &role)?;
                if place > 0 && role == "user" {
                    reader.read_framing(&role);
                }
                reader.read_text(&piece.text("text")?);
                pieces.push(Piece::new(reader.prefix(), is_marked));
            }
        }
    }
    for call in message.list("tool_calls")? {
        let call = Fields::parse(call)?;
        reader.read_key(&call.text("id")?);
        let function = Fields::parse(call.json("function").unwrap_or("{}"))?;
        reader.read_text(&function.text("name")?);
        reader.read_text(&function.text("arguments")?);
        pieces.push(Piece::new(reader.prefix(), false));
    }
    if matches!(role.as_str(), "user" | "tool")
        && let Some(last) = pieces[before..].last_mut()
    {
        last.ends_question = true;
    }
    Ok(())
}

fn is_marked(piece: &Fields<'_>, role: &str) -> Result<bool, Refusal> {
    let Some(json) = piece.json("prompt_cache_breakpoint") else {
        return Ok(false);
    };
    let mode = Fields::parse(json)?.text("mode")?;
    if mode != "explicit" || role == "assistant" {
        let words = "prompt_cache_breakpoint is not supported here";
        return Err(Refusal(words.to_owned()));
    }
    Ok(true)
}
