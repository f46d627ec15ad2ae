//! `anneal doctor`: examines what a server and a worker need, and says in words what is wrong and
//! what to do. Changes nothing, and calls no model.
//!
//! - `finding`: the result of one check, and how it is printed.
//! - `database`: connection, disk, version, schema, roles, clock.
//! - `database_settings`: judges the settings and the statistics of the database.
//! - `queue`: jobs that wait, dead jobs, and workers.
//! - `providers`: whether the providers of models answer, accept their keys and have the models.

mod database;
mod database_settings;
mod finding;
mod providers;
mod queue;

use std::{process::ExitCode, time::Duration};

use self::finding::{Finding, Level};
use crate::{
    command::{DoctorArguments, Process},
    config::Config,
    output::{self, OutputFormat},
};

/// Time limit of one check.
const CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit of all checks of the database together, and of all checks of providers together.
const TOTAL_DEADLINE: Duration = Duration::from_secs(20);

/// Prints a line for each check. Exit code 1 if there is a problem.
pub(crate) async fn run(config: &Config, arguments: &DoctorArguments) -> anyhow::Result<ExitCode> {
    let (of_database, of_providers) = tokio::join!(
        within_total_deadline("database", Box::pin(database::examine(config, arguments))),
        within_total_deadline(
            "providers",
            Box::pin(providers::examine(&config.providers, &config.models))
        ),
    );
    let mut findings = vec![check_settings(config, arguments.process)];
    findings.extend(of_database);
    findings.extend(of_providers);
    let format = OutputFormat::from_argument(arguments.json);
    for finding in &findings {
        match format {
            OutputFormat::Text => output::print_line(finding),
            OutputFormat::Json => output::print_json(&serde_json::to_string(finding)?),
        }
    }
    let has_problem = findings
        .iter()
        .any(|finding| finding.level == Level::Problem);
    Ok(if has_problem {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The checks of `anneal config --check`.
fn check_settings(config: &Config, process: Option<Process>) -> Finding {
    let (accept, refuses) = match process {
        None => (
            "a server and a worker accept",
            "a server or a worker refuses",
        ),
        Some(Process::Server) => ("a server accepts", "a server refuses"),
        Some(Process::Worker) => ("a worker accepts", "a worker refuses"),
    };
    match config.check_for(process.unwrap_or(Process::Server)) {
        Ok(_) => Finding::ok("settings", format!("{accept} the settings")),
        Err(error) => Finding::problem(
            "settings",
            format!("{refuses} the settings: {}", crate::describe(&error)),
            "change them; `anneal config --check` checks them again",
        ),
    }
}

async fn within_total_deadline(
    check: &'static str,
    examination: impl Future<Output = Vec<Finding>>,
) -> Vec<Finding> {
    tokio::time::timeout(TOTAL_DEADLINE, examination)
        .await
        .unwrap_or_else(|_| {
            vec![Finding::problem(
                check,
                format!(
                    "the checks did not end within {} s",
                    TOTAL_DEADLINE.as_secs()
                ),
                "see whether the network to it loses packets, and run the command again",
            )]
        })
}
