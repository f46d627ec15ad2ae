//! What the tests stand on: a house (own database, server and stepped worker in this process), conversations to talk in,
//! and real data where it is at hand.

mod backoff;
pub mod chaos;
mod chatting;
mod contention;
mod dial;
mod eventually;
pub mod fields;
mod figures;
mod files;
mod guest;
mod house;
mod import;
mod legacy;
mod line;
mod llm;
mod pooler;
mod process;
mod python;
mod raw_http2;
mod refusal;
mod rendered;
mod scripted;
mod sessions;
mod sound;
mod spelled;
mod talk;
mod terminal;
mod texts;
mod turns;
mod unfiltered;
mod waiting;
mod watchdog;
mod watched;
mod web;
mod writing;

pub use chatting::MODEL;
pub use contention::{CONVERSATION, DEAD_JOBS, Holding, JOBS};
pub use dial::{Answer, post};
pub use eventually::{eventually, eventually_within};
pub use files::{Files, claw0, lines_of, pi, pi_compaction, pi_said};
pub use guest::{Guest, Rpc, call_frames, call_raw, call_to_the_end, every_rpc, guest_on, make_key};
pub use house::{House, Lengths, empty_database, grouping, postgres_binaries};
pub use import::Imported;
pub use legacy::{Kept, OldRow, OldTables, Recounted, migrated, recount};
pub use line::Line;
pub use llm::{Llm, start_llm};
pub use pooler::Pooler;
pub use process::{Anneal, Folder, OwnPostgres, Process, Ran};
pub use python::python_path;
pub use raw_http2::{Frame, RawHttp2, frame, kind, literal, next_frame, request_head, unary};
pub use refusal::{Refusal, assert_refused, refusal};
pub use rendered::{Recount, Rendered};
pub use scripted::{Asked, Counted, Gate, Heard, Say, Script, ScriptedModel, hear, hear_rest, plain_call};
pub use sessions::direct;
pub use sound::sound_request;
pub use spelled::spelled_out;
pub use talk::{Append, Built, Talk, assistant, call, media, patient, user};
pub use terminal::Terminal;
pub use texts::{prose, sentence};
pub use turns::{AskedTurn, ToldTurn};
pub use unfiltered::Unfiltered;
pub use waiting::{Panicking, Waiting};
pub use watchdog::assert_no_thread_was_held;
pub use watched::{Watch, appended, figure};
pub use web::{Answered, Events, Told, Web, text_of};
pub use writing::{WRITER, Writing};

/// Real conversations, where they are at hand, and how messages are put together.
pub use anneal_transcripts::{Chat, Data, Family, message, parsed, result, text};

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
