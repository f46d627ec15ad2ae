//! The harness of the black-box tests. A [`TestApp`] is a database, a server and a stepped worker
//! in the test's process; [`AnnealBinary`] runs server and worker as processes. [`chaos`]
//! runs campaigns of faults and attacks against such processes.
//!
//! Apps and processes:
//! - `test_app`: the app of one test: database, server, worker. `server_options`: its settings.
//! - `anneal_process`: processes of the binary. `terminal`: the binary in a pseudo-terminal.
//! - `scripted`: a model provider with scripted answers. `scripted_apps`, `model_worker`: servers
//!   and workers that call it. `provider_caches`: scripted providers with prompt caches.
//!   `test_summarizers`: summarizers without a model.
//! - `llm`: a real model, where it is installed. `python`: the Python client, where it is
//!   installed. `typescript`: the TypeScript programs of the tutorial, where they are compiled.
//!   `sdks`: SDKs of other protocols, where they are installed.
//! - `browser`: Chromium, where it is installed.
//! - `pooler`: PgBouncer. `tcp_proxy`: a proxy that stalls or closes connections.
//!   `tenant_swap_proxy`: a proxy that changes the tenant in the parameters of statements.
//! - `trace_collector`: a collector of traces, which keeps the spans that it receives.
//! - `chaos`: campaigns of faults and attacks.
//!
//! Calls:
//! - `test_conversation`, `conversation_queries`: appends, reads and contexts of one conversation.
//!   `message_changes`: withdraws, restores and erases messages. `message_edits`: edits messages,
//!   and lists what no longer stands. `forks`: forks conversations. `append_chats`: appends real
//!   conversations.
//! - `chat_turns`, `watch`, `sessions`: chat turns, watches, sessions.
//! - `credentials`: callers with API keys and tenants.
//! - `http_client`: a client of the HTTP API. `page_client`: a browser without scripts.
//!   `plain_http`: a minimal client of servers that tests start.
//! - `raw_rpc`: every RPC. `valid_requests`: a valid request of each. `request_fields`: every field
//!   of each.
//! - `raw_http2`: HTTP/2 frames by hand.
//! - `import_folder`: files of other systems, imported and exported.
//!
//! Checks and other parts:
//! - `answer_fields`: the fields of an answer. `status_details`: the details of an error.
//! - `rendered`: rendered contexts, read as a provider reads them.
//! - `eventually`: waits for another process or task. `locks`: holds database locks, and waits
//!   until other sessions wait for them.
//! - `canary`: looks for a word in all tables.
//! - `table_rows`: which tables have rows of a conversation, and rows of any values.
//! - `postponed_jobs`: retries of failed jobs that the test controls.
//! - `watchdog`: checks that no call has blocked an async thread.
//! - `legacy_tables`: databases of older systems.
//! - `texts`: deterministic texts. `seeded_random`: deterministic random numbers.
//! - `run_length`: short forms of tests for the gate (`make test`), and long ones for `make
//!   nightly`.
//! - `missing_tool`: skips tests whose tool is not installed, but not in the gate.

mod anneal_process;
mod answer_fields;
mod append_chats;
mod browser;
mod canary;
pub mod chaos;
mod chat_turns;
mod conversation_queries;
mod credentials;
mod eventually;
mod forks;
mod http_client;
mod import_folder;
mod legacy_tables;
mod llm;
mod locks;
mod message_changes;
mod message_edits;
mod missing_tool;
mod model_worker;
mod page_client;
mod plain_http;
mod pooler;
mod postponed_jobs;
mod provider_caches;
mod python;
pub mod raw_http2;
mod raw_rpc;
mod rendered;
pub mod request_fields;
mod run_length;
mod scripted;
mod scripted_apps;
mod sdks;
mod seeded_random;
mod server_options;
mod sessions;
mod status_details;
mod table_rows;
mod tcp_proxy;
mod tenant_swap_proxy;
mod terminal;
mod test_app;
mod test_conversation;
mod test_summarizers;
mod texts;
mod trace_collector;
mod typescript;
mod valid_requests;
mod watch;
mod watchdog;

pub use anneal_process::{AnnealBinary, CommandOutput, Folder, OwnPostgres, Process};
pub use answer_fields::answer_fields;
pub use append_chats::AppendedChat;
pub use browser::{Browser, BrowserPage, Look, key};
pub use canary::{Canary, content_digests, dump_database};
pub use chat_turns::{TurnOutcome, TurnRequest, read_until_text};
pub use credentials::{AuthorizedChannel, authorized_channel, make_key};
pub use eventually::{eventually, eventually_within};
pub use http_client::{HttpClient, HttpResponse, SseEvent, SseStream, text_of};
pub use import_folder::{
    ImportFolder, claw0_session, json_lines, pi_compaction, pi_message, pi_session,
};
pub use legacy_tables::{
    ExpectedMigration, MigratedConversation, MigratedMessage, OldRow, OldTables,
    expected_migration, read_migrated_conversations,
};
pub use llm::{Llm, start_llm};
pub use locks::{LOCK_CONVERSATION, LOCK_DEAD_JOBS, LOCK_JOBS, OpenTransaction};
pub use message_changes::{ChangeRequest, id_range};
pub use message_edits::EditRequest;
pub use missing_tool::skip_outside_gate;
pub use model_worker::ModelWorkerSettings;
pub use page_client::{PageAnswer, PageClient};
pub use plain_http::{HttpAnswer, post_json};
pub use pooler::Pooler;
pub use provider_caches::{BilledCall, CachingProvider, MarkFault, ProviderClock, Refresh};
pub use python::python_path;
pub use raw_rpc::{Rpc, call_frames, call_raw, call_to_the_end, every_rpc};
pub use rendered::{Recount, Rendered};
pub use run_length::gate_or_nightly;
pub use scripted::{
    Gate, MODEL, ModelAnswer, ModelRequest, ReportedUsage, Say, Script, ScriptedModel, plain_call,
    read_answer, read_rest,
};
pub use sdks::Sdk;
pub use seeded_random::SeededRandom;
pub use sessions::direct_scope;
pub use status_details::{StatusDetails, assert_refused, status_details};
pub use tcp_proxy::TcpProxy;
pub use tenant_swap_proxy::TenantSwapProxy;
pub use terminal::Terminal;
pub use test_app::{SUMMARY_MODEL, TestApp, append_grouping, empty_database, postgres_binaries};
pub use test_conversation::{
    AppendRequest, Built, TestConversation, assistant, call, media, user, with_longest_deadline,
};
pub use test_summarizers::{GatedSummarizer, PanickingSummarizer};
pub use texts::{prose, sentence};
pub use trace_collector::{ExportedSpan, TraceCollector};
pub use typescript::typescript_programs;
pub use valid_requests::valid_request;
pub use watch::{Watch, appended_ids, metric_value};
pub use watchdog::assert_no_blocked_thread;

/// Files beside the real conversations, where they are installed, and tests that need them.
pub use anneal_test_data::{find_test_data, skip_without_test_data};
/// Real conversations, where they are installed, what conversations cost, and constructors of
/// messages.
pub use anneal_transcripts::{
    Chat, Family, TranscriptFolder, message, parsed, replay, result, text,
};

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
