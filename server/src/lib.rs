//! The gRPC and HTTP doors of anneal: parse what comes in, ask the store, let core decide, answer.

mod auth;
mod beginning;
mod brief;
mod build;
mod call;
mod context;
mod cpu;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
mod house;
mod http;
mod learning;
mod listen;
mod page;
mod parse;
mod policy;
mod polls;
mod ports;
mod pressure;
mod reload;
mod reply;
mod room;
mod rpc;
mod run;
mod services;
mod session;
mod settings;
mod status;
mod storage_quota;
mod traffic;
mod turn;
mod verbs;
mod watch;
mod wire;

pub use crate::http::CorsOrigins;
pub use auth::{AuthError, AuthSettings, ClientSettings, KeyText, NewSecret};
pub use house::House;
pub use listen::TlsError;
pub use parse::acceptable;
pub use policy::reply as policy;
pub use ports::Unprotected;
pub use reply::{part, role};
pub use run::{Addresses, ServerError, Setup, serve};
pub use settings::{AgentError, AgentSettings, Agents, ApplicationSettings, ChatSettings, ServerSettings};
pub use traffic::LimitSettings;
