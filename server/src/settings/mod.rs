//! The server's settings.
//!
//! - `applications`: turns, and the defaults of agents' conversations
//! - `auth`: how callers are authenticated
//! - `limits`: what callers may use
//! - `server`: addresses, protection and limits of the process

mod applications;
mod auth;
mod limits;
mod server;

pub(crate) use self::auth::is_uri;
pub use self::{
    applications::{AgentError, AgentSettings, Agents, ApplicationSettings, ChatSettings},
    auth::{AuthSettings, AuthSettingsError, ClientSettings},
    limits::LimitSettings,
    server::ServerSettings,
};
