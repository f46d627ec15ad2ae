//! Judges the settings and the statistics of the database. Reads nothing itself.

use anneal_store::{DatabaseSettings, Pooling, TableStatistics};

use super::finding::Finding;
use crate::{command::DoctorArguments, config::Config};

/// The oldest version that is supported, as PostgreSQL numbers versions.
const MIN_VERSION: i32 = 150_000;
/// PostgreSQL's own default of `shared_buffers`.
const MIN_SHARED_BUFFERS: i64 = 128 * 1024 * 1024;
/// PostgreSQL's own default of `default_statistics_target`.
const MIN_STATISTICS_TARGET: i32 = 100;
/// Idle sessions that are ended sooner would often be missing from the pools.
const MIN_IDLE_SESSION_MS: i64 = 60_000;
/// `idle_in_transaction_session_timeout` of the store's sessions.
const IDLE_IN_TRANSACTION_MS: i64 = 5_000;
/// Rows from which a table's statistics are judged.
pub(super) const BIG_TABLE_ROWS: i64 = 10_000;
/// Connections of a server beside its pools: the readiness probe.
const OTHER_OF_SERVER: u64 = 1;
/// Connections of a worker beside its pool: the readiness probe, notifying, listening.
const OTHER_OF_WORKER: u64 = 3;

/// Judges the settings.
pub(super) fn judge(
    settings: &DatabaseSettings,
    config: &Config,
    arguments: &DoctorArguments,
) -> Vec<Finding> {
    vec![
        judge_version(settings),
        judge_login(settings),
        judge_connections(settings, config, arguments),
        judge_session(settings, config),
        judge_autovacuum(settings),
        judge_statistics_target(settings),
        judge_memory(settings),
        judge_replication(settings),
    ]
}

fn judge_version(settings: &DatabaseSettings) -> Finding {
    let (check, version) = ("database.version", &settings.version_text);
    if settings.version < MIN_VERSION {
        return Finding::problem(
            check,
            format!("PostgreSQL {version} is too old"),
            "use PostgreSQL 15 or newer",
        );
    }
    Finding::ok(check, format!("PostgreSQL {version} is supported"))
}

fn judge_login(settings: &DatabaseSettings) -> Finding {
    let check = "database.login";
    match &settings.unrestricted_role {
        None => Finding::ok(
            check,
            format!(
                "the login {} is bound by row-level security",
                settings.login
            ),
        ),
        Some(role) => Finding::warning(
            check,
            format!(
                "the role {role} of the login {} is a superuser or bypasses row-level security",
                settings.login
            ),
            "give servers and workers a login that is only a member of anneal_app (docs/operations.md, Row-level \
             security)",
        ),
    }
}

/// Compares the pools of all processes with the connections that PostgreSQL allows.
fn judge_connections(
    settings: &DatabaseSettings,
    config: &Config,
    arguments: &DoctorArguments,
) -> Finding {
    let check = "database.connections";
    let pools = &config.database;
    let of_server = u64::from(pools.write_connections)
        + u64::from(pools.read_connections)
        + u64::from(pools.system_connections)
        + u64::from(config.append.lanes.get())
        + OTHER_OF_SERVER;
    let of_worker = u64::from(pools.job_connections) + OTHER_OF_WORKER;
    let (servers, workers) = (u64::from(arguments.servers), u64::from(arguments.workers));
    let wanted = servers * of_server + workers * of_worker;
    let allowed = settings.max_connections - settings.reserved_connections;
    let found = format!(
        "servers: {servers}, workers: {workers}; their pools may open {wanted} connections, PostgreSQL allows {allowed}"
    );
    if pools.pooling == Pooling::Transaction {
        return Finding::ok(check, format!("{found}; a pooler is between them"));
    }
    if i64::try_from(wanted).is_ok_and(|wanted| wanted <= i64::from(allowed)) {
        return Finding::ok(check, found);
    }
    Finding::problem(
        check,
        found,
        "raise max_connections, or lower the connections in the section [database]",
    )
}

/// Whether the parameters that the store sets for its sessions are in force.
fn judge_session(settings: &DatabaseSettings, config: &Config) -> Finding {
    let check = "database.session";
    let expected = [
        (
            "statement_timeout",
            settings.statement_timeout_ms == i64::from(config.database.statement_timeout_ms),
        ),
        (
            "idle_in_transaction_session_timeout",
            settings.idle_in_transaction_ms == IDLE_IN_TRANSACTION_MS,
        ),
        ("jit", !settings.jit),
    ];
    let lost: Vec<&str> = expected
        .iter()
        .filter(|(_, holds)| !holds)
        .map(|(name, _)| *name)
        .collect();
    if !lost.is_empty() {
        return Finding::problem(
            check,
            format!(
                "sessions do not have the values that anneal sets for {}",
                lost.join(", ")
            ),
            "see Poolers in docs/operations.md: a pooler may drop the options of sessions",
        );
    }
    if (1..MIN_IDLE_SESSION_MS).contains(&settings.idle_session_ms) {
        return Finding::warning(
            check,
            format!(
                "idle_session_timeout ends sessions that are idle for {} s, so the pools open connections again and \
                 again",
                settings.idle_session_ms / 1_000
            ),
            "`alter role … set idle_session_timeout = 0` for the login of servers and workers",
        );
    }
    Finding::ok(check, "sessions have the parameters that anneal sets")
}

fn judge_autovacuum(settings: &DatabaseSettings) -> Finding {
    let check = "database.autovacuum";
    let off = match (settings.autovacuum, settings.track_counts) {
        (true, true) => {
            return Finding::ok(check, "autovacuum is on");
        }
        (false, _) => "autovacuum",
        (true, false) => "track_counts",
    };
    Finding::problem(
        check,
        format!(
            "{off} is off: tables and indexes grow without end, and plans go by old statistics"
        ),
        format!("`alter system set {off} = on`, then `select pg_reload_conf()`"),
    )
}

fn judge_statistics_target(settings: &DatabaseSettings) -> Finding {
    let (check, target) = ("database.statistics", settings.statistics_target);
    let found = format!("default_statistics_target is {target}");
    if target < MIN_STATISTICS_TARGET {
        return Finding::warning(
            check,
            format!("{found}: the planner knows little about large tables"),
            "`alter system reset default_statistics_target`, then `analyze`",
        );
    }
    Finding::ok(check, found)
}

fn judge_memory(settings: &DatabaseSettings) -> Finding {
    let check = "database.memory";
    let found = format!(
        "shared_buffers is {} MiB",
        settings.shared_buffers_bytes / (1024 * 1024)
    );
    if settings.shared_buffers_bytes < MIN_SHARED_BUFFERS {
        return Finding::warning(
            check,
            format!("{found}, which is tiny: most reads go past PostgreSQL's cache"),
            "set shared_buffers to a quarter of the machine's memory and restart PostgreSQL",
        );
    }
    Finding::ok(check, found)
}

/// `wal_level` matters only if commits wait for standbys.
fn judge_replication(settings: &DatabaseSettings) -> Finding {
    let (check, standbys) = ("database.replication", &settings.synchronous_standby_names);
    if standbys.is_empty() {
        return Finding::ok(check, "commits wait for no standby");
    }
    if settings.wal_level == "minimal" {
        return Finding::problem(
            check,
            format!(
                "commits wait for the standbys {standbys}, but wal_level = minimal allows none"
            ),
            "set wal_level = replica and restart PostgreSQL",
        );
    }
    Finding::ok(check, format!("commits wait for the standbys {standbys}"))
}

/// Judges the statistics of tables with at least [`BIG_TABLE_ROWS`] rows.
pub(super) fn judge_tables(tables: &[TableStatistics]) -> Vec<Finding> {
    let check = "database.tables";
    let mut findings = Vec::new();
    for table in tables {
        let TableStatistics {
            name,
            live_rows,
            dead_rows,
            is_analyzed,
        } = table;
        if !is_analyzed {
            findings.push(Finding::warning(
                check,
                format!("{name} has {live_rows} rows and was never analyzed"),
                format!("`analyze {name}`"),
            ));
        }
        // Autovacuum begins at a fifth.
        if *dead_rows > live_rows / 2 {
            findings.push(Finding::warning(
                check,
                format!("{name} has {dead_rows} dead rows beside {live_rows} live ones"),
                format!(
                    "`vacuum (analyze) {name}`; look for transactions that stay open, and for autovacuum that cannot \
                     keep up"
                ),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            check,
            "the large tables are analyzed and vacuumed",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    fn settings() -> DatabaseSettings {
        DatabaseSettings {
            version: 150_008,
            version_text: "15.8".into(),
            login: "anneal_login".into(),
            unrestricted_role: None,
            max_connections: 100,
            reserved_connections: 3,
            shared_buffers_bytes: MIN_SHARED_BUFFERS,
            autovacuum: true,
            track_counts: true,
            statistics_target: 100,
            wal_level: "replica".into(),
            synchronous_standby_names: String::new(),
            jit: false,
            idle_in_transaction_ms: IDLE_IN_TRANSACTION_MS,
            statement_timeout_ms: 60_000,
            idle_session_ms: 0,
        }
    }

    /// The findings that are not ok, as lines.
    fn complaints(change: impl FnOnce(&mut DatabaseSettings)) -> Vec<String> {
        let mut settings = settings();
        change(&mut settings);
        let arguments = DoctorArguments {
            servers: 1,
            workers: 1,
            process: None,
            json: false,
        };
        judge(&settings, &Config::default(), &arguments)
            .into_iter()
            .filter(|finding| finding.level != Level::Ok)
            .map(|finding| finding.to_string())
            .collect()
    }

    #[track_caller]
    fn assert_complaint(level: &str, words: &str, change: impl FnOnce(&mut DatabaseSettings)) {
        let found = complaints(change);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(level) && found[0].contains(words),
            "{words}: {found:?}"
        );
    }

    #[test]
    fn each_bad_setting_is_named_alone_and_good_ones_are_ok() {
        assert_eq!(complaints(|_| {}), [""; 0]);
        assert_complaint("problem", "PostgreSQL 14.1 is too old", |settings| {
            (settings.version, settings.version_text) = (140_001, "14.1".into());
        });
        assert_complaint("warning", "only a member of anneal_app", |settings| {
            settings.unrestricted_role = Some("postgres".into());
        });
        assert_complaint("problem", "raise max_connections", |settings| {
            settings.max_connections = 20;
        });
        assert_complaint("problem", "statement_timeout, jit", |settings| {
            (settings.statement_timeout_ms, settings.jit) = (0, true);
        });
        assert_complaint("warning", "idle for 30 s", |settings| {
            settings.idle_session_ms = 30_000;
        });
        assert_complaint("problem", "set autovacuum = on", |settings| {
            settings.autovacuum = false;
        });
        assert_complaint("problem", "set track_counts = on", |settings| {
            settings.track_counts = false;
        });
        assert_complaint("warning", "default_statistics_target is 10", |settings| {
            settings.statistics_target = 10;
        });
        assert_complaint("warning", "shared_buffers is 8 MiB", |settings| {
            settings.shared_buffers_bytes = 8 * 1024 * 1024;
        });
        assert_complaint("problem", "wal_level = replica", |settings| {
            settings.wal_level = "minimal".into();
            settings.synchronous_standby_names = "a".into();
        });
    }

    #[test]
    fn large_tables_without_analyze_or_with_many_dead_rows_are_named() {
        let table = |live_rows, dead_rows, is_analyzed| TableStatistics {
            name: "ai_message".into(),
            live_rows,
            dead_rows,
            is_analyzed,
        };
        let levels = |table: TableStatistics| -> Vec<Level> {
            let findings = judge_tables(&[table]);
            findings.iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels(table(100_000, 20_000, true)), [Level::Ok]);
        assert_eq!(levels(table(100_000, 20_000, false)), [Level::Warning]);
        assert_eq!(levels(table(100_000, 60_000, true)), [Level::Warning]);
        assert_eq!(levels(table(0, 60_000, false)), [Level::Warning; 2]);
    }
}
