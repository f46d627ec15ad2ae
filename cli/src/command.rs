//! The commands and arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use uuid::Uuid;

use crate::{
    change_arguments::{ChangeArguments, RewindArguments},
    erase_arguments::EraseArguments,
    file_format::FileFormat,
    policy::PolicyArguments,
    server_arguments::ServerArguments,
    version,
};

/// Stores the conversations of LLM applications, and builds the context for the next model call.
#[derive(Debug, Parser)]
#[command(name = "anneal", version = version::text(), about)]
pub(crate) struct Anneal {
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Arguments that set settings. They win over the environment variables ANNEAL_SECTION_KEY, which
/// win over the text of ANNEAL_CONFIG_TOML, which wins over the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettingsArguments {
    /// TOML file with settings [default: anneal.toml, if there is one]
    #[arg(long, global = true, env = "ANNEAL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database: postgres://user:password@host:port/database
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// One setting, for example session.max_message_count=40; may be repeated
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs server and worker in one process, on a private PostgreSQL in a folder
    Dev(DevArguments),
    /// Runs the server: gRPC and HTTP
    Server,
    /// Runs a worker, which counts tokens and makes checkpoints and summaries
    Worker,
    /// Brings the database's schema up to date
    Migrate(MigrateArguments),
    /// Creates, lists and revokes API keys; needs the database, not the server
    Keys(KeysArguments),
    /// Creates and lists tenants; needs the database, not the server
    Tenants(TenantsArguments),
    /// Shows the settings in force, as TOML, without secrets
    Config(ConfigArguments),
    /// Asks a server or worker on this machine whether it is alive
    Health(HealthArguments),
    /// Examines the database, the models and the jobs; says what is wrong and what to do
    Doctor(DoctorArguments),
    /// Shows what retention would delete now; needs the database, not the server
    Retention(RetentionArguments),
    /// Opens a conversation at the terminal; the server's model answers
    Chat(ChatArguments),
    /// Lists conversations, the newest activity first
    List(ListArguments),
    /// Imports conversations from files of other systems; a second run adds only messages that are
    /// new in the file
    Import(ImportArguments),
    /// Exports conversations as a file of another system
    Export(ExportArguments),
    /// Shows what would be sent to the model next
    Context(ContextArguments),
    /// Shows how full the context is, by segment; with --economics also what contexts cost
    Usage(UsageArguments),
    /// Makes a checkpoint now, even if no threshold is reached
    Compact(CompactArguments),
    /// Withdraws messages: they keep their ids, and nothing else shows them
    Withdraw(ChangeArguments),
    /// Withdraws every message after one
    Rewind(RewindArguments),
    /// Makes withdrawn messages stand again
    Restore(ChangeArguments),
    /// Erases messages, conversations, users or the tenant for good; lists and shows receipts
    Erase(EraseArguments),
    /// Checks that stored conversations are intact: order, content, checkpoints, sums
    Verify(VerifyArguments),
    /// Lists background jobs; requeues or discards dead ones
    Jobs(JobsArguments),
    /// Shows the language models: running calls, calls and tokens of today, circuit breakers
    Models(ModelsArguments),
    /// Prints the script with which a shell completes commands and arguments
    Completions(CompletionsArguments),
    /// Prints the man page of anneal, or of one of its commands
    Man(ManArguments),
}

#[derive(Debug, Args)]
pub(crate) struct KeysArguments {
    #[command(subcommand)]
    pub(crate) action: KeysAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysAction {
    /// Creates a key and prints it; it cannot be shown again
    Create {
        /// The tenant that the key belongs to
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// The name of the program or person that uses the key
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The kinds of calls that the key allows: read, append, admin, operator
        #[arg(long, value_name = "VERBS", value_delimiter = ',', default_values = ["read", "append"])]
        verbs: Vec<String>,
        /// Days until the key expires [default: never]
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i32).range(1..=36_500))]
        days: Option<i32>,
        #[command(flatten)]
        bound: BoundArguments,
    },
    /// Lists keys, never their secrets
    List {
        /// Only keys of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Print a line of JSON for each key
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key; servers may accept it for 10 seconds more, or 30 if they cannot reach the
    /// database
    Revoke {
        /// The key's id, or its unique beginning
        key: String,
    },
}

/// What a key is bound to: at most one of them.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct BoundArguments {
    /// Bind the key to this user: it sees and creates conversations of the user only
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    /// Bind the key to this agent: it sees and creates conversations of the agent only
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Bind the key to this conversation: it sees no other one, and creates none
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<Uuid>,
}

#[derive(Debug, Args)]
pub(crate) struct TenantsArguments {
    #[command(subcommand)]
    pub(crate) action: TenantsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsAction {
    /// Creates a tenant
    Create {
        /// The tenant's name, as tokens and certificates contain it
        name: String,
    },
    /// Lists tenants
    List {
        /// Also show for each tenant the number of counted messages and the bytes of their content
        #[arg(long)]
        usage: bool,
        /// Print a line of JSON for each tenant
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// Folder of the private PostgreSQL
    #[arg(long, value_name = "FOLDER", default_value = ".anneal")]
    pub(crate) folder: PathBuf,
    /// Folder with PostgreSQL's programs (initdb, postgres) [default: searched in the Python
    /// environment of this program, PATH and the usual folders]
    #[arg(long, env = "ANNEAL_PG_BIN", value_name = "FOLDER")]
    pub(crate) pg_bin: Option<PathBuf>,
    /// Import these files first
    #[arg(long, value_name = "FILE")]
    pub(crate) import: Vec<PathBuf>,
    /// Import, wait for the worker, show the contexts, verify the conversations, and exit
    #[arg(long, requires = "import")]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// Change nothing; exit code 1 when migrations are pending
    #[arg(long)]
    pub(crate) check: bool,
    /// Change nothing; show the SQL that would run
    #[arg(long, conflicts_with = "check")]
    pub(crate) dry_run: bool,
    /// With --check: print a line of JSON for each pending migration, nothing if there is none
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
    /// Seconds to wait for other migrators and long transactions
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// Show no settings; exit code 1 when a server or a worker would refuse to start with them. The
    /// database is not asked
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: only what this process would refuse [default: both]
    #[arg(long, value_enum, requires = "check")]
    pub(crate) process: Option<Process>,
    /// Print the settings as JSON instead
    #[arg(long, conflicts_with = "check")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArguments {
    /// Which process to ask
    #[arg(value_enum, default_value_t = Process::Server)]
    pub(crate) process: Process,
    /// Print the result as a line of JSON, also if no process answers
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The number of servers that use the database
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) servers: u32,
    /// The number of workers that use the database
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) workers: u32,
    /// Check the settings only as this process does, for example inside its container [default:
    /// both]
    #[arg(long, value_enum)]
    pub(crate) process: Option<Process>,
    /// Print a line of JSON for each check
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RetentionArguments {
    /// Change nothing; show what a worker with these settings would delete now
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print a line of JSON for each limit, tenant and agent
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Process {
    Server,
    Worker,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation to continue: the beginning of its title or of its id [default: the newest]
    #[arg(conflicts_with = "new")]
    pub(crate) conversation: Option<String>,
    /// Start a new conversation, with this title if one is given
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) new: Option<String>,
    /// The agent of the conversations; if empty, conversations of all agents are listed
    #[arg(long, default_value = "terminal")]
    pub(crate) agent: String,
    /// The user of the conversations; if empty, conversations of all users are listed [default: the
    /// login name]
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The model that answers, by its name in the server's settings [default: the conversation's,
    /// or the server's]
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// A model that is tried if the models before it are down, overloaded or have no room; may be
    /// given up to seven times [default: with --model none, else those of the server's settings]
    #[arg(long = "fallback-model", value_name = "MODEL")]
    pub(crate) fallback_models: Vec<String>,
    /// The system prompt of new conversations; in an existing conversation, it is sent instead of
    /// the stored one
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Do not save typed lines in the history file
    #[arg(long)]
    pub(crate) no_history: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Only conversations of this agent
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) agent: String,
    /// Only conversations of this user
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Only conversations with this status
    #[arg(long, value_enum)]
    pub(crate) status: Option<StatusArgument>,
    /// Only forks of this conversation, the newest fork first; not with other filters
    #[arg(long, value_name = "CONVERSATION", conflicts_with_all = ["agent", "user", "status", "title"])]
    pub(crate) forks_of: Option<String>,
    /// Only titles that begin with this
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) title: String,
    /// Most conversations to list
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Print a line of JSON for each conversation
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StatusArgument {
    Active,
    Archived,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Files with conversations; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The format of the files [default: detected from their content]
    #[arg(long, value_enum)]
    pub(crate) format: Option<FileFormat>,
    /// The agent that the conversations belong to [default: the agent that the file names]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) agent: String,
    /// The user that the conversations belong to
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Import every branch of a session as its own conversation, side branches as forks [default:
    /// only the active branch]
    #[arg(long)]
    pub(crate) all_branches: bool,
    /// Import nothing of a file if an item in it would be refused, and read no further file
    #[arg(long)]
    pub(crate) strict: bool,
    /// The session's name, for formats that take it from the file's name (claw0) [default: the
    /// file's name without its extension]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write a line of JSON into this file for each item that was changed, set aside or refused
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Ids of the conversations, or their unique beginnings, in the order in which to write them
    #[arg(required = true, value_name = "CONVERSATION")]
    pub(crate) conversations: Vec<String>,
    /// The format of the file
    #[arg(long, value_enum)]
    pub(crate) format: FileFormat,
    /// The file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
    /// Maximum tokens of the context
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget: Option<u64>,
    /// A user message to add at the end, as if it came next; it is not stored
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    /// Build the context with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// Print the context in this provider's format: one line of JSON
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArgument>,
    /// Shorten the context as after a model has refused it as too long
    #[arg(long, value_enum)]
    pub(crate) pressure: Option<PressureArgument>,
    /// Show how each message is sent and why; then repairs, the provider's cache, and the
    /// checkpoint that is due
    #[arg(long, conflicts_with_all = ["full", "json"])]
    pub(crate) explain: bool,
    /// Show all texts in full
    #[arg(long, conflicts_with = "format")]
    pub(crate) full: bool,
    /// Print the messages as JSON, one per line
    #[arg(long, conflicts_with_all = ["full", "format"])]
    pub(crate) json: bool,
}

/// The provider for whose API a context is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormatArgument {
    /// OpenAI's chat completions, and servers compatible with them
    Openai,
    /// Anthropic's messages
    Anthropic,
    /// Gemini's generateContent
    Gemini,
}

/// How to shorten a context that a model has refused as too long.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PressureArgument {
    /// Clip every oversized tool result
    Truncate,
    /// Also replace the older half by a summary
    Compact,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
    /// Print the figures as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also compute what contexts have cost, and would have cost with other cooling
    #[arg(long)]
    pub(crate) economics: bool,
    /// Compute with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
    /// The subject that the summary should keep above all
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) focus: String,
    /// Change nothing; show which messages would be summarized
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: print the result as a line of JSON
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,
    /// Seconds to wait for the checkpoint, at most 60; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) wait: u32,
    /// With --dry-run: compute with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Ids of the conversations to check, or their unique beginnings
    #[arg(required_unless_present = "all", value_name = "CONVERSATION")]
    pub(crate) conversations: Vec<String>,
    /// Check every conversation
    #[arg(long, conflicts_with = "conversations")]
    pub(crate) all: bool,
    /// Print a line of JSON for each conversation
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Print a line of JSON for each queue and each job
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: Option<JobsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsAction {
    /// Lists jobs (the default)
    List {
        /// Only jobs in this state
        #[arg(long, value_enum)]
        state: Option<JobState>,
    },
    /// Makes a dead job wait for a worker again, or a waiting job due now
    Requeue(JobArguments),
    /// Deletes a dead job; its work stays undone
    Discard(JobArguments),
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// The kind of the job
    #[arg(value_enum)]
    pub(crate) kind: JobKind,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Print a line of JSON for each model, and for each conversation with an open breaker
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// The command, for example: jobs requeue [default: anneal itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum JobState {
    Waiting,
    Running,
    Dead,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum JobKind {
    CountTokens,
    Checkpoint,
    SummarizeMessages,
}
