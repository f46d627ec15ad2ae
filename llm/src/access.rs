//! The models that a process may call, and what the operator allows of it.

use anneal_core::{
    admission::{BreakerSettings, CallLimits},
    tokens::Tokens,
};

use crate::provider::{CallableModels, Model};

/// Models and limits, the same in every process of a fleet.
#[derive(Debug, Clone)]
pub struct ModelAccess {
    /// The models.
    pub models: CallableModels,
    /// When calls are given up for a while.
    pub breaker: BreakerSettings,
    /// Tokens that a tenant's calls may use in a day (UTC); None: any number.
    pub tokens_per_day: Option<Tokens>,
    /// Percent of a model's concurrent calls that one tenant may have under way where there are others.
    pub tenant_share_percent: u32,
}

/// Half.
pub const TENANT_SHARE_PERCENT: u32 = 50;

impl Default for ModelAccess {
    fn default() -> Self {
        Self {
            models: CallableModels::default(),
            breaker: BreakerSettings::default(),
            tokens_per_day: None,
            tenant_share_percent: TENANT_SHARE_PERCENT,
        }
    }
}

impl ModelAccess {
    /// What is allowed of a model.
    pub fn limits(&self, model: &Model) -> CallLimits {
        let share = |calls: u32| {
            let share = (u64::from(calls) * u64::from(self.tenant_share_percent)).div_ceil(100).max(1);
            u32::try_from(share).unwrap_or(u32::MAX)
        };
        CallLimits {
            concurrent: model.concurrent_calls(),
            tenant_share: model.concurrent_calls().map(share),
            tokens_per_day: self.tokens_per_day,
            breaker: self.breaker,
        }
    }
}
