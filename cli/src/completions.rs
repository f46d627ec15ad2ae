//! `anneal completions` and `anneal man`: texts that are made from the commands and arguments.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::{
    command::{Anneal, CompletionsArguments, ManArguments},
    output,
};

/// Prints the script with which a shell completes commands and arguments.
pub(crate) fn print_script(arguments: &CompletionsArguments) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Anneal::command(),
        "anneal",
        &mut script,
    );
    output::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Prints the man page of `anneal`, or of one of its commands.
pub(crate) fn print_man_page(arguments: &ManArguments) -> anyhow::Result<ExitCode> {
    let mut command = Anneal::command().disable_help_subcommand(true);
    // Gives the subcommands their complete names, and the arguments that all commands have.
    command.build();
    for name in &arguments.command {
        command = command
            .find_subcommand(name)
            .cloned()
            .with_context(|| format!("there is no command {name:?}; `anneal help` lists them"))?;
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    output::print(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}
