//! The models that a process may call, and the operator's limits.

use anneal_core::{
    admission::{BreakerSettings, CallLimits},
    tokens::Tokens,
};

use crate::provider::{CallableModels, Model};

/// Models and limits. All processes of a deployment must have the same ones.
#[derive(Debug, Clone)]
pub struct ModelAccess {
    /// The models, by name.
    pub models: CallableModels,
    /// When calls are refused after failures, and for how long.
    pub breaker: BreakerSettings,
    /// Most tokens that one tenant's calls may use in a day (UTC); None: no limit.
    pub tokens_per_day: Option<Tokens>,
    /// Percentage of a model's concurrent calls that one tenant may have while other tenants exist.
    pub tenant_share_percent: u32,
}

/// Default of [`ModelAccess::tenant_share_percent`].
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
    /// The limits of a model's calls. A tenant's share is rounded up to whole calls, at least one.
    pub fn limits(&self, model: &Model) -> CallLimits {
        let share = |calls: u32| {
            let share = (u64::from(calls) * u64::from(self.tenant_share_percent))
                .div_ceil(100)
                .max(1);
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
