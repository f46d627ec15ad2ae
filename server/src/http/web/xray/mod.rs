//! The pages of a conversation's context: its X-ray, and what other settings would do to it. Every
//! figure on them is a figure of an RPC.
//!
//! - `show`: the X-ray. `strip`, `eras`: its fragments that come after it
//! - `original`: a message beside its summary, and `comparison`: which of its lines the summary has
//! - `checkpoint`: where a summary comes from. `timeline`: the checkpoints
//! - `point`: the context as it was at a message
//! - `jobs`: runs a dead job again, or removes it
//! - `what_if`: contexts under other settings. `controls`: the form. `settings`: what it sets
//! - `view`, `strip_view`, `words`: answers of RPCs as the page shows them
//! - `reads`: the RPCs that several of these routes call

mod checkpoint;
mod comparison;
mod controls;
mod eras;
mod jobs;
mod original;
mod point;
mod reads;
mod settings;
mod show;
mod strip;
mod strip_view;
mod timeline;
mod view;
mod what_if;
mod words;

use anneal_web::{RenderError, layout::Place, xray::FragmentPage};
use axum::{http::StatusCode, response::Response, routing};

use super::{
    error::WebError,
    page::{self, PageContext, WebRoute},
};
use crate::{http::caller::EndpointRpcs, verbs::Rpc};

/// The routes of these pages.
pub(super) const ROUTES: &[WebRoute] = &[
    ("/conversations/{id}/xray", || routing::get(show::show)),
    ("/conversations/{id}/xray/strip", || {
        routing::get(strip::strip)
    }),
    ("/conversations/{id}/xray/eras", || routing::get(eras::eras)),
    ("/conversations/{id}/xray/messages/{mid}", || {
        routing::get(original::original)
    }),
    ("/conversations/{id}/xray/checkpoints", || {
        routing::get(timeline::timeline)
    }),
    ("/conversations/{id}/xray/checkpoints/{last}", || {
        routing::get(checkpoint::checkpoint)
    }),
    ("/conversations/{id}/xray/at/{n}", || {
        routing::get(point::point)
    }),
    ("/conversations/{id}/xray/requeue", || {
        routing::post(jobs::requeue)
    }),
    ("/conversations/{id}/xray/discard", || {
        routing::post(jobs::discard)
    }),
    ("/conversations/{id}/what-if", || {
        routing::get(what_if::show).post(what_if::save)
    }),
];

/// The RPCs that show a context.
struct ShowContext;

impl EndpointRpcs for ShowContext {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("get_context_usage"),
        Rpc::named("build_context"),
        Rpc::named("list_checkpoints"),
        Rpc::named("list_token_runs"),
    ];
}

/// The RPCs that show what a context was.
struct ShowHistory;

impl EndpointRpcs for ShowHistory {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("list_cache_eras"),
        Rpc::named("list_checkpoints"),
        Rpc::named("list_token_runs"),
    ];
}

/// Answers the script with a fragment of the X-ray, and everybody else with a page around it.
fn fragment(
    context: &PageContext,
    conversation: &str,
    heading: &str,
    rendered: Result<String, RenderError>,
) -> Result<Response, WebError> {
    if context.is_htmx() {
        return page::html(StatusCode::OK, rendered);
    }
    let page = rendered.and_then(|html| {
        let page = FragmentPage {
            page: context.page(heading, Place::Xray),
            conversation: conversation.to_owned(),
            heading: heading.to_owned(),
            html,
        };
        page.render()
    });
    page::html(StatusCode::OK, page)
}
