//! Anthropic's prompt cache, as these pages describe it (read in November 2026):
//!
//! - platform.claude.com/docs/en/build-with-claude/prompt-caching;
//! - `skills/claude-api/shared/prompt-caching.md` in github.com/anthropics/skills.
//!
//! The rules:
//!
//! - A request is cached from its beginning: tools, system, messages. Each mark writes one entry: a
//!   hash of everything up to the marked block. Nothing is written elsewhere.
//! - A read finds what earlier requests have written. From each mark it checks at most 20
//!   positions, of which the mark is the first. The page says that the Claude API counts a run of
//!   tool calls or results as one position. Here each block counts, so that less is found.
//! - A beginning of fewer tokens than the model's minimum is not cached. That is no error.
//! - An entry lives five minutes, or an hour with `"ttl": "1h"`, from the start of the request that
//!   has written or read it. Marks of an hour come first.
//! - At most four marks. None on thinking or on an empty text.
//! - Another model or other tools void everything; another system prompt what follows the tools;
//!   another `tool_choice`, thinking or effort what follows the system prompt.
//! - What is read costs a tenth of plain input; what is written 1.25 times as much as plain input,
//!   or twice as much for an hour. What follows the last mark is plain input.

use std::collections::HashMap;

use anneal_core::tokens::MEDIA_TOKENS;

use super::{
    BilledCall, MarkFault, Refresh,
    prefix::{Prefix, PrefixReader, TextCounts},
    request_json::{Content, Fields, Refusal},
};

/// The shortest beginning that is cached, in tokens, by the beginning of the model's name.
const SHORTEST: [(&str, u64); 16] = [
    ("claude-opus-5", 512),
    ("claude-fable-5", 512),
    ("claude-mythos-5", 512),
    ("claude-opus-4-8", 1_024),
    ("claude-sonnet-5", 1_024),
    ("claude-sonnet-4-6", 1_024),
    ("claude-sonnet-4-5", 1_024),
    ("claude-sonnet-4-0", 1_024),
    ("claude-opus-4-1", 1_024),
    ("claude-opus-4-0", 1_024),
    ("claude-opus-4-7", 2_048),
    ("claude-mythos-preview", 2_048),
    ("claude-3-5-haiku", 2_048),
    ("claude-opus-4-6", 4_096),
    ("claude-opus-4-5", 4_096),
    ("claude-haiku-4-5", 4_096),
];

/// Most marks of a request.
const MAX_MARKS: usize = 4;
/// Positions that are checked from a mark, the mark included.
const POSITIONS: usize = 20;

/// Price of what is read from the cache, in hundredths of the price of plain input.
const READ_PRICE: u64 = 10;
/// Price of what is written for five minutes.
const WRITE_PRICE: u64 = 125;
/// Price of what is written for an hour.
const LONG_WRITE_PRICE: u64 = 200;

/// How long an entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lifetime {
    FiveMinutes,
    OneHour,
}

impl Lifetime {
    const fn seconds(self) -> u64 {
        match self {
            Self::FiveMinutes => 300,
            Self::OneHour => 3_600,
        }
    }
}

/// The entry that one mark has written.
struct Entry {
    lifetime: Lifetime,
    /// The last second in which it can be read.
    until: u64,
}

/// A block of a request.
struct Block {
    prefix: Prefix,
    mark: Option<Lifetime>,
}

/// A request, as far as the cache is concerned.
struct Request {
    /// Tools, system, messages.
    blocks: Vec<Block>,
    /// The shortest beginning that is cached, in tokens.
    shortest: u64,
}

/// The entries of the cache, by the hash of what they hold.
#[derive(Default)]
pub(super) struct AnthropicCache(HashMap<u64, Entry>);

impl AnthropicCache {
    /// Bills a request that starts in the second `now`.
    pub(super) fn bill(
        &mut self,
        json: &str,
        now: u64,
        (refresh, fault): (Refresh, MarkFault),
        counts: &mut TextCounts,
    ) -> Result<BilledCall, Refusal> {
        let request = read_request(json, counts)?;
        let sent_marks = request.marks();
        check_marks(&sent_marks)?;
        let marks = spoil(&sent_marks, fault);
        let read = self.find(&request, &marks, now);
        self.write(&request, &marks, (read, refresh), now);
        let tokens_up_to =
            |place: Option<usize>| place.map_or(0, |place| request.blocks[place].prefix.tokens);
        let last_written = |least: Lifetime| {
            let written = marks
                .iter()
                .rfind(|(place, lifetime)| *lifetime >= least && request.is_long_enough(*place));
            tokens_up_to(written.map(|(place, _)| *place))
        };
        let input = tokens_up_to(request.blocks.len().checked_sub(1));
        let cached = tokens_up_to(read);
        let long_written = last_written(Lifetime::OneHour).saturating_sub(cached);
        let written = last_written(Lifetime::FiveMinutes).saturating_sub(cached);
        let plain = input - cached - written;
        Ok(BilledCall {
            input,
            cached,
            written,
            long_written,
            marks: sent_marks.len(),
            units: cached * READ_PRICE
                + (written - long_written) * WRITE_PRICE
                + long_written * LONG_WRITE_PRICE
                + plain * 100,
        })
    }

    /// The last block up to which something can be read.
    fn find(&self, request: &Request, marks: &[(usize, Lifetime)], now: u64) -> Option<usize> {
        let from_each = marks.iter().filter_map(|(mark, _)| {
            let first = (mark + 1).saturating_sub(POSITIONS);
            (first..=*mark)
                .rev()
                .find(|place| self.holds(request.blocks[*place].prefix, now))
        });
        from_each.max()
    }

    fn holds(&self, prefix: Prefix, now: u64) -> bool {
        let entry = self.0.get(&prefix.hash);
        entry.is_some_and(|entry| now <= entry.until)
    }

    /// Writes what is marked, and refreshes what was read.
    fn write(
        &mut self,
        request: &Request,
        marks: &[(usize, Lifetime)],
        (read, refresh): (Option<usize>, Refresh),
        now: u64,
    ) {
        if let Some(place) = read
            && let Some(entry) = self.0.get_mut(&request.blocks[place].prefix.hash)
        {
            entry.until = now + entry.lifetime.seconds();
        }
        for (place, lifetime) in marks {
            let prefix = request.blocks[*place].prefix;
            let is_behind_read = read.is_none_or(|read| *place > read);
            let may_be_kept_as_it_is = refresh == Refresh::Longest && !is_behind_read;
            if !request.is_long_enough(*place) || may_be_kept_as_it_is && self.holds(prefix, now) {
                continue;
            }
            let entry = self.0.entry(prefix.hash).or_insert(Entry {
                lifetime: *lifetime,
                until: 0,
            });
            entry.lifetime = entry.lifetime.max(*lifetime);
            entry.until = now + entry.lifetime.seconds();
        }
    }
}

impl Request {
    /// The marked blocks, in order.
    fn marks(&self) -> Vec<(usize, Lifetime)> {
        let blocks = self.blocks.iter().enumerate();
        blocks
            .filter_map(|(place, block)| Some((place, block.mark?)))
            .collect()
    }

    fn is_long_enough(&self, place: usize) -> bool {
        self.blocks[place].prefix.tokens >= self.shortest
    }
}

fn check_marks(marks: &[(usize, Lifetime)]) -> Result<(), Refusal> {
    if marks.len() > MAX_MARKS {
        let found = marks.len();
        return Err(Refusal(format!(
            "A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {found}."
        )));
    }
    if !marks.is_sorted_by(|before, after| before.1 >= after.1) {
        return Err(Refusal(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The marks that the cache gets to see.
fn spoil(marks: &[(usize, Lifetime)], fault: MarkFault) -> Vec<(usize, Lifetime)> {
    match fault {
        MarkFault::None => marks.to_vec(),
        MarkFault::Dropped => Vec::new(),
        MarkFault::OneBlockEarly => {
            let moved = marks.iter();
            moved
                .filter_map(|(place, lifetime)| Some((place.checked_sub(1)?, *lifetime)))
                .collect()
        }
    }
}

fn read_request(json: &str, counts: &mut TextCounts) -> Result<Request, Refusal> {
    let fields = Fields::parse(json)?;
    let model = fields.text("model")?;
    let shortest = SHORTEST.iter().find(|(name, _)| model.starts_with(name));
    let Some((_, shortest)) = shortest else {
        return Err(Refusal(format!("model: {model}")));
    };
    let mut reader = PrefixReader::new(counts);
    let mut blocks = Vec::new();
    reader.read_key(&model);
    for tool in fields.list("tools")? {
        blocks.push(read_tool(tool, &mut reader)?);
    }
    reader.read_key("system");
    read_content(
        fields.content("system")?,
        "system",
        &mut reader,
        &mut blocks,
    )?;
    for name in ["tool_choice", "thinking", "output_config"] {
        reader.read_key(fields.json(name).unwrap_or_default());
    }
    for message in fields.list("messages")? {
        let message = Fields::parse(message)?;
        let role = message.text("role")?;
        read_content(message.content("content")?, &role, &mut reader, &mut blocks)?;
    }
    Ok(Request {
        blocks,
        shortest: *shortest,
    })
}

fn read_tool(json: &str, reader: &mut PrefixReader<'_>) -> Result<Block, Refusal> {
    let mut fields = Fields::parse(json)?;
    let mark = take_mark(&mut fields)?;
    reader.read_key(&fields.identity());
    reader.count_text(&fields.text("name")?);
    reader.count_text(&fields.text("description")?);
    reader.count_text(fields.json("input_schema").unwrap_or_default());
    Ok(Block {
        prefix: reader.prefix(),
        mark,
    })
}

/// Reads the content of a message. Each text of a user counts as a message of its own, because
/// anneal stores it as one.
fn read_content(
    content: Content<'_>,
    role: &str,
    reader: &mut PrefixReader<'_>,
    blocks: &mut Vec<Block>,
) -> Result<(), Refusal> {
    let items = match content {
        Content::Text(text) => {
            reader.read_framing(role);
            reader.read_text(&text);
            blocks.push(Block {
                prefix: reader.prefix(),
                mark: None,
            });
            return Ok(());
        }
        Content::Items(items) => items,
    };
    for (place, json) in items.into_iter().enumerate() {
        let mut fields = Fields::parse(json)?;
        let kind = fields.text("type")?;
        if place == 0 || role == "user" && kind == "text" {
            reader.read_framing(role);
        }
        let mark = take_mark(&mut fields)?;
        read_block(&fields, &kind, mark.is_some(), reader)?;
        blocks.push(Block {
            prefix: reader.prefix(),
            mark,
        });
    }
    Ok(())
}

fn read_block(
    fields: &Fields<'_>,
    kind: &str,
    is_marked: bool,
    reader: &mut PrefixReader<'_>,
) -> Result<(), Refusal> {
    reader.read_key(&fields.identity());
    match kind {
        "text" => {
            let text = fields.text("text")?;
            if is_marked && text.is_empty() {
                let words = "cache_control cannot be set for empty text blocks";
                return Err(Refusal(words.to_owned()));
            }
            reader.count_text(&text);
        }
        "thinking" | "redacted_thinking" => {
            if is_marked {
                let words = format!("{kind}.cache_control: Extra inputs are not permitted");
                return Err(Refusal(words));
            }
            reader.count_text(&fields.text("thinking")?);
        }
        "tool_use" => {
            reader.count_text(&fields.text("name")?);
            reader.count_text(fields.json("input").unwrap_or_default());
        }
        "tool_result" => match fields.content("content")? {
            Content::Text(text) => reader.count_text(&text),
            Content::Items(items) => {
                for json in items {
                    let fields = Fields::parse(json)?;
                    let kind = fields.text("type")?;
                    read_block(&fields, &kind, false, reader)?;
                }
            }
        },
        "image" | "document" => reader.count_tokens(MEDIA_TOKENS.get()),
        _ => return Err(Refusal(format!("unknown type of a block: {kind}"))),
    }
    Ok(())
}

/// Removes the mark of a block. What is cached does not depend on it.
fn take_mark(fields: &mut Fields<'_>) -> Result<Option<Lifetime>, Refusal> {
    let Some(json) = fields.take("cache_control") else {
        return Ok(None);
    };
    let mark = Fields::parse(json)?;
    if mark.text("type")? != "ephemeral" {
        let words = "cache_control.type: Input should be 'ephemeral'";
        return Err(Refusal(words.to_owned()));
    }
    match mark.text("ttl")?.as_str() {
        "" | "5m" => Ok(Some(Lifetime::FiveMinutes)),
        "1h" => Ok(Some(Lifetime::OneHour)),
        _ => Err(Refusal("ttl: Input should be '5m' or '1h'".to_owned())),
    }
}
