//! Hostile input: it is answered or refused as documented, stored byte for byte, and harms nothing.
//! A case is a request and its expected answer. The catalogue is the list of all cases.
//!
//! - `ai_sdk`, `openai_completions`, `openai_conversations`, `openai_responses`,
//!   `openai_response_parameters`: cases of the doors of other protocols; `openai_websocket`: frames and
//!   handshakes of the WebSocket.
//! - `case`: a case over gRPC, its request and its expected answer.
//! - `catalogue`: runs all cases against one app.
//! - `changed_messages`: cases of messages that are withdrawn or erased already.
//! - `changes`: cases of messages that are withdrawn and restored.
//! - `contexts`: cases of contexts, checkpoints, usage, turns and jobs.
//! - `conversations`: cases of creation, names, updates, ids and lists.
//! - `door_case`: a case of these doors; `door_catalogue`: runs them against one app; `door_fields`:
//!   hostile values in every place of every body.
//! - `edits`: cases of edits, of versions, and of lists of what no longer stands.
//! - `erasures`: cases of messages, users and tenants that are erased, and of receipts.
//! - `every_field`: hostile values for every field of every RPC, and truncated requests.
//! - `forks`: cases of forks, and of lists of them.
//! - `http`: cases over HTTP: bodies, paths and headers; `http_changes`: changes of messages, and
//!   turns that are stopped; `http_turns`: the body of a turn.
//! - `messages`: cases of appends, parts and positions.
//! - `pages`: cases of page sizes and page tokens.
//! - `policies`: cases of a conversation's settings.
//! - `sessions`: cases of scopes and defaults.
//! - `stops`: cases of turns that are stopped.
//! - `stored_content`: odd content is stored and exported unchanged, counted exactly, and rendered
//!   and summarized as data.
//! - `streams`: cases of streamed messages.
//! - `tokenizer_worst_cases`: long texts that are slow to tokenize.
//! - `wire`: cases of malformed frames, protobuf and headers.

mod ai_sdk;
mod case;
mod catalogue;
mod changed_messages;
mod changes;
mod contexts;
mod conversations;
mod door_case;
mod door_catalogue;
mod door_fields;
mod edits;
mod erasures;
mod every_field;
mod forks;
mod http;
mod http_changes;
mod http_turns;
mod messages;
mod openai_completions;
mod openai_conversations;
mod openai_response_parameters;
mod openai_responses;
mod openai_websocket;
mod pages;
mod policies;
mod sessions;
mod stops;
mod stored_content;
mod streams;
mod tokenizer_worst_cases;
mod wire;

use case::{ask, ask_about};

/// The binary under test, `anneal-under-test`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
