//! GetInstallationStats.

use std::time::SystemTime;

use anneal_core::caller::Caller;
use anneal_process::build;
use anneal_proto::v1 as pb;
use anneal_store::Migrations;

use crate::{
    call_metrics::{self, code_name},
    failure::Failure,
    reply,
    state::ServerState,
};

/// Largest tenants in the answer.
const TENANTS: i64 = 50;
/// Tenants with the highest rates in the answer, if they are not among the largest.
const BUSY_TENANTS: usize = 20;
/// Dead jobs in the answer.
const DEAD_JOBS: i64 = 20;
/// Slow calls in the answer.
const SLOW_CALLS: usize = 50;

/// Returns figures of the whole installation and of this server: names of tenants, never content.
pub(crate) async fn get_installation_stats(
    state: &ServerState,
    _: Caller,
    _: pb::GetInstallationStatsRequest,
) -> Result<pb::GetInstallationStatsResponse, Failure> {
    let rates = state.traffic.top_rates(BUSY_TENANTS);
    let busy: Vec<_> = rates.iter().map(|rates| rates.tenant).collect();
    let store = &state.store;
    // One after the other, so that the call takes one connection.
    let tenants = store.list_largest_tenants(TENANTS, &busy).await?;
    let workers = store.list_working_workers().await?;
    let dead_jobs = store.list_newest_dead_jobs(DEAD_JOBS).await?;
    let database = store.read_database_settings().await?;
    let tenants = tenants.into_iter().map(|tenant| {
        let (calls_per_second, bytes_per_second) = state.traffic.rates_of(tenant.id);
        pb::TenantStats {
            name: tenant.name,
            messages: tenant.usage.messages.try_into().unwrap_or(i64::MAX),
            content_bytes: tenant.usage.content_bytes.try_into().unwrap_or(i64::MAX),
            calls_per_second,
            bytes_per_second,
        }
    });
    let workers = workers.into_iter().map(|worker| pb::WorkerStats {
        name: worker.name,
        running_jobs: worker.jobs,
    });
    let dead_jobs = dead_jobs.into_iter().map(|dead| pb::DeadJob {
        tenant: dead.tenant,
        job: Some(reply::job(dead.job)),
    });
    let slow_calls = call_metrics::list_slow_calls(SystemTime::now(), SLOW_CALLS);
    let slow_calls = slow_calls.into_iter().map(|call| pb::SlowCall {
        rpc: call.rpc.name.to_owned(),
        code: code_name(call.code).to_owned(),
        duration: call.duration.try_into().ok(),
        ended_time: Some(call.ended.into()),
    });
    Ok(pb::GetInstallationStatsResponse {
        tenants: tenants.collect(),
        workers: workers.collect(),
        dead_jobs: dead_jobs.collect(),
        slow_calls: slow_calls.collect(),
        version: build::VERSION.to_owned(),
        commit: build::COMMIT.to_owned(),
        schema_version: Migrations::newest_version(),
        database_version: database.version_text,
        started_time: Some(state.started.into()),
    })
}
