//! Contexts: the part of a conversation that is sent to a model. The conversations are invented or
//! real.
//!
//! - `composition`: parts of a context and their order, repairs, usage, rendering, streaming
//! - `usage`: the figures of the next context. `usage_states`: whether summaries can be made
//! - `budgets`: a context fits its budget; what is clipped or dropped for it
//! - `cache_marks`: marks of what a provider should cache, and what is expected in its cache then
//! - `cooling`: large messages are replaced by their summaries when cool
//! - `stepped`: stepped cooling and lazy summaries
//! - `cold_checkpoints`: checkpoints that contexts make when the provider's cache is cold, and
//!   summaries that are prepared for them
//! - `pressure`: contexts after a model refused one as too long
//! - `profiles`: thresholds and rules of each profile
//! - `previews`: contexts and compactions under other settings, without effect; what a conversation
//!   costs
//! - `eras`: the beginnings that contexts have had, and the outline of a conversation
//! - `withdrawn`: contexts after messages were withdrawn or restored. `random_withdrawals`: they are
//!   those of a conversation that was only told what is left
//! - `report_usage`: usage reports calibrate counts and show cold caches
//! - `replaced_systems`: rows of docs/rows.md that no other file of this folder tests
//! - `estimate_accuracy`: token estimates of real messages
//! - `real_conversations`: what must hold for every conversation, on real ones
//! - `every_transcript`: real conversations with every profile, budget and format
//! - `stuck_session`: a real session that no longer fitted its agent's model
//! - `walking_skeleton`: one conversation from append to context

mod budgets;
mod cache_marks;
mod cold_checkpoints;
mod composition;
mod cooling;
mod eras;
mod estimate_accuracy;
mod every_transcript;
mod pressure;
mod previews;
mod profiles;
mod random_withdrawals;
mod real_conversations;
mod replaced_systems;
mod report_usage;
mod stepped;
mod stuck_session;
mod usage;
mod usage_states;
mod walking_skeleton;
mod withdrawn;

use anneal_testkit::{TestApp, TestConversation, pb};
use pb::Format;

/// Every output format.
const FORMATS: [Format; 4] = [
    Format::Unspecified,
    Format::OpenaiChat,
    Format::AnthropicMessages,
    Format::GeminiContents,
];

/// Creates a conversation with this profile.
async fn conversation_with_profile<'a>(app: &'a TestApp, profile: &str) -> TestConversation<'a> {
    app.conversation_with_policy(pb::Policy {
        profile: profile.into(),
        ..Default::default()
    })
    .await
}
