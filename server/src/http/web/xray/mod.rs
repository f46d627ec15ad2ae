//! The pages of a conversation's context: its X-ray, and what other settings would do to it. Every
//! figure on them is a figure of an RPC.
//!
//! - `show`: the X-ray. `strip`, `eras`: its fragments that come after it
//! - `original`: a message beside its summary. `checkpoint`: where a summary comes from
//! - `point`: the context as it was at a message
//! - `jobs`: runs a dead job again, or gives it up
//! - `what_if`: contexts under other settings. `controls`: these settings
//! - `view`, `strip_view`, `words`: answers of RPCs as the page shows them
//! - `reads`: the RPCs that several of these routes call

mod checkpoint;
mod controls;
mod eras;
mod jobs;
mod original;
mod point;
mod reads;
mod show;
mod strip;
mod strip_view;
mod view;
mod what_if;
mod words;

use axum::routing;

use super::page::WebRoute;
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
