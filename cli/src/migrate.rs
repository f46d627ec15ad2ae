//! `anneal migrate`.

use std::{process::ExitCode, time::Duration};

use anneal_store::{LegacyCounts, Migrations};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    command::MigrateArguments,
    config::{Config, without_secrets},
    output,
};

const UP_TO_DATE: &str = "the schema is up to date";

/// Brings the schema up to date, or says what is missing.
pub(crate) async fn run(config: &Config, arguments: &MigrateArguments) -> anyhow::Result<ExitCode> {
    let url = config.database_url()?;
    let reached = Migrations::connect(&config.database).await;
    let mut migrations = reached.with_context(|| format!("cannot reach {}", without_secrets(url)))?;
    if arguments.check {
        return check(&mut migrations).await;
    }
    if arguments.dry_run {
        return dry_run(&mut migrations).await;
    }
    let progress = ProgressBar::new(0).with_style(style());
    let shown = progress.clone();
    let mut migrations = migrations.watched(move |moved| {
        shown.set_length(moved.of.unsigned_abs());
        shown.set_position(moved.messages.unsigned_abs());
    });
    let applied = migrations.run(Duration::from_secs(arguments.timeout)).await;
    progress.finish_and_clear();
    let applied = applied?;
    for migration in &applied.migrations {
        output::line(format_args!("applied: {} {}", migration.version, migration.name));
    }
    if let Some(counts) = &applied.legacy {
        output::line("moved the rows of the older tables:");
        output::line(table(counts));
    }
    if applied.migrations.is_empty() {
        output::line(format_args!("{UP_TO_DATE}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what is pending; exit code 1 when something is.
async fn check(migrations: &mut Migrations) -> anyhow::Result<ExitCode> {
    let pending = migrations.pending().await?;
    for migration in &pending {
        output::line(format_args!("pending: {} {}", migration.version, migration.name));
    }
    if migrations.finds_legacy().await? {
        output::line("pending: the rows of the older tables ai_conversation and ai_message");
    }
    if pending.is_empty() {
        output::line(format_args!("{UP_TO_DATE}"));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Shows the SQL that would run, and what would become of the rows of older tables; an error when they stand in the way.
async fn dry_run(migrations: &mut Migrations) -> anyhow::Result<ExitCode> {
    let legacy = migrations.survey_legacy().await?;
    let pending = migrations.pending().await?;
    for migration in &pending {
        output::line(format_args!("pending: {} {}", migration.version, migration.name));
        output::line(&migration.sql);
    }
    if pending.is_empty() {
        output::line(format_args!("{UP_TO_DATE}"));
    }
    if let Some(counts) = &legacy {
        output::line("pending: the rows of the older tables:");
        output::line(table(counts));
        counts.check()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What becomes of the older tables' rows, a kind a line; kinds that are seldom there only when they are.
fn table(counts: &LegacyCounts) -> String {
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
    let seldom = [
        ("  of these in the table of checkpoints", counts.checkpoints),
        ("summaries beside large messages deleted", counts.summary_caches),
        ("messages of conversations that are gone, deleted", counts.orphans),
        ("archived conversations", counts.archived),
        ("conversations of unknown status, archived", counts.unknown_status),
        ("titles of more than 512 bytes, shortened (whole in the label legacy_title)", counts.titles_shortened),
        ("empty messages, kept empty", counts.empty_messages),
        ("user separators at the place of another, joined with it", counts.separators_joined),
        ("rows whose metadata is too long for labels, left out", counts.labels_left_out),
    ];
    let lines = always.into_iter().chain(seldom.into_iter().filter(|(_, rows)| *rows > 0));
    let lines: Vec<String> = lines.map(|(kind, rows)| format!("  {kind}: {rows}")).collect();
    lines.join("\n")
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("older tables {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
