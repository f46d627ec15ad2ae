//! POST /conversations/{id}/separator: a mark after which contexts start, or its removal.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::response::Response;
use serde::Deserialize;

use super::{paths, turn};
use crate::{
    http::{
        caller::EndpointRpcs,
        extractors::PathParams,
        web::{
            error::WebError,
            form::Form,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// The fields of a separator.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Separator {
    /// The separator that is deleted. Absent: one is inserted at the end.
    delete: Option<i64>,
    request_id: String,
}

/// The RPCs of this route.
pub(super) struct ChangeSeparators;

impl EndpointRpcs for ChangeSeparators {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("insert_separator"),
        Rpc::named("delete_separator"),
    ];
}

/// Inserts a separator at the end of the conversation, or deletes one.
pub(super) async fn separator(
    WebCaller(http_caller, ..): WebCaller<ChangeSeparators>,
    PathParams(id): PathParams<String>,
    Form(form): Form<Separator>,
) -> Result<Response, WebError> {
    let services = &http_caller.services;
    if let Some(after_message_id) = form.delete {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: id.clone(),
            after_message_id,
            request_id: turn::request_id_of(
                &format!("delete separator {after_message_id}"),
                &form.request_id,
            ),
        };
        services.delete_separator(http_caller.request(ask)).await?;
        return Ok(page::see_other(&paths::at(&id, after_message_id), None));
    }
    let ask = pb::InsertSeparatorRequest {
        conversation_id: id.clone(),
        request_id: turn::request_id_of("separator", &form.request_id),
        ..pb::InsertSeparatorRequest::default()
    };
    services.insert_separator(http_caller.request(ask)).await?;
    Ok(page::see_other(&paths::end(&id), None))
}
