//! The server of anneal: gRPC and HTTP.
//!
//! - `grpc/`, `http/`: the edges. They parse requests and format answers
//! - `usecases/`: what the edges share. They read and write the store; `anneal-core` decides
//! - `reply/`: answers made of stored rows; `anneal-proto` converts the rest
//! - `rpc_call.rs`: the caller, deadline, limits, span and metrics of one RPC; `call_metrics.rs`:
//!   the handles of these metrics; `slow_calls.rs`: the slowest calls
//! - `limits/`: what callers may use at once, and what tenants may store
//! - `caches/`: remembers facts of conversations, which statements check again
//! - `auth/`: authenticates callers; `identity.rs`: the name of a caller in logs
//! - `verbs.rs`: what a credential must allow for each RPC
//! - `listen/`: TCP and TLS connections; `traffic/`: rates, bytes that wait, slow readers
//! - `state.rs`: what every RPC uses; `watch_registry/`: the watched conversations;
//!   `turn_stops.rs`: the turns that can be told to stop
//! - `settings/`: the server's settings; `cors_origins.rs`: the allowed origins, parsed;
//!   `reloaded_files.rs`: values from files that may change
//! - `run.rs`: start and stop; `listeners.rs`: binds the addresses; `server_error.rs`: why the
//!   server did not start, or failed
//! - `failure.rs`, `reason.rs`: why a call failed; `truncated_text.rs`: texts in errors
//! - `audit.rs`: the audit log; `poll_watchdog.rs`: polls that block an async thread
//! - `fuzzing.rs`: what fuzz targets call

mod audit;
mod auth;
mod caches;
mod call_metrics;
mod cors_origins;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
mod http;
mod identity;
mod limits;
mod listen;
mod listeners;
mod poll_watchdog;
mod reason;
mod reloaded_files;
mod reply;
mod rpc_call;
mod run;
mod server_error;
mod settings;
mod slow_calls;
mod state;
mod traffic;
mod truncated_text;
mod turn_stops;
mod usecases;
mod verbs;
mod watch_registry;

pub use auth::{GeneratedKey, KeyText};
pub use cors_origins::CorsOrigins;
pub use http::web_routes;
pub use listen::TlsError;
pub use listeners::Addresses;
pub use run::{Setup, check_settings, serve};
pub use server_error::{MissingProtection, ServerError};
pub use settings::{
    AgentChatSettings, AgentError, AgentSettings, Agents, AuthSettings, AuthSettingsError,
    ChatSettings, ClientSettings, CurrentSettings, LimitSettings, ModelList, ModelListError,
    ReloadableSettings, ServerSettings, ToolsFileError, WebSettings,
};
pub use state::ServerState;
