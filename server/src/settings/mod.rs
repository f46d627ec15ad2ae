//! The server's settings.
//!
//! - `agent_chat`: the options of an agent's turns
//! - `applications`: turns, and the defaults of agents' conversations
//! - `auth`: how callers are authenticated
//! - `limits`: what callers may use
//! - `model_list`: the models that turns try, in order
//! - `reloadable`: the settings that a reload replaces while the server runs
//! - `server`: addresses, protection and limits of the process
//! - `web`: the page

mod agent_chat;
mod applications;
mod auth;
mod limits;
mod model_list;
mod reloadable;
mod server;
mod web;

pub(crate) use self::auth::is_uri;
pub use self::{
    agent_chat::{AgentChatSettings, ToolsFileError},
    applications::{AgentError, AgentSettings, Agents, ChatSettings},
    auth::{AuthSettings, AuthSettingsError, ClientSettings},
    limits::LimitSettings,
    model_list::{ModelList, ModelListError},
    reloadable::{CurrentSettings, ReloadableSettings},
    server::ServerSettings,
    web::WebSettings,
};
