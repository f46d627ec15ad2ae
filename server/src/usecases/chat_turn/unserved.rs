//! Refuses, by the name of the field, what a request can ask for and turns do not serve yet.

use super::{OnDisconnect, TurnRun};
use crate::failure::Failure;

impl TurnRun {
    /// Refuses the first field that is not served.
    pub(super) fn refuse_unserved(&self) -> Result<(), Failure> {
        match self.turn.on_disconnect {
            OnDisconnect::Stop => {}
            OnDisconnect::StopAndKeep | OnDisconnect::Finish => {
                return Err(Failure::not_served("on_disconnect"));
            }
        }
        if !self.turn.fallback_models.is_empty() {
            return Err(Failure::not_served("fallback_models"));
        }
        if self.turn.cache_ping {
            return Err(Failure::not_served("cache_ping"));
        }
        Ok(())
    }
}
