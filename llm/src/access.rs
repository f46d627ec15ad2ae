//! The models that a process may call, and what the operator allows of it.

use anneal_core::{
    admission::{BreakerSettings, CallLimits},
    tokens::Tokens,
};

use crate::provider::{CallableModels, Model};

/// Models and limits, the same in every process of a fleet.
#[derive(Debug, Clone, Default)]
pub struct ModelAccess {
    /// The models.
    pub models: CallableModels,
    /// When calls are given up for a while.
    pub breaker: BreakerSettings,
    /// Tokens that a tenant's calls may use in a day (UTC); None: any number.
    pub tokens_per_day: Option<Tokens>,
}

impl ModelAccess {
    /// What is allowed of a model.
    pub fn limits(&self, model: &Model) -> CallLimits {
        CallLimits { concurrent: model.concurrent_calls(), tokens_per_day: self.tokens_per_day, breaker: self.breaker }
    }
}
