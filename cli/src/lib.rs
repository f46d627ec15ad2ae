//! The `anneal` binary as a library: [`main`] parses the arguments and runs the command.
//!
//! - `command`: the commands and arguments. Most commands have a module of the same name: `chat`,
//!   `compact`, `completions`, `context`, `dev`, `doctor`, `erase`, `export`, `health`, `import`,
//!   `jobs`, `keys`, `list`, `migrate`, `models`, `retention`, `tenants`, `usage`, `verify`.
//!   `processes` has the commands `server` and `worker`, `completions` also `man`, `change` has
//!   `withdraw`, `rewind` and `restore`. `erase_arguments`: the arguments of `erase`.
//!   `server_arguments`, `change_arguments`: arguments that several commands have.
//! - `config`: the settings, and the command `config`. `environment`: the variables `ANNEAL_…`.
//!   `toml_settings`: settings in TOML. `settings_error`: settings of arguments, and errors of
//!   settings in the words of settings. `implicit_config`: limits an `anneal.toml` that is read only
//!   because it is in the current folder. `policy`: the arguments that override a conversation's policy.
//! - `client`: the gRPC clients of the commands. `message_pages`: reads messages page by page.
//! - `find_by_prefix`: which conversation a prefix means. `conversation_ids`: the conversation that
//!   an argument means. `conversation_rows`: conversations as rows of a table.
//! - `file_format`: the values of `--format` for imports and exports, and the agent of an imported
//!   conversation. `session_index`: the index files of claw0's and ai-panel's sessions.
//! - `output`: the output of commands; `chat`, `export` and `import` also print by themselves.
//!   `sanitize`, `url_secrets`: replace what must not be printed.
//!   `terminal_style`, `text_format`, `columns`: colors, bars, plurals, paragraphs, columns of text.
//!   `terminal_size`: the size of the terminal.
//! - `reload`: replaces settings of a running server or worker. `version`: the text of `--version`.
//! - `allocator.c`: an option of the allocator.
//! - `broken_pipe`: ends the process quietly when the reader of its output has closed it.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod broken_pipe;
mod change;
mod change_arguments;
mod chat;
mod client;
mod columns;
mod command;
mod compact;
mod completions;
mod config;
mod context;
mod conversation_ids;
mod conversation_rows;
mod dev;
mod doctor;
mod environment;
mod erase;
mod erase_arguments;
mod export;
mod file_format;
mod find_by_prefix;
mod health;
mod implicit_config;
mod import;
mod jobs;
mod keys;
mod list;
mod message_pages;
mod migrate;
mod models;
mod output;
mod policy;
mod processes;
mod reload;
mod retention;
mod sanitize;
mod server_arguments;
mod session_index;
mod settings_error;
mod tenants;
mod terminal_size;
mod terminal_style;
mod text_format;
mod toml_settings;
mod url_secrets;
mod usage;
mod verify;
mod version;

use std::process::ExitCode;

use clap::Parser as _;
use command::{Anneal, Command};
// `allocator.c`, which is linked with this crate, calls it.
use libmimalloc_sys as _;

/// Number of tasks that a busy thread of the runtime runs before it checks for network events and
/// timers. A task may take tens of milliseconds (a request of 4 MB is decoded in one step). With
/// tokio's default of 61, a call waited 1.3 s until it saw an answer of the database.
const TASKS_BETWEEN_EVENTS: u32 = 8;

/// Runs the command. Errors are printed to standard error with exit code 1; wrong arguments give
/// exit code 2.
pub fn main() -> ExitCode {
    anneal_process::panics::install_panic_hook();
    broken_pipe::exit_on_closed_stdout();
    let anneal = Anneal::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .event_interval(TASKS_BETWEEN_EVENTS)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return report_error(&anyhow::Error::from(error).context("cannot start the runtime"));
        }
    };
    let outcome = runtime.block_on(run(anneal));
    // Waits only two seconds for blocking threads: a summarizer may still run on one of them.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    outcome.unwrap_or_else(|error| report_error(&error))
}

fn report_error(error: &anyhow::Error) -> ExitCode {
    output::print_note(format_args!("anneal: {}", describe(error)));
    ExitCode::FAILURE
}

/// The error with its causes, on one line. An error that only passes its cause on has the cause's
/// text, which is then left out.
fn describe(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

async fn run(anneal: Anneal) -> anyhow::Result<ExitCode> {
    let config = || config::load(&anneal.settings);
    match anneal.command {
        Command::Dev(arguments) => Box::pin(dev::run(config()?, arguments)).await,
        Command::Server => processes::run_server(config()?, &anneal.settings).await,
        Command::Worker => processes::run_worker(config()?, &anneal.settings).await,
        Command::Migrate(arguments) => migrate::run(&config()?, &arguments).await,
        Command::Keys(arguments) => keys::run(&config()?, arguments.action).await,
        Command::Tenants(arguments) => tenants::run(&config()?, arguments.action).await,
        Command::Config(arguments) if arguments.check => {
            processes::check_settings(&config()?, &arguments)
        }
        Command::Config(arguments) => config::show(&config()?, &arguments),
        Command::Health(arguments) => health::run(&config()?, arguments).await,
        Command::Doctor(arguments) => doctor::run(&config()?, &arguments).await,
        Command::Retention(arguments) => retention::run(&config()?, &arguments).await,
        Command::Chat(arguments) => chat::run(arguments).await,
        Command::List(arguments) => list::run(arguments).await,
        Command::Import(arguments) => import::run(arguments).await,
        Command::Export(arguments) => export::run(arguments).await,
        Command::Context(arguments) => context::run(arguments).await,
        Command::Usage(arguments) => usage::run(arguments).await,
        Command::Compact(arguments) => compact::run(arguments).await,
        Command::Withdraw(arguments) => change::withdraw(arguments).await,
        Command::Rewind(arguments) => change::rewind(arguments).await,
        Command::Restore(arguments) => change::restore(arguments).await,
        Command::Erase(arguments) => erase::run(arguments).await,
        Command::Verify(arguments) => verify::run(arguments).await,
        Command::Jobs(arguments) => jobs::run(arguments).await,
        Command::Models(arguments) => models::run(arguments).await,
        Command::Completions(arguments) => Ok(completions::print_script(&arguments)),
        Command::Man(arguments) => completions::print_man_page(&arguments),
    }
}
