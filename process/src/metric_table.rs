//! All metrics of servers and workers: name, kind, unit and help. A metric that is recorded
//! anywhere has a line here, and another one in docs/operations.md, which also lists its labels;
//! `tests/tests/operations/metrics.rs` compares the three. Histograms of times use
//! [`HISTOGRAM_BUCKETS_SECONDS`].

use metrics::Unit;

/// The upper limits of the histograms' buckets, in seconds. The last one is the longest deadline of
/// a call, that of a chat turn.
pub const HISTOGRAM_BUCKETS_SECONDS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// The kind of a metric, as Prometheus distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// The number of values in each bucket, and their sum.
    Histogram,
}

impl MetricKind {
    /// The word for the kind in `# TYPE` lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric that processes export.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// The name of its family of series.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The unit of its values.
    pub unit: Unit,
    /// One line for its readers.
    pub help: &'static str,
}

/// A counter of things.
const fn counter(name: &'static str, help: &'static str) -> Metric {
    metric(name, MetricKind::Counter, Unit::Count, help)
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    metric(name, MetricKind::Gauge, unit, help)
}

/// A histogram of times.
const fn histogram(name: &'static str, help: &'static str) -> Metric {
    metric(name, MetricKind::Histogram, Unit::Seconds, help)
}

const fn metric(name: &'static str, kind: MetricKind, unit: Unit, help: &'static str) -> Metric {
    Metric {
        name,
        kind,
        unit,
        help,
    }
}

/// The metrics, in the order of docs/operations.md.
pub const METRICS: &[Metric] = &[
    gauge(
        "anneal_build_info",
        Unit::Count,
        "Is 1; its labels are the version and the commit of this process.",
    ),
    gauge(
        "anneal_ready",
        Unit::Count,
        "1 while the database answers and the process is not stopping, else 0.",
    ),
    metric(
        "process_cpu_seconds_total",
        MetricKind::Counter,
        Unit::Seconds,
        "Processor time of this process.",
    ),
    gauge(
        "process_resident_memory_bytes",
        Unit::Bytes,
        "Resident memory of this process.",
    ),
    gauge(
        "process_open_fds",
        Unit::Count,
        "Open file descriptors of this process.",
    ),
    gauge(
        "process_max_fds",
        Unit::Count,
        "Most file descriptors that this process may have open.",
    ),
    gauge(
        "process_start_time_seconds",
        Unit::Seconds,
        "When this process began, since 1970-01-01 UTC.",
    ),
    histogram(
        "anneal_rpc_server_duration_seconds",
        "Duration of calls, from the complete request to the answer.",
    ),
    counter(
        "anneal_shed_total",
        "Calls and readers refused because too many are running.",
    ),
    histogram(
        "anneal_async_thread_held_seconds",
        "Processor time of calls that kept an async thread busy for more than 100 ms.",
    ),
    counter(
        "anneal_rate_limited_total",
        "Calls refused because of their tenant's rates.",
    ),
    counter(
        "anneal_storage_refused_total",
        "Appends refused because of their tenant's storage quota.",
    ),
    gauge(
        "anneal_waiting_bytes",
        Unit::Bytes,
        "Memory of pending requests and of answers not yet read.",
    ),
    counter(
        "anneal_waiting_refused_total",
        "Requests and answers refused for lack of that memory.",
    ),
    gauge(
        "anneal_content_bytes_held",
        Unit::Bytes,
        "Stored content that reads and turns hold in memory.",
    ),
    counter(
        "anneal_content_waits_total",
        "Reads and turns that had to wait for content memory.",
    ),
    counter(
        "anneal_content_refused_total",
        "Reads and turns refused because they got no content memory.",
    ),
    gauge(
        "anneal_answer_log_bytes",
        Unit::Bytes,
        "Memory of answers that are kept for readers over HTTP.",
    ),
    counter(
        "anneal_answer_logs_let_go_total",
        "Answers dropped from that memory because it was full.",
    ),
    gauge(
        "anneal_connections_open",
        Unit::Count,
        "Open connections of callers.",
    ),
    counter(
        "anneal_connections_closed_for_others_total",
        "Connections closed because others needed their slot.",
    ),
    counter(
        "anneal_connections_closed_for_stalling_total",
        "Connections closed because the reader of an answer read nothing.",
    ),
    counter(
        "anneal_connections_aged_total",
        "Connections asked to close because they reached their maximum age.",
    ),
    counter(
        "anneal_auth_refused_total",
        "Calls refused because of their credential.",
    ),
    counter(
        "anneal_audit_lines_left_out_total",
        "Lines missing from the audit log because there were too many.",
    ),
    counter(
        "anneal_credential_lookups_unanswered_total",
        "Lookups of keys and tenants that the database did not answer.",
    ),
    counter(
        "anneal_append_groups_total",
        "Transactions that several appends shared.",
    ),
    counter(
        "anneal_append_group_members_total",
        "Appends in shared transactions.",
    ),
    counter(
        "anneal_message_changes_total",
        "Calls that withdrew, restored, edited or erased messages.",
    ),
    gauge(
        "anneal_watchers",
        Unit::Count,
        "Open watches in this server.",
    ),
    counter(
        "anneal_watchers_dropped_total",
        "Watches ended because their reader was too slow.",
    ),
    counter(
        "anneal_watch_polls_total",
        "Polls of the watched conversations.",
    ),
    gauge(
        "anneal_db_pool_open",
        Unit::Count,
        "Open connections of a pool.",
    ),
    gauge(
        "anneal_db_pool_idle",
        Unit::Count,
        "Free connections of a pool.",
    ),
    gauge(
        "anneal_db_pool_waiting",
        Unit::Count,
        "Calls that wait for a connection of a pool.",
    ),
    histogram(
        "anneal_db_pool_wait_seconds",
        "Time until a call had a connection of a pool, or was refused one.",
    ),
    gauge("anneal_db_size_bytes", Unit::Bytes, "Size of the database."),
    gauge(
        "anneal_db_table_bytes",
        Unit::Bytes,
        "Size of a table with its indexes.",
    ),
    gauge(
        "anneal_db_table_rows",
        Unit::Count,
        "Rows of a table, as PostgreSQL estimates them.",
    ),
    gauge(
        "anneal_db_standbys",
        Unit::Count,
        "Standbys that stream from the database.",
    ),
    gauge(
        "anneal_db_replication_lag_seconds",
        Unit::Seconds,
        "Replay lag of the standby that is furthest behind.",
    ),
    counter(
        "anneal_jobs_claimed_total",
        "Jobs that this worker claimed.",
    ),
    counter(
        "anneal_jobs_done_total",
        "Jobs whose results were committed.",
    ),
    counter("anneal_jobs_failed_total", "Runs of jobs that failed."),
    counter(
        "anneal_jobs_deferred_total",
        "Runs of jobs postponed without counting as a failure.",
    ),
    histogram(
        "anneal_job_duration_seconds",
        "Duration of runs of jobs, successful or not.",
    ),
    counter(
        "anneal_jobs_rescued_total",
        "Jobs freed because their worker went away.",
    ),
    counter("anneal_jobs_dead_total", "Jobs given up by this worker."),
    counter(
        "anneal_lease_lost_total",
        "Runs of jobs stopped because their lease was lost.",
    ),
    gauge(
        "anneal_jobs_waiting",
        Unit::Count,
        "Jobs that wait, of all tenants.",
    ),
    gauge(
        "anneal_jobs_running",
        Unit::Count,
        "Jobs that workers run, of all tenants.",
    ),
    gauge(
        "anneal_jobs_dead",
        Unit::Count,
        "Jobs that were given up and not yet dealt with, of all tenants.",
    ),
    gauge(
        "anneal_jobs_oldest_ready_seconds",
        Unit::Seconds,
        "How long the oldest due job has been due.",
    ),
    counter(
        "anneal_audited_conversations_total",
        "Conversations that this worker's auditor has checked.",
    ),
    counter(
        "anneal_audits_failed_total",
        "Conversations that could not be checked completely.",
    ),
    counter(
        "anneal_erased_conversations_total",
        "Conversations that this worker has deleted for erasures of users and tenants.",
    ),
    counter(
        "anneal_erasures_ended_total",
        "Erasures of users and tenants that this worker has ended.",
    ),
    counter(
        "anneal_erasure_steps_failed_total",
        "Steps of erasures of users and tenants that have failed.",
    ),
    counter(
        "anneal_retention_deleted_rows_total",
        "Rows that this worker has deleted because a setting of retention keeps them no longer.",
    ),
    gauge(
        "anneal_retention_round_seconds",
        Unit::Seconds,
        "How long this worker's last round of retention took.",
    ),
    counter(
        "anneal_retention_steps_failed_total",
        "Steps of retention that have not deleted all that they should have.",
    ),
    counter(
        "anneal_invariant_violations_total",
        "Violations of promises that the auditor found.",
    ),
    counter("anneal_checkpoints_total", "Checkpoints committed."),
    counter(
        "anneal_checkpoint_no_progress_total",
        "Compactions that could gain nothing.",
    ),
    counter(
        "anneal_summaries_fallback_total",
        "Summaries replaced by an extract.",
    ),
    counter("anneal_chat_turns_total", "Turns that ended."),
    counter(
        "anneal_chat_fallbacks_total",
        "Models that did not answer a turn, so that the next one was tried.",
    ),
    counter(
        "anneal_chat_cache_pings_total",
        "Calls of models that keep the provider's cache warm.",
    ),
    counter("anneal_model_calls_total", "Calls of models."),
    counter(
        "anneal_overflows_likely_total",
        "Errors of providers that likely are context overflows, in words that are not known.",
    ),
    histogram(
        "anneal_model_call_duration_seconds",
        "Duration of calls of models, to the end of the answer.",
    ),
    histogram(
        "anneal_model_time_to_first_token_seconds",
        "Time from the request to a model to the first piece of its answer.",
    ),
    counter(
        "anneal_model_input_tokens_total",
        "Tokens that models read.",
    ),
    counter(
        "anneal_model_output_tokens_total",
        "Tokens that models wrote.",
    ),
    gauge(
        "anneal_model_breaker_state",
        Unit::Count,
        "The breaker of a model for all tenants: 0 closed, 1 half open, 2 open.",
    ),
    gauge(
        "anneal_model_tenant_breakers_open",
        Unit::Count,
        "Tenants whose own breaker for a model is open.",
    ),
    counter(
        "anneal_model_calls_cold_total",
        "Model calls that found the provider's cache cold.",
    ),
];

/// Describes all metrics to the recorder of this process.
pub(crate) fn describe_all() {
    for Metric {
        name,
        kind,
        unit,
        help,
    } in METRICS.iter().copied()
    {
        match kind {
            MetricKind::Counter => metrics::describe_counter!(name, unit, help),
            MetricKind::Gauge => metrics::describe_gauge!(name, unit, help),
            MetricKind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
    }
}

/// The metric of this name.
pub(crate) fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_prefixed_and_end_in_their_unit() {
        for metric in METRICS {
            let name = metric.name;
            let same = METRICS.iter().filter(|other| other.name == name);
            assert_eq!(same.count(), 1, "{name}");
            assert!(
                name.starts_with("anneal_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == MetricKind::Counter,
                "{name}"
            );
            let base = name.trim_end_matches("_total");
            assert_eq!(
                base.ends_with("_seconds"),
                metric.unit == Unit::Seconds,
                "{name}"
            );
        }
    }
}
