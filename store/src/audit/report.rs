//! The report of an audit or a verification.

use anneal_core::message::MessageId;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Number of the promise in docs/operations.md. 0: none of them; figures of the conversation
    /// disagree with its messages.
    pub promise: i32,
    /// Describes the violation with ids and figures, never content.
    pub description: String,
    /// The message concerned; 0 for the whole conversation.
    pub message: MessageId,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// The violations found.
    pub violations: Vec<Violation>,
    /// Messages that were read.
    pub messages: i64,
    /// Checkpoints that were read.
    pub checkpoints: i64,
}

impl VerifyReport {
    pub(super) fn add_violation(&mut self, promise: i32, message: i64, description: String) {
        self.violations.push(Violation {
            promise,
            description,
            message: MessageId(message),
        });
    }
}
