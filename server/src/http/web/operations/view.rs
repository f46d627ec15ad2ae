//! Answers of RPCs as the operator's page shows them.

use std::time::SystemTime;

use anneal_proto::v1 as pb;
use anneal_web::{
    format::Time,
    operations::{Chart, DeadJob, Figures, Model, Queue, SlowCall, Tenant, Versions},
};
use prost_types::Timestamp;

use crate::http::web::conversations::paths;

/// Everything on the page that changes. `own_tenant`: the caller's; empty: it is the only one.
pub(super) fn figures(
    queues: &pb::GetQueueStatsResponse,
    models: pb::GetModelStatsResponse,
    installation: pb::GetInstallationStatsResponse,
    charts: Vec<Chart>,
    own_tenant: &str,
) -> Figures {
    let workers = installation.workers.into_iter();
    let dead = installation.dead_jobs.into_iter();
    Figures {
        read: time(Some(SystemTime::now().into())),
        queues: queues.queues.iter().map(queue).collect(),
        workers: workers
            .map(|worker| (worker.name, worker.running_jobs))
            .collect(),
        models: models.models.into_iter().map(model).collect(),
        tenants: installation.tenants.into_iter().map(tenant).collect(),
        slowest: installation.slow_calls.into_iter().map(slow_call).collect(),
        dead: dead.map(|job| dead_job(job, own_tenant)).collect(),
        versions: Versions {
            version: installation.version,
            commit: installation.commit,
            schema: installation.schema_version.to_string(),
            database: installation.database_version,
            started: time(installation.started_time),
        },
        charts,
    }
}

fn queue(stats: &pb::QueueStats) -> Queue {
    Queue {
        kind: kind(stats.kind()),
        waiting: stats.waiting,
        ready: stats.ready,
        running: stats.running,
        dead: stats.dead,
        oldest_seconds: stats.oldest_ready.unwrap_or_default().seconds,
    }
}

fn model(stats: pb::ModelStats) -> Model {
    Model {
        name: stats.model,
        under_way: stats.calls_under_way,
        calls: stats.calls_today,
        failed: stats.failed_calls_today,
        input: stats.input_tokens_today,
        output: stats.output_tokens_today,
        breaker: breaker(stats.breaker.as_ref()),
        tenant_breaker: breaker(stats.tenant_breaker.as_ref()),
        open_tenant_breakers: stats.open_tenant_breakers,
    }
}

/// A breaker in words.
fn breaker(stats: Option<&pb::Breaker>) -> String {
    let open_for = stats.and_then(|it| it.open_for);
    match (open_for, stats.map_or(0, |it| it.failures)) {
        (Some(left), _) => format!("open for {} s", left.seconds.max(1)),
        (None, 0) => "closed".to_owned(),
        (None, 1) => "closed, 1 failure".to_owned(),
        (None, failures) => format!("closed, {failures} failures in a row"),
    }
}

fn tenant(stats: pb::TenantStats) -> Tenant {
    Tenant {
        name: stats.name,
        messages: stats.messages,
        bytes: stats.content_bytes.try_into().unwrap_or_default(),
        calls_per_second: stats.calls_per_second,
        bytes_per_second: stats.bytes_per_second,
    }
}

fn slow_call(call: pb::SlowCall) -> SlowCall {
    let duration = call.duration.unwrap_or_default();
    let duration = std::time::Duration::try_from(duration).unwrap_or_default();
    SlowCall {
        rpc: call.rpc,
        code: call.code,
        milliseconds: duration.as_millis().try_into().unwrap_or(u64::MAX),
        time: time(call.ended_time),
    }
}

/// A dead job. Only the caller's own tenant has pages of the conversation for the caller.
fn dead_job(dead: pb::DeadJob, own_tenant: &str) -> DeadJob {
    let job = dead.job.unwrap_or_default();
    let is_own = own_tenant.is_empty() || dead.tenant == own_tenant;
    let url = is_own.then(|| paths::xray(&job.conversation_id));
    DeadJob {
        url: url.unwrap_or_default(),
        tenant: dead.tenant,
        kind: kind(job.kind()),
        attempts: job.attempts,
        time: time(job.due_time),
        conversation: job.conversation_id,
        error: job.last_error,
    }
}

/// `JOB_KIND_COUNT_TOKENS` as `count tokens`.
fn kind(kind: pb::JobKind) -> String {
    let name = kind.as_str_name().trim_start_matches("JOB_KIND_");
    name.to_lowercase().replace('_', " ")
}

/// A time to the second.
fn time(time: Option<Timestamp>) -> Time {
    let seconds = Timestamp {
        nanos: 0,
        ..time.unwrap_or_default()
    };
    let iso = seconds.to_string();
    Time {
        text: iso.trim_end_matches('Z').replace('T', " "),
        iso,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_times_and_breakers_are_words() {
        assert_eq!(kind(pb::JobKind::CountTokens), "count tokens");
        let shown = time(Some(Timestamp {
            seconds: 1_764_270_441,
            nanos: 5,
        }));
        assert_eq!(shown.text, "2025-11-27 19:07:21");
        assert_eq!(shown.iso, "2025-11-27T19:07:21Z");
        assert_eq!(breaker(None), "closed");
        let open = pb::Breaker {
            failures: 5,
            open_for: Some(prost_types::Duration {
                seconds: 12,
                nanos: 0,
            }),
            last_error: String::new(),
        };
        assert_eq!(breaker(Some(&open)), "open for 12 s");
    }
}
