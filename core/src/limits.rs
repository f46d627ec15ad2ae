//! Every limit of anneal, named, with its unit.

/// Messages in one append.
pub const MESSAGES_PER_APPEND: usize = 100;
/// Parts in one message.
pub const PARTS_PER_MESSAGE: usize = 256;
/// Media in one tool result.
pub const MEDIA_PER_RESULT: usize = 32;
/// Bytes of one unary request.
pub const REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one piece of a streamed text.
pub const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a request's own framing may add, so that a piece of exactly [`CHUNK_BYTES`] fits.
pub const FRAMING_BYTES: usize = 16;
/// Bytes of one answer.
pub const RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of one piece of a streamed context: below every gRPC library's own limit of 4 MiB.
pub const CONTEXT_PIECE_BYTES: usize = 1024 * 1024;
/// Bytes of one message's text, by streaming.
pub const MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of such a text as JSON, as it is stored, where quotes and line ends take two and control characters six: reading it
/// takes up to four times as much memory.
pub const CONTENT_BYTES: usize = MESSAGE_BYTES / 2 * 3;
/// Bytes of content and summaries in one page of messages or checkpoints; a page holds at least one of them.
pub const PAGE_CONTENT_BYTES: i64 = 4 * 1024 * 1024;
/// Bytes of content that one context reads of its tail, the newest first, beside the newest message and the newest user
/// message: sixteen times what the largest window holds, and the memory that one call can take.
pub const CONTEXT_CONTENT_BYTES: i64 = 128 * 1024 * 1024;
/// Bytes of one range of a message's text.
pub const RANGE_BYTES: i64 = 4 * 1024 * 1024;
/// Keys in one map of labels.
pub const METADATA_KEYS: usize = 32;
/// Bytes of all keys and values of one map of labels.
pub const METADATA_BYTES: usize = 4 * 1024;
/// Bytes of an id given by the caller (request, agent, user, tool call, tool name, media type).
pub const ID_BYTES: usize = 128;
/// Bytes of a media URI that is not a `data:` URI.
pub const URI_BYTES: usize = 2_048;
/// Bytes of a title.
pub const TITLE_BYTES: usize = 512;
/// Bytes of a system prompt.
pub const SYSTEM_PROMPT_BYTES: usize = 256 * 1024;
/// Bytes of an imported summary.
pub const SUMMARY_BYTES: usize = 1024 * 1024;
/// Bytes of a focus text.
pub const FOCUS_BYTES: usize = 4 * 1024;
/// Bytes of a provider's answer that is to be classified.
pub const PROVIDER_BODY_BYTES: usize = 1024 * 1024;
/// Headers of such an answer.
pub const PROVIDER_HEADERS: usize = 64;
/// Bytes of all names and values of these headers.
pub const PROVIDER_HEADERS_BYTES: usize = 16 * 1024;
/// Entries of a page when the caller does not say.
pub const PAGE_DEFAULT: i64 = 50;
/// Entries of a page at most; more is answered with this many.
pub const PAGE_MOST: i64 = 500;
/// Seconds that Compact may wait.
pub const COMPACT_WAIT_SECONDS: u64 = 60;
/// Seconds that a call may take when its caller sets no deadline.
pub const DEADLINE_DEFAULT_SECONDS: u64 = 10;
/// Seconds that a call may take at most.
pub const DEADLINE_MOST_SECONDS: u64 = 60;
/// Seconds that a turn of a chat may take, and takes at most when its caller sets no deadline.
pub const CHAT_DEADLINE_SECONDS: u64 = 600;
/// Seconds that a watch of a conversation may take: a year, which no server process lives.
pub const WATCH_DEADLINE_SECONDS: u64 = 365 * 24 * 3_600;
/// Tools that a turn may offer to its model.
pub const TOOLS: usize = 128;
/// Bytes of all their names, descriptions and schemas.
pub const TOOLS_BYTES: usize = 256 * 1024;
/// Streams that one connection may have open.
pub const STREAMS_PER_CONNECTION: u32 = 128;
