//! The use cases of the server. The gRPC and HTTP edges parse requests, call these modules, and
//! format their results as answers.
//!
//! - [`append`]: stores messages and notifies workers and watchers
//! - [`build_context`]: reads, builds and records the context of a conversation
//! - [`change_messages`]: withdraws, restores and erases messages
//! - [`chat_turn`]: one turn: store the prompt, build the context, call the model, store the answer
//! - [`edit_message`]: gives a message a new version of its content
//! - [`emergency_compaction`]: shortens a context that is too long for its model
//! - [`likely_overflows`]: counts and logs errors whose unknown words likely mean an overflow
//! - [`model_calibration`]: stores windows and token ratios that providers' errors name
//! - [`conversation_defaults`]: the settings of a new conversation
//! - [`usage_report`]: stores what a model call used, and counts cold caches
//! - [`session`]: the conversation of a session scope, such as a thread, a group or a person
//! - [`tail_extract`]: an extract of the beginning of a context's tail
//! - [`unstored_summary`]: a summary of messages that are not stored
//! - [`watch`]: streams the events of a conversation

pub(crate) mod append;
pub(crate) mod build_context;
pub(crate) mod change_messages;
pub(crate) mod chat_turn;
pub(crate) mod conversation_defaults;
pub(crate) mod edit_message;
pub(crate) mod emergency_compaction;
pub(crate) mod likely_overflows;
pub(crate) mod model_calibration;
pub(crate) mod session;
pub(crate) mod tail_extract;
pub(crate) mod unstored_summary;
pub(crate) mod usage_report;
pub(crate) mod watch;
