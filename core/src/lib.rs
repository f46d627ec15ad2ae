//! Pure decisions of anneal: no async, no I/O, no clock, no protobuf, no SQL.
//!
//! - `context`: what to send to the model next. `render`: a context as a provider's request.
//! - `provider_format`: the formats, and what providers accept in each of them.
//! - `boundary`: where a context starts. `turn`: where a turn starts.
//! - `cooling`: when a message is large, cool, and swapped for its summary.
//! - `trigger`: which jobs are due. `cut`: when a checkpoint is due, and where it cuts the tail.
//!   `checkpoint_import`: whether another system's summary may be a checkpoint.
//! - `policy`: the settings in force for a conversation. `model`: windows and prices of models.
//!   `policy_error`: why a setting is refused.
//! - `tokens`: counts and estimates. `usage`: calibration by providers' usage reports.
//! - `cache`: how providers cache prompts. `chat_options`: how a model answers, and its tools.
//! - `economics`: what model calls cost under each variant of cooling.
//! - `admission`: whether a model may be called now. `breaker`: when failed calls stop further
//!   calls.
//! - `media_access`: which media addresses a provider may receive.
//! - `caller`: identities and permissions. `session_key`: which session a chat belongs to.
//! - `message`: messages and their parts. `tool_pairs`: which tool result answers which call.
//!   `title`: titles made from messages. `digest`: SHA-256 digests. `job`: kinds of jobs and their
//!   backoff. `limits`: limits of requests and stored data.

pub mod admission;
pub mod boundary;
pub mod breaker;
pub mod cache;
pub mod caller;
pub mod chat_options;
pub mod checkpoint_import;
pub mod context;
pub mod cooling;
pub mod cut;
pub mod digest;
pub mod economics;
pub mod job;
pub mod limits;
pub mod media_access;
pub mod message;
pub mod model;
pub mod policy;
mod policy_error;
mod provider_format;
pub mod render;
pub mod session_key;
pub mod title;
pub mod tokens;
pub mod tool_pairs;
pub mod trigger;
pub mod turn;
pub mod usage;
