//! Converts triggers of checkpoints to protobuf.

use anneal_core::cut::Trigger;

use crate::v1 as pb;

impl From<Trigger> for pb::CheckpointTrigger {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Tokens => Self::Tokens,
            Trigger::Messages => Self::Messages,
            Trigger::Manual => Self::Manual,
            Trigger::Idle => Self::Idle,
        }
    }
}
