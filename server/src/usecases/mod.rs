//! What the server does for its edges. The gRPC and HTTP edges translate requests to these and
//! their results to answers.
//!
//! - [`append`]: stores messages and notifies workers and watchers
//! - [`build_context`]: reads, builds and records the context of a conversation
//! - [`chat_turn`]: one turn: store the prompt, build the context, call the model, store the answer
//! - [`emergency_compaction`]: shortens a context that a model has refused as too long
//! - [`model_calibration`]: stores windows and token ratios that providers' errors name
//! - [`conversation_defaults`]: the settings of a new conversation
//! - [`session`]: the conversation of a chat scope
//! - [`watch`]: streams the events of a conversation

pub(crate) mod append;
pub(crate) mod build_context;
pub(crate) mod chat_turn;
pub(crate) mod conversation_defaults;
pub(crate) mod emergency_compaction;
pub(crate) mod model_calibration;
pub(crate) mod session;
pub(crate) mod watch;
