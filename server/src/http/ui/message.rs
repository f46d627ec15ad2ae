//! The messages that are stored for messages of the AI SDK.

use std::collections::HashMap;

use anneal_proto::{
    convert::message,
    v1::{self as pb, part::Part},
};

use super::{
    labels, outputs,
    parsed_message::{UiMessage, UiPart, UiRole, parse_id, refused_field, wire},
};
use crate::http::problem::Problem;

/// Most bytes of the JSON in one label.
const LABEL_BYTES: usize = 2_048;

impl UiMessage {
    /// The message of the user as it is stored, with its id as a label.
    pub(super) fn to_question(&self, field: &str) -> Result<pb::NewMessage, Problem> {
        parse_id(&format!("{field}.id"), &self.id)?;
        self.to_plain_message(field, pb::Role::User)
    }

    /// The messages that are stored for a message of a history: for an answer several, one for each
    /// step and one for the outputs of its calls.
    pub(super) fn to_messages(&self, field: &str) -> Result<Vec<pb::NewMessage>, Problem> {
        match self.role {
            UiRole::User => Ok(vec![self.to_plain_message(field, pb::Role::User)?]),
            UiRole::System => Ok(vec![self.to_plain_message(field, pb::Role::System)?]),
            UiRole::Assistant => self.to_steps(field),
        }
    }

    /// A message of text and, unless it is the system's, of files.
    fn to_plain_message(&self, field: &str, role: pb::Role) -> Result<pb::NewMessage, Problem> {
        let mut parts = Vec::new();
        for (index, part) in self.parts.0.iter().enumerate() {
            let field = format!("{field}.parts[{index}]");
            match part.kind.as_str() {
                "text" => parts.extend(part.to_text()),
                "file" if role != pb::Role::System => parts.push(part.to_media(&field)?),
                kind => return Err(refused_part(&field, kind)),
            }
        }
        if parts.is_empty() {
            let reason = if role == pb::Role::System {
                "must hold a text"
            } else {
                "must hold a text or a file"
            };
            return Err(Problem::invalid(format!("{field}.parts"), reason));
        }
        Ok(pb::NewMessage {
            role: role.into(),
            parts,
            metadata: self.labels(field)?,
        })
    }

    /// The steps of an answer: one message of the assistant each, and one with the results of its
    /// calls. Calls whose input was cut off are left out, as the AI SDK does it.
    fn to_steps(&self, field: &str) -> Result<Vec<pb::NewMessage>, Problem> {
        let labels = self.labels(field)?;
        let (mut messages, mut said, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (index, part) in self.parts.0.iter().enumerate() {
            let field = format!("{field}.parts[{index}]");
            match part.kind.as_str() {
                "step-start" => end_step(&mut messages, &labels, &mut said, &mut results),
                "text" => said.extend(part.to_text()),
                "reasoning" => said.extend(part.to_reasoning()),
                "file" => said.push(part.to_media(&field)?),
                _ if part.is_call() => {
                    said.extend(outputs::to_call(part, &field)?);
                    results.extend(outputs::to_result(part, &field)?);
                }
                kind => return Err(refused_part(&field, kind)),
            }
        }
        end_step(&mut messages, &labels, &mut said, &mut results);
        Ok(messages)
    }

    /// The labels of the stored message: its id, its metadata, the names of its files.
    fn labels(&self, field: &str) -> Result<HashMap<String, String>, Problem> {
        let mut labels = HashMap::new();
        if !self.id.is_empty() {
            parse_id(&format!("{field}.id"), &self.id)?;
            labels.insert(labels::ID.to_owned(), self.id.clone());
        }
        if let Some(metadata) = &self.metadata {
            let metadata = metadata.get().to_owned();
            let metadata = bounded_label(&format!("{field}.metadata"), metadata)?;
            labels.insert(labels::METADATA.to_owned(), metadata);
        }
        let files = self.parts.0.iter().filter(|part| part.kind == "file");
        let names: Vec<Option<&String>> = files.map(|part| part.filename.as_ref()).collect();
        if names.iter().any(Option::is_some) {
            let names = serde_json::json!(names).to_string();
            let names = bounded_label(&format!("{field}.parts.filename"), names)?;
            labels.insert(labels::FILE_NAMES.to_owned(), names);
        }
        Ok(labels)
    }
}

/// Ends a step: adds what the assistant has said, and the results of its calls.
fn end_step(
    messages: &mut Vec<pb::NewMessage>,
    labels: &HashMap<String, String>,
    said: &mut Vec<pb::Part>,
    results: &mut Vec<pb::Part>,
) {
    if !said.is_empty() {
        messages.push(pb::NewMessage {
            role: pb::Role::Assistant.into(),
            parts: std::mem::take(said),
            metadata: labels.clone(),
        });
    }
    if !results.is_empty() {
        messages.push(pb::NewMessage {
            role: pb::Role::Tool.into(),
            parts: std::mem::take(results),
            ..pb::NewMessage::default()
        });
    }
}

impl UiPart {
    /// None: the text is empty.
    fn to_text(&self) -> Option<pb::Part> {
        let text = self.text.clone().filter(|text| !text.is_empty())?;
        Some(wire(Part::Text(pb::TextPart { text })))
    }

    /// Reasoning without the signature of a provider, which clients do not have.
    fn to_reasoning(&self) -> Option<pb::Part> {
        let text = self.text.clone().filter(|text| !text.is_empty())?;
        Some(wire(Part::Reasoning(pb::ReasoningPart {
            text,
            ..pb::ReasoningPart::default()
        })))
    }

    fn to_media(&self, field: &str) -> Result<pb::Part, Problem> {
        if self.provider_reference.is_some() {
            let reason = "files that a provider keeps are not modelled; give a URL";
            return Err(Problem::invalid(
                format!("{field}.providerReference"),
                reason,
            ));
        }
        let url = self.url.clone().unwrap_or_default();
        if !["https://", "http://", "data:"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            let reason = "must be an http(s) URL or a data: URL";
            return Err(Problem::invalid(format!("{field}.url"), reason));
        }
        let media = pb::MediaPart {
            uri: url,
            media_type: self.media_type.clone().unwrap_or_default(),
            ..pb::MediaPart::default()
        };
        parse_id(&format!("{field}.mediaType"), &media.media_type)?;
        message::parse_media(field, media.clone()).map_err(refused_field)?;
        Ok(wire(Part::Media(media)))
    }
}

fn bounded_label(field: &str, json: String) -> Result<String, Problem> {
    if json.len() > LABEL_BYTES {
        let reason = format!("must be at most {LABEL_BYTES} bytes of JSON");
        return Err(Problem::invalid(field, reason));
    }
    Ok(json)
}

fn refused_part(field: &str, kind: &str) -> Problem {
    let reason = format!(
        "parts of type {kind} are not modelled: a message holds text and files, an answer also \
         reasoning and tool calls"
    );
    Problem::invalid(format!("{field}.type"), reason)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::RawValue};

    use super::*;

    fn parse(value: &Value) -> UiMessage {
        let raw = RawValue::from_string(value.to_string()).expect("is JSON");
        UiMessage::parse("m", &raw).expect("is a message")
    }

    fn kinds(message: &pb::NewMessage) -> Vec<&'static str> {
        let kinds = message.parts.iter().map(|part| match &part.part {
            Some(Part::Text(_)) => "text",
            Some(Part::ToolUse(_)) => "call",
            Some(Part::ToolResult(_)) => "result",
            Some(Part::Media(_)) => "media",
            Some(Part::Reasoning(_)) => "reasoning",
            None => "nothing",
        });
        kinds.collect()
    }

    #[test]
    fn a_question_keeps_its_texts_files_id_and_metadata() {
        let message = parse(&json!({
            "id": "u1", "role": "user", "metadata": {"a": 1}, "createdAt": "yesterday",
            "parts": [
                {"type": "text", "text": "Look.", "state": "done"},
                {"type": "text", "text": ""},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==",
                 "filename": "a.png"},
            ],
        }));
        let stored = message.to_question("m").expect("is valid");
        assert_eq!(kinds(&stored), ["text", "media"]);
        let labels = [
            (labels::ID, "u1"),
            (labels::METADATA, r#"{"a":1}"#),
            (labels::FILE_NAMES, r#"["a.png"]"#),
        ];
        assert_eq!(stored.metadata.len(), labels.len());
        for (name, value) in labels {
            assert_eq!(stored.metadata[name], value);
        }
    }

    #[test]
    fn an_answer_becomes_its_steps() {
        let sent = json!({
            "id": "a1", "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "Hm."},
                {"type": "text", "text": "I look."},
                {"type": "tool-look", "toolCallId": "c1", "state": "output-available",
                 "input": {"q": 1.5}, "output": {"found": true}},
                {"type": "dynamic-tool", "toolName": "other", "toolCallId": "c2",
                 "state": "output-error", "input": {}, "errorText": "broken"},
                {"type": "tool-look", "toolCallId": "c3", "state": "input-streaming"},
                {"type": "step-start"},
                {"type": "text", "text": "Found."},
            ],
        });
        let sent = sent.to_string().replace("1.5", "1.50");
        let raw = RawValue::from_string(sent).expect("is JSON");
        let message = UiMessage::parse("m", &raw).expect("is a message");
        let stored = message.to_messages("m").expect("is valid");
        let shape: Vec<_> = stored
            .iter()
            .map(|message| (message.role(), kinds(message)))
            .collect();
        assert_eq!(
            shape,
            [
                (
                    pb::Role::Assistant,
                    vec!["reasoning", "text", "call", "call"]
                ),
                (pb::Role::Tool, vec!["result", "result"]),
                (pb::Role::Assistant, vec!["text"]),
            ]
        );
        assert!(
            format!("{stored:?}").contains(r#"{\"q\":1.50}"#),
            "numbers keep their form: {stored:?}"
        );
    }

    #[test]
    fn parts_that_are_not_modelled_are_refused_by_name() {
        let image = json!({"type": "file", "mediaType": "image/png", "url": "https://e.org/a.png"});
        let with = |name: &str, value: Value| {
            let mut part = image.clone();
            part[name] = value;
            part
        };
        for (role, part, name) in [
            ("user", json!({"type": "data-x", "data": 1}), "data-x"),
            ("user", json!({"type": "custom", "kind": "a.b"}), "custom"),
            ("user", with("url", json!("blob:x")), "url"),
            ("user", with("url", json!("file:///etc/passwd")), "url"),
            ("user", with("mediaType", json!(null)), "mediaType"),
            (
                "user",
                with("providerReference", json!({"openai": "f"})),
                "providerReference",
            ),
            (
                "assistant",
                json!({"type": "source-url", "sourceId": "1", "url": "x"}),
                "source-url",
            ),
            (
                "assistant",
                json!({"type": "steering-message", "id": "1"}),
                "steering-message",
            ),
            ("system", image.clone(), "file"),
        ] {
            let message = parse(&json!({"id": "m", "role": role, "parts": [part]}));
            let refused = message.to_messages("m").expect_err("is refused");
            assert!(refused.detail().contains(name), "{}", refused.detail());
        }
        let empty = parse(&json!({"id": "m", "role": "user", "parts": []}));
        assert!(empty.to_question("m").is_err());
        let without_id = parse(&json!({"role": "user", "parts": [{"type": "text", "text": "a"}]}));
        assert!(without_id.to_question("m").is_err());
    }
}
