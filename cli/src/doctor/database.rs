//! Examines the database: connection, disk, schema, durability, roles and clock.
//! `database_settings` and `queue` judge the rest.

use std::time::{Duration, SystemTime};

use anneal_store::{Migrations, NonDurableSetting, Store, StoreError};
use anyhow::Context as _;

use super::{CHECK_DEADLINE, database_settings, finding::Finding, queue};
use crate::{command::DoctorArguments, config::Config, url_secrets::without_secrets};

/// Skew of the clocks from which times in logs and times of the database are hard to compare.
const NOTICEABLE_SKEW: Duration = Duration::from_secs(2);
/// Skew of the clocks from which tokens and certificates are refused, or accepted for too long.
const HARMFUL_SKEW: Duration = Duration::from_mins(1);

/// Examines the database. If it does not answer, or lacks migrations, checks that need more are
/// left out.
pub(super) async fn examine(config: &Config, arguments: &DoctorArguments) -> Vec<Finding> {
    let store = match config.create_store() {
        Ok(store) => store.with_deadline(CHECK_DEADLINE),
        Err(error) => {
            return vec![Finding::problem(
                "database.connection",
                crate::describe(&error),
                "correct the section [database] of the settings",
            )];
        }
    };
    let url = without_secrets(&config.database.url);
    if let Err(error) = store.ping().await {
        // The first migrations create the role of the sessions.
        let pending = list_pending_migrations(config).await;
        if pending.as_ref().is_ok_and(|pending| !pending.is_empty()) {
            return vec![judge_schema(pending)];
        }
        let error = crate::describe(&error.into());
        return vec![Finding::problem(
            "database.connection",
            format!("{url} cannot be used: {error}"),
            "check that PostgreSQL runs, database.url, and that its login is a member of database.role",
        )];
    }
    let mut findings = vec![Finding::ok("database.connection", format!("{url} answers"))];
    let (disk, settings, durability, clock, pending) = tokio::join!(
        check_disk(&store),
        store.read_database_settings(),
        check_durability(&store),
        check_clock(&store),
        list_pending_migrations(config),
    );
    findings.push(disk);
    match settings {
        Ok(settings) => findings.extend(database_settings::judge(&settings, config, arguments)),
        Err(error) => findings.push(unreadable("database.settings", error)),
    }
    findings.push(durability.unwrap_or_else(|error| unreadable("database.durability", error)));
    findings.push(clock.unwrap_or_else(|error| unreadable("database.clock", error)));
    let is_current = pending.as_ref().is_ok_and(Vec::is_empty);
    findings.push(judge_schema(pending));
    if is_current {
        findings.extend(examine_tables(&store, config).await);
    }
    findings
}

/// The checks that need the tables.
async fn examine_tables(store: &Store, config: &Config) -> Vec<Finding> {
    let (row_security, tables, queue) = tokio::join!(
        check_row_security(store, config),
        store.read_table_statistics(database_settings::BIG_TABLE_ROWS),
        queue::examine(store),
    );
    let mut findings =
        vec![row_security.unwrap_or_else(|error| unreadable("database.row_security", error))];
    match tables {
        Ok(tables) => findings.extend(database_settings::judge_tables(&tables)),
        Err(error) => findings.push(unreadable("database.tables", error)),
    }
    match queue {
        Ok(queue) => findings.extend(queue),
        Err(error) => findings.push(unreadable("queue", error)),
    }
    findings
}

/// A check whose statement failed.
fn unreadable(check: &'static str, error: StoreError) -> Finding {
    let error = crate::describe(&error.into());
    Finding::problem(
        check,
        format!("the check failed: {error}"),
        "see the log of PostgreSQL for the cause",
    )
}

/// Whether PostgreSQL can write to its disk.
async fn check_disk(store: &Store) -> Finding {
    let check = "database.disk";
    match store.probe_disk().await {
        Ok(()) => Finding::ok(check, "PostgreSQL can write to its disk"),
        Err(error) => Finding::problem(
            check,
            format!(
                "PostgreSQL cannot write temporary data: {}",
                crate::describe(&error.into())
            ),
            "free space on the disk of the database: see \"The disk is full\" in docs/runbooks.md",
        ),
    }
}

async fn check_durability(store: &Store) -> Result<Finding, StoreError> {
    let check = "database.durability";
    let weak = store.find_non_durable_settings().await?;
    if weak.is_empty() {
        return Ok(Finding::ok(
            check,
            "commits reach the disk: fsync, full_page_writes and synchronous_commit are on",
        ));
    }
    let list = |text_of: fn(&NonDurableSetting) -> String| {
        weak.iter().map(text_of).collect::<Vec<_>>().join(", ")
    };
    Ok(Finding::problem(
        check,
        format!(
            "{}: a crash may cost messages that were acknowledged",
            list(NonDurableSetting::to_string)
        ),
        list(NonDurableSetting::remedy),
    ))
}

/// Compares the clocks of this machine and of the database.
async fn check_clock(store: &Store) -> Result<Finding, StoreError> {
    let check = "database.clock";
    // The first read may open a connection, whose time would count as skew.
    store.read_clock().await?;
    let before = SystemTime::now();
    let database_us = store.read_clock().await?;
    let round_trip = before.elapsed().unwrap_or_default();
    let database = SystemTime::UNIX_EPOCH
        + Duration::from_micros(u64::try_from(database_us).unwrap_or_default());
    let here = before + round_trip / 2;
    let (skew, direction) = match database.duration_since(here) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let found = format!(
        "the clock of the database is {:.1} s {direction} the clock of this machine",
        skew.as_secs_f64()
    );
    let remedy = "synchronize both machines (NTP, chrony)";
    Ok(if skew >= HARMFUL_SKEW {
        Finding::problem(check, found, remedy)
    } else if skew >= NOTICEABLE_SKEW {
        Finding::warning(check, found, remedy)
    } else {
        Finding::ok(check, found)
    })
}

/// The names of the migrations that the database lacks.
async fn list_pending_migrations(config: &Config) -> anyhow::Result<Vec<String>> {
    let listing = async {
        let mut migrations = Migrations::connect_as_process(&config.database).await?;
        let pending = migrations.list_pending().await?;
        anyhow::Ok(pending.into_iter().map(|one| one.name).collect())
    };
    tokio::time::timeout(CHECK_DEADLINE, listing)
        .await
        .context("the database did not answer in time")?
}

fn judge_schema(pending: anyhow::Result<Vec<String>>) -> Finding {
    let check = "database.schema";
    let newest = Migrations::all().last().map_or(0, |newest| newest.version);
    match pending {
        Ok(pending) => match pending.first() {
            None => Finding::ok(
                check,
                format!("the schema is up to date (version {newest})"),
            ),
            Some(first) => Finding::problem(
                check,
                format!(
                    "the schema lacks {} of the migrations up to version {newest}, the first of them {first}",
                    pending.len()
                ),
                "run `anneal migrate`",
            ),
        },
        Err(error) => Finding::problem(
            check,
            format!(
                "the migrations cannot be listed: {}",
                crate::describe(&error)
            ),
            "check that the login may read the table _sqlx_migrations",
        ),
    }
}

async fn check_row_security(store: &Store, config: &Config) -> Result<Finding, StoreError> {
    let (check, role) = ("database.row_security", &config.database.role);
    if role.is_empty() {
        return Ok(Finding::warning(
            check,
            "database.role is empty: row-level security backs the tenant filters only if the login does not own the \
             tables",
            "leave database.role at anneal_app",
        ));
    }
    Ok(match store.check_row_security().await? {
        None => Finding::ok(check, format!("row-level security applies to {role}")),
        Some(found) => Finding::problem(
            check,
            format!(
                "sessions have the role {}, to which row-level security does not apply, instead of {role}",
                found.role
            ),
            "see Poolers in docs/operations.md: a pooler may drop the options of sessions",
        ),
    })
}
