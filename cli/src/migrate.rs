//! `anneal migrate`.

use std::{process::ExitCode, time::Duration};

use anneal_store::Migrations;
use anyhow::Context as _;

use crate::{
    command::MigrateArguments,
    config::{Config, without_password},
};

/// Brings the schema up to date, or says what is missing.
pub(crate) async fn run(config: &Config, arguments: &MigrateArguments) -> anyhow::Result<ExitCode> {
    let url = config.database_url()?;
    let mut migrations =
        Migrations::connect(url).await.with_context(|| format!("cannot reach {}", without_password(url)))?;
    if arguments.check || arguments.dry_run {
        let pending = migrations.pending().await?;
        for migration in &pending {
            println!("pending: {} {}", migration.version, migration.name);
            if arguments.dry_run {
                println!("{}", migration.sql);
            }
        }
        if pending.is_empty() {
            println!("the schema is up to date");
        }
        return Ok(if arguments.check && !pending.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let applied = migrations.run(Duration::from_secs(arguments.timeout)).await?;
    for migration in &applied {
        println!("applied: {} {}", migration.version, migration.name);
    }
    if applied.is_empty() {
        println!("the schema is up to date");
    }
    Ok(ExitCode::SUCCESS)
}
