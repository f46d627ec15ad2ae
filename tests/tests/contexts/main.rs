//! What a model is sent: order, budgets, cooling, profiles, repairs; made-up conversations and every real one.

mod budgets;
mod contexts;
mod cooling;
mod estimates;
mod every_transcript;
mod pressure;
mod previews;
mod profiles;
mod real_conversations;
mod report_usage;
mod rows;
mod stepped;
mod stuck_session;
mod walking_skeleton;

use anneal_tests::{House, Talk, pb};
use pb::Format;

/// Every shape that a context can have.
const FORMATS: [Format; 4] =
    [Format::Unspecified, Format::OpenaiChat, Format::AnthropicMessages, Format::GeminiContents];

/// An empty conversation under this profile.
async fn under<'a>(house: &'a House, profile: &str) -> Talk<'a> {
    house.conversation_under(pb::Policy { profile: profile.into(), ..Default::default() }).await
}
