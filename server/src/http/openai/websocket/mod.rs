//! Responses over a WebSocket: `GET /v1/responses` with an upgrade. The same turns as over HTTP, one
//! after the other. The connection remembers its newest response if that is not stored.
//!
//! - `connect`: the handshake
//! - `session`: reads the frames of a client, and sends it events
//! - `frame`: the frames

mod connect;
mod frame;
mod session;

use axum::routing;

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[("/v1/responses", || routing::get(connect::connect))];
