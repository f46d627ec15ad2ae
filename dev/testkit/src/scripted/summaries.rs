//! Answers of the scripted model that are valid summaries: they pass every check of anneal-llm.

use serde_json::{Value, json};

use super::{ModelRequest, ReportedUsage, Say, Script};

impl Script {
    /// A valid summary: short, in its own words, with every string that the prompt says must be
    /// kept.
    pub fn summarizes(asked: &ModelRequest) -> Self {
        Self::summarizes_as(asked, SUMMARY)
    }

    /// A valid summary with this text.
    pub fn summarizes_as(asked: &ModelRequest, summary: &str) -> Self {
        Self::says(asked, [Say::text(&summary_json(asked, summary))])
    }

    /// A valid summary whose answer reports this usage.
    pub fn summarizes_counted(asked: &ModelRequest, counted: ReportedUsage) -> Self {
        Self::says_counted(
            asked.api(),
            &[Say::text(&summary_json(asked, SUMMARY))],
            counted,
        )
    }
}

const SUMMARY: &str = "Several things were asked about, and each of them was answered.";

fn summary_json(asked: &ModelRequest, summary: &str) -> String {
    json!({
        "summary": summary,
        "decisions": [],
        "open": [],
        "identifiers": must_keep(asked),
        "requests": [],
    })
    .to_string()
}

/// The strings that the summary must keep. A line of the prompt's data lists them.
fn must_keep(asked: &ModelRequest) -> Value {
    let texts = asked.texts();
    let mut lines = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(|line: &Value| line["kind"] == "must_keep");
    line.map_or_else(|| json!([]), |line| line["strings"].clone())
}
