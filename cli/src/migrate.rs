//! `anneal migrate`: brings the schema up to date, and moves the rows of the tables of an older
//! system.

use std::{process::ExitCode, time::Duration};

use anneal_store::{LegacyCounts, Migrations};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    command::MigrateArguments,
    config::Config,
    output::{self, OutputFormat},
    url_secrets::without_secrets,
};

const UP_TO_DATE: &str = "the schema is up to date";
/// The tables of older systems whose rows are moved.
const LEGACY_TABLES: [&str; 2] = ["ai_conversation", "ai_message"];

/// Migrates. With `--check` or `--dry-run` only prints what is pending.
pub(crate) async fn run(config: &Config, arguments: &MigrateArguments) -> anyhow::Result<ExitCode> {
    let url = config.database_url()?;
    let connected = Migrations::connect(&config.database).await;
    let mut migrations =
        connected.with_context(|| format!("cannot reach {}", without_secrets(url)))?;
    if arguments.check {
        let output_format = OutputFormat::from_argument(arguments.json);
        return check_pending(&mut migrations, output_format).await;
    }
    if arguments.dry_run {
        return dry_run(&mut migrations).await;
    }
    let progress = ProgressBar::new(0).with_style(progress_style());
    let shown = progress.clone();
    let mut migrations = migrations.on_progress(move |moved| {
        shown.set_length(moved.total.unsigned_abs());
        shown.set_position(moved.messages.unsigned_abs());
    });
    let applied = migrations.run(Duration::from_secs(arguments.timeout)).await;
    progress.finish_and_clear();
    let applied = applied?;
    for migration in &applied.migrations {
        output::print_line(format_args!(
            "applied: {} {}",
            migration.version, migration.name
        ));
    }
    if let Some(counts) = &applied.legacy {
        output::print_line("moved the rows of the older tables:");
        output::print_line(counts_table(counts));
    }
    if applied.migrations.is_empty() {
        output::print_line(format_args!("{UP_TO_DATE}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints pending migrations, in JSON a line for each. Exit code 1 if there are any.
async fn check_pending(
    migrations: &mut Migrations,
    output_format: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let pending = migrations.list_pending().await?;
    for migration in &pending {
        match output_format {
            OutputFormat::Text => output::print_line(format_args!(
                "pending: {} {}",
                migration.version, migration.name
            )),
            OutputFormat::Json => {
                let record = serde_json::json!({
                    "record": "migration",
                    "version": migration.version,
                    "name": migration.name,
                });
                output::print_json(&record.to_string());
            }
        }
    }
    // The older system's tables have the names of ours. They are found only while no migration is
    // applied, so migrations are pending as well.
    if migrations.has_legacy_tables().await? {
        match output_format {
            OutputFormat::Text => output::print_line(format_args!(
                "pending: the rows of the older tables {}",
                LEGACY_TABLES.join(" and ")
            )),
            OutputFormat::Json => {
                let record = serde_json::json!({"record": "older_tables", "tables": LEGACY_TABLES});
                output::print_json(&record.to_string());
            }
        }
    }
    if !pending.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if output_format == OutputFormat::Text {
        output::print_line(UP_TO_DATE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the SQL that would run, and what would happen to the rows of the older tables. An error
/// if they prevent the migration.
async fn dry_run(migrations: &mut Migrations) -> anyhow::Result<ExitCode> {
    let legacy = migrations.survey_legacy().await?;
    let pending = migrations.list_pending().await?;
    for migration in &pending {
        output::print_line(format_args!(
            "pending: {} {}",
            migration.version, migration.name
        ));
        output::print_line(&migration.sql);
    }
    if pending.is_empty() {
        output::print_line(format_args!("{UP_TO_DATE}"));
    }
    if let Some(counts) = &legacy {
        output::print_line("pending: the rows of the older tables:");
        output::print_line(counts_table(counts));
        counts.check()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How many rows of the older tables are moved or left out, one kind per line. Rare kinds are
/// listed only if present.
fn counts_table(counts: &LegacyCounts) -> String {
    let always = [
        ("conversations", counts.conversations),
        ("messages", counts.messages()),
        ("  by users", counts.user_messages),
        ("  by assistants", counts.assistant_messages),
        ("  by the system", counts.system_messages),
        ("user separators kept", counts.separators),
        ("system separators deleted", counts.system_separators),
        ("summaries deleted", counts.summaries + counts.checkpoints),
    ];
    let if_present = [
        ("  of these in the table of checkpoints", counts.checkpoints),
        (
            "summaries of single large messages, deleted",
            counts.summary_caches,
        ),
        (
            "messages of conversations that do not exist, deleted",
            counts.orphans,
        ),
        ("archived conversations", counts.archived),
        (
            "conversations of unknown status, archived",
            counts.unknown_status,
        ),
        (
            "titles of more than 512 bytes, shortened (whole in the label legacy_title)",
            counts.titles_shortened,
        ),
        ("empty messages, kept empty", counts.empty_messages),
        (
            "user separators at the place of another, joined with it",
            counts.separators_joined,
        ),
        (
            "rows with too much metadata for labels, of which only the old ids are kept",
            counts.labels_left_out,
        ),
    ];
    let lines = always
        .into_iter()
        .chain(if_present.into_iter().filter(|(_, rows)| *rows > 0));
    let lines: Vec<String> = lines
        .map(|(kind, rows)| format!("  {kind}: {rows}"))
        .collect();
    lines.join("\n")
}

fn progress_style() -> ProgressStyle {
    ProgressStyle::with_template("older tables {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
