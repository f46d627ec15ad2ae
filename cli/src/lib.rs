//! The one binary of anneal, as a library: [`main`] reads the arguments and runs the command that they name.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chat;
mod client;
mod command;
mod compact;
mod config;
mod context;
mod dev;
mod export;
mod files;
mod found;
mod health;
mod import;
mod jobs;
mod keys;
mod migrate;
mod models;
mod output;
mod pages;
mod paint;
mod policy;
mod processes;
mod tenants;
mod unheard;
mod usage;
mod verify;
mod words;

use std::process::ExitCode;

use clap::Parser as _;
use command::{Anneal, Command};

/// Tasks that a thread runs before it polls the sockets, where all threads are busy. A task may take tens of milliseconds (a
/// request of 4 MB is decoded in one go): with tokio's 61 a neighbour's call waited 1.3 s for the database's answer.
const TASKS_BETWEEN_EVENTS: u32 = 8;

/// Runs the command that the process's arguments name. Errors go to standard error, with exit code 1; wrong arguments give 2.
pub fn main() -> ExitCode {
    anneal_process::panics::report_without_content();
    unheard::end_with_the_reader();
    let anneal = Anneal::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().event_interval(TASKS_BETWEEN_EVENTS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::from(error).context("cannot start the runtime")),
    };
    let outcome = runtime.block_on(run(anneal));
    // A summariser that is still busy must not keep a process from ending that was asked to.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    outcome.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &anyhow::Error) -> ExitCode {
    output::note(format_args!("anneal: {error:#}"));
    ExitCode::FAILURE
}

async fn run(anneal: Anneal) -> anyhow::Result<ExitCode> {
    let config = || config::load(&anneal.settings);
    match anneal.command {
        Command::Dev(arguments) => Box::pin(dev::run(config()?, arguments)).await,
        Command::Server => processes::server(config()?).await,
        Command::Worker => processes::worker(config()?).await,
        Command::Migrate(arguments) => migrate::run(&config()?, &arguments).await,
        Command::Keys(arguments) => keys::run(&config()?, arguments.action).await,
        Command::Tenants(arguments) => tenants::run(&config()?, arguments.action).await,
        Command::Config => config::show(&config()?),
        Command::Health(arguments) => health::run(&config()?, arguments).await,
        Command::Chat(arguments) => chat::run(arguments).await,
        Command::Import(arguments) => import::run(arguments).await,
        Command::Export(arguments) => export::run(arguments).await,
        Command::Context(arguments) => context::run(arguments).await,
        Command::Usage(arguments) => usage::run(arguments).await,
        Command::Compact(arguments) => compact::run(arguments).await,
        Command::Verify(arguments) => verify::run(arguments).await,
        Command::Jobs(arguments) => jobs::run(arguments).await,
        Command::Models(server) => models::run(server).await,
    }
}
