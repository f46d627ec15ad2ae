//! How a model call used the provider's cache.

use anneal_core::{cache::BreakReason, usage::CacheState};

use super::FieldError;
use crate::v1 as pb;

/// Parses the field `break_reason`; UNSPECIFIED means that nothing broke.
pub fn parse_break_reason(number: i32) -> Result<Option<BreakReason>, FieldError> {
    let refused = || FieldError::invalid("break_reason", "is not one of its values");
    let reason = match pb::BreakReason::try_from(number).map_err(|_| refused())? {
        pb::BreakReason::Unspecified => return Ok(None),
        pb::BreakReason::Checkpoint => BreakReason::Checkpoint,
        pb::BreakReason::Separator => BreakReason::Separator,
        pb::BreakReason::SystemPrompt => BreakReason::SystemPrompt,
        pb::BreakReason::Swap => BreakReason::Swap,
        pb::BreakReason::Budget => BreakReason::Budget,
        pb::BreakReason::Repair => BreakReason::Repair,
        pb::BreakReason::Idle => BreakReason::Idle,
        pb::BreakReason::Edit => BreakReason::Edit,
        pb::BreakReason::Withdrawal => BreakReason::Withdrawal,
        pb::BreakReason::Erasure => BreakReason::Erasure,
        pb::BreakReason::Model => BreakReason::Model,
        pb::BreakReason::Tools => BreakReason::Tools,
        pb::BreakReason::Options => BreakReason::Options,
    };
    Ok(Some(reason))
}

/// Whether the provider's cache held what was expected.
pub const fn cache_state(state: CacheState) -> pb::CacheState {
    match state {
        CacheState::NothingExpected => pb::CacheState::NothingExpected,
        CacheState::Warm => pb::CacheState::Warm,
        CacheState::Cold => pb::CacheState::Cold,
        CacheState::ColdByUs => pb::CacheState::ColdByUs,
    }
}
