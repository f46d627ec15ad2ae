//! What keeping conversations costs at a model provider who caches prefixes: real transcripts replayed call by call, under
//! rules that swap large messages for their summaries, beside an oracle that knows the future.

#[cfg(feature = "replay")]
mod answers;
mod families;
#[cfg(feature = "replay")]
mod kept;
mod meter;
mod oracle;
mod prices;
#[cfg(feature = "replay")]
mod promises;
mod rules;
mod script;
#[cfg(feature = "replay")]
mod service;
mod simulated;
mod table;
#[cfg(feature = "replay")]
mod ways;

#[cfg(feature = "replay")]
pub(crate) use service::measure as measure_service;
pub(crate) use simulated::measure as measure_simulated;
