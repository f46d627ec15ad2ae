//! Limits of requests, stored data and connections. Each is the largest allowed value, unless it
//! says otherwise. A name that ends in `BYTES` or `SECONDS` has that unit; the others are numbers
//! of things.
//!
//! [`REQUEST_BYTES`] is applied where a request is received, by `server/src/grpc/server.rs`,
//! `server/src/http/mod.rs` and `server/src/http/extractors.rs`. The limits of fields are applied
//! when a request is parsed.

/// Messages in one append.
pub const MESSAGES_PER_APPEND: usize = 100;
/// Messages of a turn that is not stored.
pub const UNSTORED_MESSAGES: usize = 10_000;
/// Messages that one change of messages names by their ids.
pub const CHANGE_IDS: usize = 500;
/// Messages that one change changes, with those that go with them because of tool calls.
pub const CHANGE_MESSAGES: usize = 10_000;
/// Messages before and after those that are withdrawn or restored among which their tool calls and
/// results are looked for.
pub const TOOL_PAIR_WINDOW: i64 = 1_000;
/// Messages that a fork takes over: it stores its copies in one transaction.
pub const FORK_MESSAGES: usize = 200_000;
/// Parts in one message.
pub const PARTS_PER_MESSAGE: usize = 256;
/// Media in one tool result.
pub const MEDIA_PER_RESULT: usize = 32;
/// Bytes of one unary request.
pub const REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one chunk of a streamed text.
pub const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a gRPC request may have in addition to [`REQUEST_BYTES`]: the encoding around a chunk
/// of exactly [`CHUNK_BYTES`].
pub const FRAMING_BYTES: usize = 16;
/// Bytes of one response.
pub const RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of one piece of a streamed context. It is below the default limit of gRPC libraries, 4
/// MiB.
pub const CONTEXT_PIECE_BYTES: usize = 1024 * 1024;
/// Bytes of one message's text if it is streamed in chunks.
pub const MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of a message's content as stored JSON: half more than the text may have, for escapes.
/// Quotes and line ends take two bytes there and control characters six. Parsing takes up to four
/// times as much memory.
pub const CONTENT_BYTES: usize = MESSAGE_BYTES / 2 * 3;
/// Bytes of content and summaries in one page of messages or checkpoints. A page always holds at
/// least one entry.
pub const PAGE_CONTENT_BYTES: i64 = 4 * 1024 * 1024;
/// Bytes of tail content that one context reads, newest first, in addition to the newest message
/// and the newest user message. This is sixteen times the text of the largest window (2 million
/// tokens of about 4 bytes), and bounds the memory of one call.
pub const CONTEXT_CONTENT_BYTES: i64 = 128 * 1024 * 1024;
/// Bytes of one byte range of a message's text.
pub const RANGE_BYTES: i64 = 4 * 1024 * 1024;
/// Keys of one metadata map.
pub const METADATA_KEYS: usize = 32;
/// Bytes of all keys and values of one metadata map.
pub const METADATA_BYTES: usize = 4 * 1024;
/// Bytes of an id or name given by the caller (request, agent, user, tool call, tool name, media
/// type).
pub const ID_BYTES: usize = 128;
/// Bytes of a media URI that is not a `data:` URI.
pub const URI_BYTES: usize = 2_048;
/// Bytes of a title.
pub const TITLE_BYTES: usize = 512;
/// Bytes of a system prompt.
pub const SYSTEM_PROMPT_BYTES: usize = 256 * 1024;
/// Bytes of an imported summary.
pub const SUMMARY_BYTES: usize = 1024 * 1024;
/// Bytes of a focus text: what a requested summary should concentrate on.
pub const FOCUS_BYTES: usize = 4 * 1024;
/// Bytes of a provider's response body that ClassifyError accepts.
pub const PROVIDER_BODY_BYTES: usize = 1024 * 1024;
/// Headers of a provider's response that ClassifyError accepts.
pub const PROVIDER_HEADERS: usize = 64;
/// Bytes of all names and values of these headers.
pub const PROVIDER_HEADERS_BYTES: usize = 16 * 1024;
/// Number of entries in a page if the request names no size.
pub const PAGE_DEFAULT: i64 = 50;
/// Most entries in a page. A larger requested size is lowered to this.
pub const PAGE_MAX: i64 = 500;
/// Longest wait of a Compact call, in seconds.
pub const COMPACT_WAIT_SECONDS: u64 = 60;
/// How long CancelTurn waits for the end of the turn, if its caller does not say.
pub const CANCEL_WAIT_SECONDS: u64 = 5;
/// Longest time that CancelTurn waits for the end of the turn.
pub const CANCEL_WAIT_MAX_SECONDS: u64 = 30;
/// Deadline of a call, in seconds, if its caller sets none.
pub const DEADLINE_DEFAULT_SECONDS: u64 = 10;
/// Longest deadline of a call, in seconds.
pub const DEADLINE_MAX_SECONDS: u64 = 60;
/// Longest deadline of a chat turn, in seconds, and its deadline if its caller sets none.
pub const CHAT_DEADLINE_SECONDS: u64 = 600;
/// Longest deadline of a watch, in seconds: one year, longer than a server process runs.
pub const WATCH_DEADLINE_SECONDS: u64 = 365 * 24 * 3_600;
/// Tools that one turn may offer to its model.
pub const TOOLS: usize = 128;
/// Bytes of all names, descriptions and schemas of a turn's tools.
pub const TOOLS_BYTES: usize = 256 * 1024;
/// Bytes of the JSON Schema of an answer.
pub const RESPONSE_SCHEMA_BYTES: usize = 64 * 1024;
/// Texts before which a model stops.
pub const STOP_TEXTS: usize = 16;
/// Models that one turn may try after its first one.
pub const FALLBACK_MODELS: usize = 7;
/// Concurrent streams of one connection.
pub const STREAMS_PER_CONNECTION: u32 = 128;
