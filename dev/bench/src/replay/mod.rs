//! Compares the cost of conversations at a model provider with a prefix cache: replays real
//! transcripts call by call with rules that swap large messages for their summaries, and compares
//! them with the optimum, which knows the future.

#[cfg(feature = "replay")]
mod answer_checks;
#[cfg(feature = "replay")]
mod context_pieces;
#[cfg(feature = "replay")]
mod cooling_variant;
mod counted_conversation;
mod families;
mod meter;
mod oracle;
#[cfg(feature = "replay")]
mod played_conversation;
mod prices;
mod rules;
#[cfg(feature = "replay")]
mod service;
mod simulated;
mod table;

#[cfg(feature = "replay")]
pub(crate) use service::measure as measure_service;
pub(crate) use simulated::measure as measure_simulated;
