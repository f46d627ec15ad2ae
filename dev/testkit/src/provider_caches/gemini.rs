//! Gemini's implicit prompt cache, as these pages describe it (read in November 2026):
//!
//! - ai.google.dev/gemini-api/docs/caching;
//! - docs.cloud.google.com/gemini-enterprise-agent-platform, page "Context caching overview".
//!
//! The rules:
//!
//! - Any beginning that a recent request has sent may be cached, without a promise. Here it always
//!   is. It ends with a part: what two different parts have in common is not cached.
//! - The shortest beginning depends on the model: 2,048 tokens for 2.5, 4,096 for later ones.
//! - How long it lives is not said: "a short amount of time". Here five minutes.
//! - What is read costs a tenth of plain input. Writing costs nothing.

use std::collections::HashMap;

use super::{
    BilledCall,
    prefix::{Prefix, PrefixReader, TextCounts},
    request_json::{Fields, Refusal},
};

/// The shortest beginning that is cached, in tokens, by the beginning of the model's name.
const SHORTEST: [(&str, u64); 3] = [
    ("gemini-2.5-", 2_048),
    ("gemini-3", 4_096),
    ("gemini-4", 4_096),
];
/// Seconds for which a beginning lives without use.
const LIFETIME: u64 = 300;
/// Price of what is read from the cache, in hundredths of the price of plain input.
const READ_PRICE: u64 = 10;

/// The entries of the cache: the last second of each, by the hash of what it holds.
#[derive(Default)]
pub(super) struct GeminiCache(HashMap<u64, u64>);

impl GeminiCache {
    /// Bills a request to this path that starts in the second `now`.
    pub(super) fn bill(
        &mut self,
        (path, json): (&str, &str),
        now: u64,
        counts: &mut TextCounts,
    ) -> Result<BilledCall, Refusal> {
        let (_, model) = path.rsplit_once('/').unwrap_or_default();
        let (model, _) = model.split_once(':').unwrap_or_default();
        let known = SHORTEST.iter().find(|(name, _)| model.starts_with(name));
        let Some((_, shortest)) = known else {
            return Err(Refusal(format!("models/{model} is not found")));
        };
        let prefixes = read_request(model, json, counts)?;
        let is_held = |prefix: &&Prefix| {
            let until = self.0.get(&prefix.hash);
            until.is_some_and(|until| now <= *until)
        };
        let held = prefixes.iter().take_while(is_held).last();
        let cached = held
            .map(|prefix| prefix.tokens)
            .filter(|tokens| tokens >= shortest)
            .unwrap_or(0);
        let sent = prefixes.iter().map(|prefix| prefix.hash);
        self.0.extend(sent.map(|hash| (hash, now + LIFETIME)));
        let input = prefixes.last().map_or(0, |last| last.tokens);
        Ok(BilledCall {
            input,
            cached,
            written: 0,
            long_written: 0,
            marks: 0,
            units: cached * READ_PRICE + (input - cached) * 100,
        })
    }
}

/// The beginnings of a request that end with a part.
fn read_request(model: &str, json: &str, counts: &mut TextCounts) -> Result<Vec<Prefix>, Refusal> {
    let fields = Fields::parse(json)?;
    let mut reader = PrefixReader::new(counts);
    let mut prefixes = Vec::new();
    reader.read_key(model);
    for name in ["tools", "toolConfig"] {
        reader.read_key(fields.json(name).unwrap_or_default());
    }
    for tool in fields.list("tools")? {
        for function in Fields::parse(tool)?.list("functionDeclarations")? {
            let function = Fields::parse(function)?;
            reader.count_text(&function.text("name")?);
            reader.count_text(&function.text("description")?);
            reader.count_text(function.json("parametersJsonSchema").unwrap_or_default());
        }
    }
    if let Some(instruction) = fields.json("systemInstruction") {
        read_content(
            "system",
            &Fields::parse(instruction)?,
            &mut reader,
            &mut prefixes,
        )?;
    }
    for content in fields.list("contents")? {
        let content = Fields::parse(content)?;
        let role = content.text("role")?;
        read_content(&role, &content, &mut reader, &mut prefixes)?;
    }
    Ok(prefixes)
}

/// Reads a content. Each text of a user counts as a message of its own, because anneal stores it as
/// one.
fn read_content(
    role: &str,
    content: &Fields<'_>,
    reader: &mut PrefixReader<'_>,
    prefixes: &mut Vec<Prefix>,
) -> Result<(), Refusal> {
    for (place, json) in content.list("parts")?.into_iter().enumerate() {
        let part = Fields::parse(json)?;
        let is_text = part.json("text").is_some();
        if place == 0 || role == "user" && is_text {
            reader.read_framing(role);
        }
        if is_text {
            reader.read_text(&part.text("text")?);
        } else if let Some(json) = part.json("functionCall") {
            let call = Fields::parse(json)?;
            reader.read_text(&call.text("name")?);
            reader.read_text(call.json("args").unwrap_or_default());
        } else if let Some(json) = part.json("functionResponse") {
            let response = Fields::parse(json)?;
            reader.read_text(&response.text("name")?);
            let outcome = Fields::parse(response.json("response").unwrap_or("{}"))?;
            for name in ["result", "error"] {
                reader.read_key(name);
                reader.read_text(&outcome.text(name)?);
            }
        } else {
            return Err(Refusal("unknown kind of a part".to_owned()));
        }
        prefixes.push(reader.prefix());
    }
    Ok(())
}
