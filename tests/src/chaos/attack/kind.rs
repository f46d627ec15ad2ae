//! The attacks that there are.

use super::{attacker::Strike, bodies, callers, connections, floods, jobs, reads, turns};

macro_rules! attacks {
    ($($(#[doc = $doc:literal])* $variant:ident, $name:literal, $perform:path;)*) => {
        /// Something that an attacker does to a server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Attack {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Attack {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Performs it until it is cut off, or has nothing more to do.
            pub(super) async fn perform(self, strike: &Strike) {
                match self {
                    $(Self::$variant => $perform(strike).await,)*
                }
            }
        }
    };
}

attacks! {
    /// Names of fields of 4 MB, in JSON and protobuf, that an error may repeat or rewrite.
    HugeNames, "huge names", bodies::huge_names;
    /// JSON bodies of 4 MB on every route: nested, of numbers, of unknown fields, no JSON at all.
    HugeJson, "huge JSON", bodies::huge_json;
    /// Requests of 4 MB that consist of two million empty elements.
    EmptyElements, "empty elements", bodies::empty_elements;
    /// Every field of every RPC with nonsense of up to 1 MiB, and requests that break off.
    Nonsense, "nonsense", bodies::nonsense;
    /// System prompts of 256 KiB that are counted exactly.
    LargePrompts, "large prompts", bodies::large_prompts;
    /// Answers of providers of 1 MiB to be classified.
    Classifications, "classifications", bodies::classifications;
    /// Single bytes of a message of 63 MiB.
    ByteRanges, "byte ranges", reads::byte_ranges;
    /// Contexts of 200,000 messages of one letter, in every format, with budgets and pressure.
    TinyContexts, "contexts of tiny messages", reads::tiny_contexts;
    /// Contexts at the limit of what one reads, 128 MiB.
    LargeContexts, "large contexts", reads::large_contexts;
    /// Reads that are cancelled as soon as they have begun.
    CancelledReads, "cancelled reads", reads::cancelled_reads;
    /// Pages and whole documents of large messages.
    LargePages, "large pages", reads::large_pages;
    /// Verifications of large conversations.
    Verifications, "verifications", reads::verifications;
    /// Page tokens, positions and etags that nobody was given.
    ForgedTokens, "forged tokens", reads::forged_tokens;
    /// Requests that never come whole, over HTTP/1.1 and HTTP/2.
    HalfRequests, "half requests", connections::half_requests;
    /// Answers that nobody reads, over HTTP/1.1 and HTTP/2.
    UnreadAnswers, "unread answers", connections::unread_answers;
    /// Connections by the thousand that say nothing, or half a head.
    IdleConnections, "idle connections", connections::idle_connections;
    /// Connections that are opened and closed as fast as possible.
    ShortConnections, "short connections", connections::short_connections;
    /// Watches of a server's health by a stranger, thousands of them.
    HealthWatches, "health watches", connections::health_watches;
    /// Watches of conversations by the hundred, from the first message on.
    Watches, "watches", connections::watches;
    /// Event streams over HTTP by the hundred.
    EventStreams, "event streams", connections::event_streams;
    /// Readers of one running turn, by the hundred.
    TurnReaders, "readers of a turn", turns::turn_readers;
    /// Turns that the model refuses with one status.
    RefusedTurns, "refused turns", turns::refused_turns;
    /// Turns that the model does not answer.
    SlowTurns, "slow turns", turns::slow_turns;
    /// Turns that are cancelled before the first piece of their answer.
    CancelledTurns, "cancelled turns", turns::cancelled_turns;
    /// Media URLs that lead to metadata addresses, local networks and buckets.
    MediaUrls, "media URLs", turns::media_urls;
    /// Answers of megabytes over HTTP that nobody reads to their end.
    LongAnswers, "long answers", turns::long_answers;
    /// Ids of events that nobody was given.
    ForgedEventIds, "forged event ids", turns::forged_event_ids;
    /// Credentials that nobody was given, as fast as possible.
    FalseCredentials, "false credentials", callers::false_credentials;
    /// Reflection, documents and figures, by a stranger.
    PublicPages, "public pages", callers::public_pages;
    /// Lists of jobs and figures of queues and models.
    OperatorCalls, "operator calls", callers::operator_calls;
    /// Small calls as fast as possible.
    SmallCalls, "small calls", callers::small_calls;
    /// Frames of HTTP/2 that cost their sender less than their receiver.
    FrameFloods, "frame floods", floods::frame_floods;
    /// Crumbs of chunks, endless headers and pipelined requests over HTTP/1.1.
    HeadFloods, "head floods", floods::head_floods;
    /// Texts that are costly to count and to summarise.
    HostileTexts, "hostile texts", jobs::hostile_texts;
    /// Conversations by the thousand, each with a job.
    ManyConversations, "many conversations", jobs::many_conversations;
    /// Separators, put and taken away.
    Separators, "separators", jobs::separators;
    /// Checkpoints of 1 MiB that are imported, and compactions that are waited for.
    Checkpoints, "checkpoints", jobs::checkpoints;
    /// Sessions of one scope, found and rotated as fast as possible.
    Sessions, "sessions", jobs::sessions;
    /// Conversations that are deleted while they are read.
    DeletedWhileRead, "deleted while read", jobs::deleted_while_read;
    /// Changes of one conversation that all wait for its row.
    OneRow, "one row", jobs::one_row;
    /// Large appends that stand still, or end without an end.
    LargeAppends, "large appends", jobs::large_appends;
    /// Reports of usage of models that do not exist.
    UsageReports, "usage reports", jobs::usage_reports;
}
