//! One file per RPC: parse, ask the store, decide, reply.

pub(crate) mod append_large_message;
pub(crate) mod append_messages;
pub(crate) mod build_context;
pub(crate) mod chat;
pub(crate) mod classify_error;
pub(crate) mod compact;
pub(crate) mod create_conversation;
pub(crate) mod delete_conversation;
pub(crate) mod delete_separator;
pub(crate) mod discard_job;
pub(crate) mod get_context_usage;
pub(crate) mod get_conversation;
pub(crate) mod get_message;
pub(crate) mod get_model_stats;
pub(crate) mod get_queue_stats;
pub(crate) mod insert_separator;
pub(crate) mod list_checkpoints;
pub(crate) mod list_conversations;
pub(crate) mod list_jobs;
pub(crate) mod list_messages;
pub(crate) mod report_usage;
pub(crate) mod requeue_job;
pub(crate) mod stream_context;
pub(crate) mod update_conversation;
pub(crate) mod verify_conversation;
