//! The text of a model's answer: the fields of the answer's JSON object, or the plain text if the
//! model wrote no JSON.

use serde_json::{Map, Value};

use crate::extractive::text;

/// The lists in an answer's object, each with its heading in the text.
const LISTS: [(&str, &str); 4] = [
    ("decisions", "Decisions"),
    ("open", "Open"),
    ("identifiers", "Identifiers"),
    ("requests", "Requests"),
];

/// How many opening braces are tried as the beginning of the object. Prose before the object seldom
/// has more.
const MAX_BRACES: usize = 8;

/// The text of the answer, without control characters other than line feed and tab; blank if the
/// answer has no text. None for JSON that is broken or is not the requested object.
pub(super) fn answer_text(answer: &str) -> Option<String> {
    let clean = text::clean(answer);
    let answer = without_thoughts(&clean);
    if let Some(object) = object(answer) {
        return Some(text_of_object(&object));
    }
    let plain = without_preamble(without_fence(answer)).trim();
    let is_json = plain.starts_with(['{', '[']) || plain.contains("\"summary\":");
    (!is_json).then(|| plain.to_owned())
}

/// The answer without the thoughts that some local models write before it; empty if the thoughts do
/// not end.
fn without_thoughts(answer: &str) -> &str {
    let Some(thoughts) = answer.trim_start().strip_prefix("<think>") else {
        return answer;
    };
    thoughts
        .split_once("</think>")
        .map_or("", |(_, answer)| answer)
}

/// The answer's object, which may stand alone, in a code fence or between prose. Unescaped line
/// feeds and tabs inside its strings are accepted.
fn object(answer: &str) -> Option<Map<String, Value>> {
    answer
        .match_indices('{')
        .take(MAX_BRACES)
        .find_map(|(at, _)| {
            let first =
                |json: &str| match serde_json::Deserializer::from_str(json).into_iter().next() {
                    Some(Ok(Value::Object(object))) if is_answer(&object) => Some(object),
                    _ => None,
                };
            first(&answer[at..]).or_else(|| first(&escape_line_feeds_and_tabs(&answer[at..])))
        })
}

fn is_answer(object: &Map<String, Value>) -> bool {
    object.contains_key("summary")
        || LISTS
            .iter()
            .any(|(field, _)| object.get(*field).is_some_and(Value::is_array))
}

/// The JSON with line feeds and tabs inside its strings escaped.
fn escape_line_feeds_and_tabs(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 16);
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            '\n' if quoted => out.push_str("\\n"),
            '\t' if quoted => out.push_str("\\t"),
            c => out.push(c),
        }
        // An unescaped quote begins or ends a string.
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
    }
    out
}

/// The object as text: the summary, then each list that is not empty, under its heading. Of the
/// identifiers, only those that the text does not hold yet.
fn text_of_object(object: &Map<String, Value>) -> String {
    let mut out = text::clean(&object.get("summary").map(entry).unwrap_or_default())
        .trim()
        .to_owned();
    for (field, heading) in LISTS {
        let mut entries: Vec<String> = match object.get(field) {
            Some(Value::Array(entries)) => entries.iter().map(entry).collect(),
            Some(other) => vec![entry(other)],
            None => Vec::new(),
        };
        entries = entries
            .iter()
            .map(|entry| text::fold(&text::clean(entry)))
            .filter(|entry| !entry.is_empty())
            .collect();
        if field == "identifiers" {
            entries.retain(|entry| !out.contains(entry.as_str()));
            entries = if entries.is_empty() {
                entries
            } else {
                vec![entries.join(", ")]
            };
        }
        if entries.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push_str("\n\n");
        }
        out.push_str(heading);
        out.push(':');
        for entry in entries {
            out.push_str(if field == "identifiers" { " " } else { "\n- " });
            out.push_str(&entry);
        }
    }
    out
}

/// A string unchanged; nothing for null; the values of an object without their keys, joined by
/// commas; the entries of a list, one per line; a number or a boolean as JSON.
fn entry(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Object(fields) => fields
            .values()
            .map(entry)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
        Value::Array(values) => values
            .iter()
            .map(entry)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n"),
        other => other.to_string(),
    }
}

/// The text without a code fence that encloses all of it.
fn without_fence(answer: &str) -> &str {
    let inner = answer
        .trim()
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"));
    inner
        .and_then(|inner| inner.split_once('\n'))
        .filter(|(_, body)| !body.contains("```"))
        .map_or(answer, |(_, body)| body)
}

/// The text without a first line that only announces it: `Here is a summary of the conversation:`.
fn without_preamble(answer: &str) -> &str {
    let answer = answer.trim_start();
    let Some((first, rest)) = answer.split_once('\n') else {
        return answer;
    };
    let announces = first.len() <= 100
        && first.trim_end().ends_with(':')
        && first.to_lowercase().contains("summary");
    if announces && !rest.trim().is_empty() {
        rest
    } else {
        answer
    }
}

#[cfg(test)]
mod tests {
    fn text(answer: &str) -> String {
        super::answer_text(answer).expect("the answer is accepted")
    }

    const WHOLE: &str = r#"{"summary": "Ann asked for it.", "decisions": ["Ship on Friday"], "open": [],
        "identifiers": ["src/a.rs", "E0502"], "requests": ["user (12): keep the tests"]}"#;
    const TEXT: &str = "Ann asked for it.\n\nDecisions:\n- Ship on Friday\n\nIdentifiers: src/a.rs, E0502\n\nRequests:\n- user (12): keep the tests";

    #[test]
    fn an_object_becomes_its_text_without_empty_lists() {
        assert_eq!(text(WHOLE), TEXT);
        assert_eq!(text(r#"{"summary": ""}"#), "");
        assert_eq!(text(r#"{"summary":" Hi \u0000\u001b[31mAnn "}"#), "Hi Ann");
    }

    #[test]
    fn an_object_is_found_in_a_fence_within_prose_and_after_thoughts() {
        for around in [
            ("```json\n", "\n```"),
            ("Here {it} is: ", " Done."),
            ("<think>{\"summary\":\"no\"}</think>\n", ""),
        ] {
            assert_eq!(
                text(&format!("{}{WHOLE}{}", around.0, around.1)),
                TEXT,
                "{around:?}"
            );
        }
    }

    #[test]
    fn unescaped_line_feeds_in_strings_are_accepted() {
        assert_eq!(
            text("{\"summary\": \"one\ntwo \\\"q\\\"\n\"}"),
            "one\ntwo \"q\""
        );
    }

    #[test]
    fn an_answer_without_an_object_is_text() {
        assert_eq!(text("Ann asked.\nBob agreed."), "Ann asked.\nBob agreed.");
        assert_eq!(text("```\nAnn asked.\n```"), "Ann asked.");
        assert_eq!(
            text("Here is the summary you wanted:\n\nAnn asked."),
            "Ann asked."
        );
        assert_eq!(text("<think>what to say"), "");
    }

    #[test]
    fn json_that_is_not_the_requested_object_is_refused() {
        for answer in [
            "{}",
            "[]",
            "{\"other\": 1}",
            "{\"other\": 1} Ann asked.",
            "```json\n{\"other\": 1}\n```",
            "{\"summary\": \"He said \"no\" to it.\"}",
            "Here it is:\n{\"summary\": \"Ann asked and",
        ] {
            assert_eq!(super::answer_text(answer), None, "{answer}");
        }
    }

    #[test]
    fn entries_that_are_not_strings_are_written_on_one_line() {
        let text = text(
            r#"{"summary":"s","decisions":[{"what":"ship","n":3},["a","b\nuser: hi"],null,7],"open":"the log"}"#,
        );
        // The fields of an object are read in the order of their keys: `n` before `what`.
        assert_eq!(
            text,
            "s\n\nDecisions:\n- 3, ship\n- a b user: hi\n- 7\n\nOpen:\n- the log"
        );
    }

    #[test]
    fn identifiers_that_the_summary_names_are_not_repeated() {
        assert_eq!(
            text(r#"{"summary":"src/a.rs is done","identifiers":["src/a.rs"]}"#),
            "src/a.rs is done"
        );
    }
}
