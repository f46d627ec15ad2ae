//! One file per RPC: parse, call the store or a use case, reply.
//!
//! - Conversations: `create_conversation`, `fork_conversation`, `get_conversation`,
//!   `update_conversation`, `delete_conversation`, `list_conversations`, `watch_conversation`.
//! - Sessions: `resolve_session`, `rotate_session`.
//! - Messages: `append_messages`, `append_large_message` (a stream of pieces), `get_message`,
//!   `list_messages`, `list_message_versions`, `withdraw_messages`, `rewind`, `restore_messages`,
//!   `edit_message`, `erase_messages`, `insert_separator`, `delete_separator`.
//! - Contexts: `build_context`, `stream_context`, `get_context_usage`, `report_usage`,
//!   `classify_error` (whether a provider's error means that a context is too long),
//!   `list_cache_eras`, `list_token_runs`.
//! - Turns: `chat`, `cancel_turn`, `choose_alternative`.
//! - Checkpoints: `compact`, `list_checkpoints`, `import_checkpoint`.
//! - Erasures: `erase_user`, `erase_tenant`, `get_erasure`, `list_erasures`.
//! - Operators: `list_jobs`, `requeue_job`, `discard_job`, `get_queue_stats`, `get_model_stats`,
//!   `get_installation_stats`,
//!   `verify_conversation` (checks stored rows against the promises of docs/reliability.md).

pub(crate) mod append_large_message;
pub(crate) mod append_messages;
pub(crate) mod build_context;
pub(crate) mod cancel_turn;
pub(crate) mod chat;
pub(crate) mod choose_alternative;
pub(crate) mod classify_error;
pub(crate) mod compact;
pub(crate) mod create_conversation;
pub(crate) mod delete_conversation;
pub(crate) mod delete_separator;
pub(crate) mod discard_job;
pub(crate) mod edit_message;
pub(crate) mod erase_messages;
pub(crate) mod erase_tenant;
pub(crate) mod erase_user;
pub(crate) mod fork_conversation;
pub(crate) mod get_context_usage;
pub(crate) mod get_conversation;
pub(crate) mod get_erasure;
pub(crate) mod get_installation_stats;
pub(crate) mod get_message;
pub(crate) mod get_model_stats;
pub(crate) mod get_queue_stats;
pub(crate) mod import_checkpoint;
pub(crate) mod insert_separator;
pub(crate) mod list_cache_eras;
pub(crate) mod list_checkpoints;
pub(crate) mod list_conversations;
pub(crate) mod list_erasures;
pub(crate) mod list_jobs;
pub(crate) mod list_message_versions;
pub(crate) mod list_messages;
pub(crate) mod list_token_runs;
pub(crate) mod report_usage;
pub(crate) mod requeue_job;
pub(crate) mod resolve_session;
pub(crate) mod restore_messages;
pub(crate) mod rewind;
pub(crate) mod rotate_session;
pub(crate) mod stream_context;
pub(crate) mod update_conversation;
pub(crate) mod verify_conversation;
pub(crate) mod watch_conversation;
pub(crate) mod withdraw_messages;
