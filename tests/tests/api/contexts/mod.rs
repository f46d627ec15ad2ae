//! Contexts sent to a model, of made-up and of real conversations.
//!
//! - `composition`: parts and their order, repairs, usage, streaming
//! - `budgets`: every budget is kept; what is clipped or dropped
//! - `cooling`: large messages are replaced by their summaries when cool
//! - `stepped`: stepped cooling and lazy summaries
//! - `pressure`: contexts after a model refused one as too long
//! - `profiles`: thresholds and rules of each profile
//! - `previews`: contexts and compactions under other settings, without effect
//! - `report_usage`: usage reports calibrate counts and show cold caches
//! - `replaced_systems`: behaviours of docs/rows.md without another test
//! - `estimate_accuracy`: token estimates of real messages
//! - `real_conversations`: promises hold on real conversations
//! - `every_transcript`: every real conversation, profile, budget and format
//! - `stuck_session`: a session that overflowed in its own agent
//! - `walking_skeleton`: one conversation from append to context

mod budgets;
mod composition;
mod cooling;
mod estimate_accuracy;
mod every_transcript;
mod pressure;
mod previews;
mod profiles;
mod real_conversations;
mod replaced_systems;
mod report_usage;
mod stepped;
mod stuck_session;
mod walking_skeleton;

use anneal_testkit::{TestApp, TestConversation, pb};
use pb::Format;

/// Every output format.
const FORMATS: [Format; 4] = [
    Format::Unspecified,
    Format::OpenaiChat,
    Format::AnthropicMessages,
    Format::GeminiContents,
];

/// An empty conversation with this profile.
async fn conversation_with_profile<'a>(app: &'a TestApp, profile: &str) -> TestConversation<'a> {
    app.conversation_with_policy(pb::Policy {
        profile: profile.into(),
        ..Default::default()
    })
    .await
}
