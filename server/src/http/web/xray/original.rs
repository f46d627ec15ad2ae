//! GET /conversations/{id}/xray/messages/{mid}: a message as it is stored, beside its summary.

use std::collections::HashSet;

use anneal_proto::v1::{
    self as pb, message_service_server::MessageService as _, part::Part as Content,
};
use anneal_web::{
    message::Actions,
    xray::{Line, Original},
};
use axum::{http::StatusCode, response::Response};
use serde::Deserialize;

use super::view;
use crate::{
    http::{
        caller::EndpointRpcs,
        extractors::{PathParams, QueryParams},
        web::{
            conversations::view::{MessageFrame, ShownBytes, message},
            error::WebError,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// Most lines of a message that are compared with its summary.
const MOST_LINES: usize = 400;

/// Most bytes of these lines.
const MOST_LINE_BYTES: usize = 64 * 1024;

/// The RPC that shows a message.
pub(super) struct ShowOriginal;

impl EndpointRpcs for ShowOriginal {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("get_message")];
}

/// What a context left out of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OriginalQuery {
    /// Offsets and lengths: "10-200,4000-12".
    clipped: String,
}

/// Shows a message.
pub(super) async fn original(
    WebCaller(http_caller, ..): WebCaller<ShowOriginal>,
    PathParams((id, message_id)): PathParams<(String, i64)>,
    QueryParams(query): QueryParams<OriginalQuery>,
) -> Result<Response, WebError> {
    let ask = pb::GetMessageRequest {
        conversation_id: id.clone(),
        message_id,
        ..pb::GetMessageRequest::default()
    };
    let services = &http_caller.services;
    let found = services.get_message(http_caller.request(ask)).await?;
    let stored = found.into_inner().message.unwrap_or_default();
    let summary_text = match &stored.summary {
        Some(summary) => summary.text.clone(),
        None => String::new(),
    };
    let (lines, left_out_bytes) = if summary_text.is_empty() {
        (Vec::new(), 0)
    } else {
        compare(&stored, &summary_text)
    };
    let frame = MessageFrame {
        actions: Actions {
            edit: false,
            regenerate: false,
            fork: false,
            withdraw: false,
        },
        alternatives: None,
    };
    let original = Original {
        summary: view::message_summary(&stored),
        summary_text,
        lines,
        left_out_bytes,
        clipped: parse_clipped(&query.clipped),
        message: message(stored, &id, frame, &mut ShownBytes::of_page()),
    };
    page::html(StatusCode::OK, original.render())
}

/// The lines of a message, each with whether its summary has it literally, and the bytes of the
/// message that the summary does not have literally.
fn compare(stored: &pb::Message, summary: &str) -> (Vec<Line>, i64) {
    let kept: HashSet<&str> = summary
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut lines = Vec::new();
    let (mut shown_bytes, mut kept_bytes) = (0, 0);
    for line in stored.parts.iter().flat_map(texts).flat_map(str::lines) {
        let is_kept = kept.contains(line.trim());
        if is_kept {
            kept_bytes += line.len() as i64 + 1;
        }
        if lines.len() < MOST_LINES && shown_bytes + line.len() <= MOST_LINE_BYTES {
            shown_bytes += line.len();
            lines.push(Line {
                text: line.to_owned(),
                kept: is_kept,
            });
        }
    }
    (lines, (stored.text_bytes - kept_bytes).max(0))
}

/// The text of a part.
fn texts(part: &pb::Part) -> Option<&str> {
    match part.part.as_ref()? {
        Content::Text(text) => Some(&text.text),
        Content::ToolResult(result) => Some(&result.text),
        Content::ToolUse(call) => Some(&call.input),
        Content::Reasoning(_) | Content::Media(_) => None,
    }
}

fn parse_clipped(text: &str) -> Vec<(i64, i64)> {
    let ranges = text.split(',').filter_map(|range| {
        let (offset, length) = range.split_once('-')?;
        Some((offset.parse().ok()?, length.parse().ok()?))
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_summary_repeats_are_kept() {
        let stored = pb::Message {
            parts: vec![pb::Part {
                part: Some(Content::Text(pb::TextPart {
                    text: "first\n  second\nthird".into(),
                })),
            }],
            text_bytes: 20,
            ..pb::Message::default()
        };
        let (lines, left_out) = compare(&stored, "…\nsecond\n");
        let kept: Vec<bool> = lines.iter().map(|line| line.kept).collect();
        assert_eq!(kept, [false, true, false]);
        assert_eq!(left_out, 11);
    }

    #[test]
    fn ranges_of_a_query_are_read_and_others_ignored() {
        assert_eq!(parse_clipped("1-2,30-4,x,5-"), [(1, 2), (30, 4)]);
    }
}
