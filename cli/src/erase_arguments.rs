//! The arguments of the command that erases.

use clap::{ArgGroup, Args};

use crate::{change_arguments::MessageIds, server_arguments::ServerArguments};

/// What to erase, or which receipts to show.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["user", "conversation", "tenant", "list", "show"]))]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct EraseArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Delete all conversations of this user; with --list: show only this user's erasures
    #[arg(long, value_name = "USER", conflicts_with_all = ["conversation", "tenant", "show"])]
    pub(crate) user: Option<String>,
    /// Delete this conversation: its id, or its unique beginning
    #[arg(long, value_name = "CONVERSATION", conflicts_with_all = ["tenant", "list", "show"])]
    pub(crate) conversation: Option<String>,
    /// Erase only the content of these messages of the conversation: ids and ranges, for example
    /// 3,5-9
    #[arg(
        long,
        value_name = "MESSAGES",
        value_delimiter = ',',
        requires = "conversation",
        conflicts_with = "dry_run"
    )]
    pub(crate) messages: Vec<MessageIds>,
    /// Delete all conversations of the tenant that the credential belongs to, which must have this
    /// name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "show"])]
    pub(crate) tenant: Option<String>,
    /// List erasures, the newest first
    #[arg(long, conflicts_with_all = ["show", "dry_run", "wait"])]
    pub(crate) list: bool,
    /// Show an erasure: its progress, or its receipt
    #[arg(long, value_name = "ERASURE", conflicts_with = "dry_run")]
    pub(crate) show: Option<String>,
    /// Change nothing; show what would be deleted
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until nothing is left of the user or the tenant
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print a line of JSON for each erasure
    #[arg(long)]
    pub(crate) json: bool,
}
