//! A scripted model that writes summaries which can be stored.

use serde_json::{Value, json};

use super::{Asked, Counted, Say, Script};

impl Script {
    /// A good summary: short, of its own words, with every string that it must hold.
    pub fn summarizes(asked: &Asked) -> Self {
        Self::summarizes_as(asked, SUMMARY)
    }

    /// The same in these words.
    pub fn summarizes_as(asked: &Asked, summary: &str) -> Self {
        Self::says(asked, [Say::text(&good_summary(asked, summary))])
    }

    /// The same with these figures of the provider.
    pub fn summarizes_counted(asked: &Asked, counted: Counted) -> Self {
        Self::says_counted(asked.api(), &[Say::text(&good_summary(asked, SUMMARY))], counted)
    }
}

const SUMMARY: &str = "Several things were asked about, and each of them was answered.";

fn good_summary(asked: &Asked, summary: &str) -> String {
    json!({
        "summary": summary,
        "decisions": [],
        "open": [],
        "identifiers": must_keep(asked),
        "requests": [],
    })
    .to_string()
}

/// The strings that this prompt wants to find in the summary: a line of its data names them.
fn must_keep(asked: &Asked) -> Value {
    let texts = asked.texts();
    let mut lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(|line: &Value| line["kind"] == "must_keep");
    line.map_or_else(|| json!([]), |line| line["strings"].clone())
}
