//! Arguments of `anneal chat`.

use clap::Args;

use crate::command::ServerArguments;

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation to go on with: the beginning of its title or of its id [default: the newest]
    #[arg(conflicts_with = "new")]
    pub(crate) conversation: Option<String>,
    /// Start a new conversation, with this title if one is given
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) new: Option<String>,
    /// The agent whose conversations these are; an empty one: everybody's
    #[arg(long, default_value = "terminal")]
    pub(crate) agent: String,
    /// The user whose conversations these are; an empty one: everybody's [default: the login name]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The model that answers, by its name in the server's settings [default: the conversation's, or the server's]
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The system prompt of new conversations; where one goes on, it is sent instead of its own
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Keep no history of what was typed
    #[arg(long)]
    pub(crate) no_history: bool,
}
