//! GET /conversations/{id}/xray/messages/{mid}: a message as it is stored, beside its summary, and
//! beside the checkpoint that stands for it.

use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _,
    message_service_server::MessageService as _,
};
use anneal_web::{message::Actions, xray::Original};
use axum::{http::Extensions, response::Response};
use serde::Deserialize;

use super::{comparison::Comparison, view};
use crate::{
    http::{
        caller::{EndpointRpcs, HttpCaller},
        change,
        extractors::{PathParams, QueryParams},
        problem::Problem,
        web::{
            conversations::view::{MessageFrame, ShownBytes, message},
            error::WebError,
            page::WebCaller,
        },
    },
    limits::cpu_pool,
    verbs::Rpc,
};

/// The RPCs that show a message, and what stands for it.
pub(super) struct ShowOriginal;

impl EndpointRpcs for ShowOriginal {
    const RPCS: &'static [&'static Rpc] =
        &[Rpc::named("get_message"), Rpc::named("list_checkpoints")];
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
    WebCaller(http_caller, context, _): WebCaller<ShowOriginal>,
    PathParams((id, message_id)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<OriginalQuery>,
) -> Result<Response, WebError> {
    let message_id = change::parse_message_id(&message_id)?;
    let ask = pb::GetMessageRequest {
        conversation_id: id.clone(),
        message_id,
        ..pb::GetMessageRequest::default()
    };
    let services = &http_caller.services;
    let found = services.get_message(http_caller.request(ask)).await?;
    let (_, found, reservation) = found.into_parts();
    let stored = found.message.unwrap_or_default();
    let is_long = cpu_pool::is_long(stored.text_bytes.try_into().unwrap_or(usize::MAX), 0);
    let (cpu, tenant) = (&services.state.cpu, http_caller.caller.tenant());
    let conversation = id.clone();
    let make = move || {
        let original = original_view(stored, &conversation, parse_clipped(&query.clipped));
        // It is held until the content is gone.
        drop(reservation);
        original
    };
    let mut original = cpu.run_if(is_long, tenant, make).await?;
    let covering = find_covering_checkpoint(&http_caller, &id, message_id).await?;
    let (checkpoint, _reservation) = covering;
    original.checkpoint = checkpoint.map(view::checkpoint);
    let heading = format!("Message {message_id}");
    super::fragment(&context, &id, &heading, original.render())
}

/// The message beside its summary. A summary in a model's own words has hardly a line of the message,
/// so only extracted ones are compared with it.
fn original_view(stored: pb::Message, conversation: &str, clipped: Vec<(i64, i64)>) -> Original {
    let extracted = stored
        .summary
        .as_ref()
        .filter(|summary| summary.kind() == pb::SummaryKind::Extractive);
    let compared = extracted
        .map(|summary| Comparison::of(&stored, &summary.text))
        .unwrap_or_default();
    let frame = MessageFrame {
        actions: Actions {
            edit: false,
            regenerate: false,
            fork: false,
            withdraw: false,
        },
        alternatives: None,
    };
    Original {
        summary: view::message_summary(&stored),
        lines: compared.lines,
        lines_are_cut: compared.is_cut,
        left_out_bytes: compared.left_out_bytes,
        checkpoint: None,
        clipped,
        message: message(stored, conversation, frame, &mut ShownBytes::of_page()),
    }
}

/// Finds the checkpoint that contexts have instead of a message. None: there is none. The extensions
/// hold the reservation of its summary.
async fn find_covering_checkpoint(
    http_caller: &HttpCaller,
    id: &str,
    message: i64,
) -> Result<(Option<pb::Checkpoint>, Extensions), Problem> {
    let ask = pb::ListCheckpointsRequest {
        conversation_id: id.to_owned(),
        page_size: 1,
        ..pb::ListCheckpointsRequest::default()
    };
    let services = &http_caller.services;
    let listed = services.list_checkpoints(http_caller.request(ask)).await?;
    let (_, mut listed, reservation) = listed.into_parts();
    let newest = listed.checkpoints.pop();
    let covers = |it: &pb::Checkpoint| {
        it.valid && (it.first_message_id..=it.last_message_id).contains(&message)
    };
    Ok((newest.filter(covers), reservation))
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
    fn ranges_of_a_query_are_read_and_others_ignored() {
        assert_eq!(parse_clipped("1-2,30-4,x,5-"), [(1, 2), (30, 4)]);
    }
}
