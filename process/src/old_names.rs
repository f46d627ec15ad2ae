//! The names that metrics had before they got the prefix `anneal_`. For one release the exporter
//! writes each of these metrics once more, under its old name, so that dashboards and rules can be
//! changed one by one. The release after that removes this file and the setting
//! `metrics.old_names`.

use std::fmt::Write as _;

/// The prefix of our metrics. Only the conventional metrics `process_...` (processor time, memory,
/// open files), which programs of all makers have, go without it.
const PREFIX: &str = "anneal_";

/// The old names: those without [`PREFIX`].
const OLD_NAMES: [&str; 51] = [
    "answer_log_bytes",
    "answer_logs_let_go_total",
    "append_group_members_total",
    "append_groups_total",
    "async_thread_held_seconds",
    "audit_lines_left_out_total",
    "audited_conversations_total",
    "audits_failed_total",
    "auth_refused_total",
    "chat_turns_total",
    "checkpoint_no_progress_total",
    "checkpoints_total",
    "connections_aged_total",
    "connections_closed_for_others_total",
    "connections_closed_for_stalling_total",
    "connections_open",
    "content_bytes_held",
    "content_refused_total",
    "content_waits_total",
    "credential_lookups_unanswered_total",
    "db_pool_idle",
    "db_pool_open",
    "db_pool_waiting",
    "invariant_violations_total",
    "job_duration_seconds",
    "jobs_claimed_total",
    "jobs_dead",
    "jobs_dead_total",
    "jobs_deferred_total",
    "jobs_done_total",
    "jobs_failed_total",
    "jobs_oldest_ready_seconds",
    "jobs_rescued_total",
    "jobs_running",
    "jobs_waiting",
    "lease_lost_total",
    "model_breaker_state",
    "model_call_duration_seconds",
    "model_calls_cold_total",
    "model_calls_total",
    "model_tenant_breakers_open",
    "rate_limited_total",
    "rpc_server_duration_seconds",
    "shed_total",
    "storage_refused_total",
    "summaries_fallback_total",
    "waiting_bytes",
    "waiting_refused_total",
    "watch_polls_total",
    "watchers",
    "watchers_dropped_total",
];

/// Appends a copy of each renamed metric, under its old name, to the text for Prometheus.
pub(crate) fn append(text: &mut String) {
    let mut copies = String::new();
    // Whether the metric whose lines come now has an old name.
    let mut was_renamed = false;
    for line in text.lines() {
        let comment = ["# HELP ", "# TYPE "]
            .into_iter()
            .find_map(|word| Some((word, line.strip_prefix(word)?)));
        if let Some((word, comment)) = comment {
            let (name, words) = comment.split_once(' ').unwrap_or((comment, ""));
            let old_name = name
                .strip_prefix(PREFIX)
                .filter(|old_name| OLD_NAMES.contains(old_name));
            was_renamed = old_name.is_some();
            if let Some(old_name) = old_name {
                let _ = match word {
                    "# HELP " => writeln!(copies, "{word}{old_name} Deprecated: use {name}."),
                    _ => writeln!(copies, "{word}{old_name} {words}"),
                };
            }
        } else if was_renamed && let Some(sample) = line.strip_prefix(PREFIX) {
            copies.push_str(sample);
            copies.push('\n');
        }
    }
    text.push_str(&copies);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_metrics_are_written_twice_and_new_ones_once() {
        let new_names = "# HELP anneal_shed_total Calls refused.\n\
            # TYPE anneal_shed_total counter\n\
            anneal_shed_total{rpc=\"anneal_shed_total 1\"} 2\n\n\
            # HELP anneal_ready Whether it is ready.\n\
            # TYPE anneal_ready gauge\n\
            anneal_ready 1\n\n\
            # TYPE anneal_job_duration_seconds histogram\n\
            anneal_job_duration_seconds_bucket{kind=\"a\",le=\"+Inf\"} 3\n\
            anneal_job_duration_seconds_count{kind=\"a\"} 3\n\n";
        let mut text = new_names.to_owned();
        append(&mut text);
        let old_names = "# HELP shed_total Deprecated: use anneal_shed_total.\n\
            # TYPE shed_total counter\n\
            shed_total{rpc=\"anneal_shed_total 1\"} 2\n\
            # TYPE job_duration_seconds histogram\n\
            job_duration_seconds_bucket{kind=\"a\",le=\"+Inf\"} 3\n\
            job_duration_seconds_count{kind=\"a\"} 3\n";
        assert_eq!(text, format!("{new_names}{old_names}"));
    }
}
