//! The list of attacks: the name of each in reports, and the function that performs it.

use super::{
    bodies, callers, connections, floods, jobs, reads, running_attack::RunningAttack, turns,
};

macro_rules! attacks {
    ($($(#[doc = $doc:literal])* $variant:ident, $name:literal, $perform:path;)*) => {
        /// An attack on a server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Attack {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Attack {
            /// All attacks.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The attack's name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Performs the attack until the attack has nothing more to do. Most attacks go on until
            /// the caller drops this future.
            pub(super) async fn perform(self, running: &RunningAttack) {
                match self {
                    $(Self::$variant => $perform(running).await,)*
                }
            }
        }
    };
}

attacks! {
    /// Field names of 1 to 4 MB, in JSON and protobuf, that an error message may repeat or rewrite.
    HugeNames, "huge names", bodies::huge_names;
    /// JSON bodies of up to 4 MB on the routes of turns and sessions: deeply nested, with many
    /// numbers, unknown fields, escapes or repeated keys, or invalid.
    HugeJson, "huge JSON", bodies::huge_json;
    /// Requests of 4 MB with two million empty elements.
    EmptyElements, "empty elements", bodies::empty_elements;
    /// Random values of up to 1 MiB in random fields of all RPCs, and truncated requests.
    Nonsense, "nonsense", bodies::nonsense;
    /// System prompts of 256 KiB, which the server counts exactly.
    LargePrompts, "large prompts", bodies::large_prompts;
    /// ClassifyError with provider answers of about 1 MiB.
    Classifications, "classifications", bodies::classifications;
    /// Ranges of a message of 63 MiB: most of one byte, some of up to 4 MiB.
    ByteRanges, "byte ranges", reads::byte_ranges;
    /// Contexts of 50,000 or 200,000 tiny messages, in every format, with budgets and pressure.
    TinyContexts, "contexts of tiny messages", reads::tiny_contexts;
    /// Contexts of 63 MiB, and contexts at the read limit of 128 MiB.
    LargeContexts, "large contexts", reads::large_contexts;
    /// Reads that are cancelled right after they have begun.
    CancelledReads, "cancelled reads", reads::cancelled_reads;
    /// Pages of large messages, and whole sessions over HTTP.
    LargePages, "large pages", reads::large_pages;
    /// Verifications of conversations with many messages or with large ones.
    Verifications, "verifications", reads::verifications;
    /// Forged page tokens, positions and etags.
    ForgedTokens, "forged tokens", reads::forged_tokens;
    /// Requests that never complete, over HTTP/1.1 and HTTP/2.
    HalfRequests, "half requests", connections::half_requests;
    /// Answers that are never read, over HTTP/1.1 and HTTP/2.
    UnreadAnswers, "unread answers", connections::unread_answers;
    /// Thousands of connections that send nothing, or only the beginning of a request or a
    /// handshake.
    IdleConnections, "idle connections", connections::idle_connections;
    /// Connections that are opened and closed as fast as possible.
    ShortConnections, "short connections", connections::short_connections;
    /// Thousands of health watches without a credential.
    HealthWatches, "health watches", connections::health_watches;
    /// Hundreds of watches of conversations, from the first message, from the end, or from a
    /// message that does not exist.
    Watches, "watches", connections::watches;
    /// Hundreds of event streams over HTTP.
    EventStreams, "event streams", connections::event_streams;
    /// Hundreds of readers of one running turn.
    TurnReaders, "readers of a turn", turns::turn_readers;
    /// Turns that the model refuses, all of one attack with the same HTTP status.
    RefusedTurns, "refused turns", turns::refused_turns;
    /// Turns that the model never answers, or not to the end.
    SlowTurns, "slow turns", turns::slow_turns;
    /// Turns that are cancelled before the first piece of their answer.
    CancelledTurns, "cancelled turns", turns::cancelled_turns;
    /// Media URLs of cloud metadata services, local networks and buckets.
    MediaUrls, "media URLs", turns::media_urls;
    /// Answers of megabytes over HTTP: never read, or abandoned and then resumed.
    LongAnswers, "long answers", turns::long_answers;
    /// Requests to resume a turn after a forged event id.
    ForgedEventIds, "forged event ids", turns::forged_event_ids;
    /// Invalid credentials, as fast as possible.
    FalseCredentials, "false credentials", callers::false_credentials;
    /// Reflection, documents and metrics without a credential.
    PublicPages, "public pages", callers::public_pages;
    /// Lists of jobs, requeued jobs, and statistics of queues and models.
    OperatorCalls, "operator calls", callers::operator_calls;
    /// Small calls as fast as possible.
    SmallCalls, "small calls", callers::small_calls;
    /// HTTP/2 frames that cost the receiver more than the sender.
    FrameFloods, "frame floods", floods::frame_floods;
    /// Tiny chunks, endless headers and pipelined requests over HTTP/1.1.
    HeadFloods, "head floods", floods::head_floods;
    /// Texts that are costly to count and to summarize.
    HostileTexts, "hostile texts", jobs::hostile_texts;
    /// Thousands of conversations, each with a job.
    ManyConversations, "many conversations", jobs::many_conversations;
    /// Separators, inserted and deleted.
    Separators, "separators", jobs::separators;
    /// Imported checkpoints of about 1 MiB, and compactions whose callers wait for the result.
    Checkpoints, "checkpoints", jobs::checkpoints;
    /// Sessions of one scope, resolved and rotated as fast as possible.
    Sessions, "sessions", jobs::sessions;
    /// Conversations that are deleted while they are read.
    DeletedWhileRead, "deleted while read", jobs::deleted_while_read;
    /// Concurrent changes of one conversation, which wait for its row lock.
    OneRow, "one row", jobs::one_row;
    /// Large appends of 8 to 20 MB, which are accepted, and of 80 MB: a message may have 64 MiB.
    LargeAppends, "large appends", jobs::large_appends;
    /// ReportUsage of models that do not exist.
    UsageReports, "usage reports", jobs::usage_reports;
}
