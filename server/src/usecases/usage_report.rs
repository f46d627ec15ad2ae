//! Stores what a model call used, and counts the calls that found the provider's cache cold.

use anneal_core::{
    caller::{Caller, ConversationId},
    usage::CacheState,
};
use anneal_store::{Calibration, Store, StoreError, UsageReport};

/// Stores the report of a call, and counts the call if the cache was cold: by the provider, or
/// because of a change of the context.
pub(crate) async fn store_and_count(
    store: &Store,
    caller: Caller,
    id: ConversationId,
    report: &UsageReport,
) -> Result<Calibration, StoreError> {
    let calibration = store.report_usage(caller, id, report).await?;
    let by = match report.usage.cache_state() {
        CacheState::NothingExpected | CacheState::Warm => return Ok(calibration),
        CacheState::Cold => "provider",
        CacheState::ColdByUs => "context",
    };
    metrics::counter!("anneal_model_calls_cold_total", "by" => by).increment(1);
    Ok(calibration)
}
