//! Compares the cost of conversations at a model provider with a prefix cache: replays real
//! transcripts call by call with rules that swap large messages for their summaries, and compares
//! them with the optimum, which is computed afterwards.
//!
//! - `simulated`: applies the rules without a service. `service`: replays through a service.
//! - `oracle`: the cheapest times, computed afterwards. `families`: groups of conversations. Rules,
//!   cache and prices are in `anneal_transcripts::replay`.
//! - `played_conversation`: plays one conversation through a service. `context_pieces`: splits the
//!   service's contexts for the meter. `answer_checks`: checks what the service's answers state.
//! - `cooling_variant`: the settings that are compared. `table`: the printed table.

#[cfg(feature = "replay")]
mod answer_checks;
#[cfg(feature = "replay")]
mod context_pieces;
#[cfg(feature = "replay")]
mod cooling_variant;
mod families;
mod oracle;
#[cfg(feature = "replay")]
mod played_conversation;
#[cfg(feature = "replay")]
mod service;
mod simulated;
mod table;

#[cfg(feature = "replay")]
pub(crate) use service::measure as measure_service;
pub(crate) use simulated::measure as measure_simulated;

use anneal_transcripts::replay::{counted_conversation, meter, prices, rules};
