//! The commands and arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{file_format::FileFormat, policy::PolicyArguments};

/// Keeps the conversations of LLM applications, and answers what to send to the model next.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Anneal {
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where settings come from: file, then ANNEAL_SECTION_KEY variables, then these.
#[derive(Debug, Args)]
pub(crate) struct SettingsArguments {
    /// TOML file with settings [default: anneal.toml, if there is one]
    #[arg(long, global = true, env = "ANNEAL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// postgres://user:password@host:port/database
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// One setting, for example session.max_message_count=40; may be repeated
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Everything in one process, on a PostgreSQL of its own in a folder
    Dev(DevArguments),
    /// The gRPC server
    Server,
    /// A worker: counts tokens, writes checkpoints and summaries
    Worker,
    /// Brings the database's schema up to date
    Migrate(MigrateArguments),
    /// Makes, lists and revokes API keys; needs the database, not the server
    Keys(KeysArguments),
    /// Makes and lists tenants; needs the database, not the server
    Tenants(TenantsArguments),
    /// Shows the settings in force, as TOML, without secrets
    Config,
    /// Asks a server or worker on this machine whether it is alive
    Health(HealthArguments),
    /// A conversation at the terminal; the server's model answers
    Chat(ChatArguments),
    /// Imports conversations from files of other systems; a second run adds nothing, a file that has grown what is new
    Import(ImportArguments),
    /// Exports conversations as a file of another system
    Export(ExportArguments),
    /// Shows what would be sent to the model next
    Context(ContextArguments),
    /// Shows how full the context is, by segment; and what contexts cost
    Usage(UsageArguments),
    /// Makes a checkpoint now, whatever the thresholds say
    Compact(CompactArguments),
    /// Checks the promises on stored conversations
    Verify(VerifyArguments),
    /// Lists background jobs; requeues or discards dead ones
    Jobs(JobsArguments),
    /// Shows the language models: calls, tokens of the day, breakers
    Models(ServerArguments),
}

/// Which server to talk to.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArguments {
    /// The server's gRPC address; https:// for TLS
    #[arg(
        long,
        env = "ANNEAL_ADDRESS",
        value_name = "URL",
        default_value = "http://127.0.0.1:50051"
    )]
    pub(crate) address: String,
    /// File with an API key or a token [default: the variable ANNEAL_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the authority that has signed the server's certificate [default: the system's]
    #[arg(long, env = "ANNEAL_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl ServerArguments {
    /// Whether calls are sent unencrypted to another machine.
    pub(crate) fn is_unencrypted(&self) -> bool {
        let host = self
            .address
            .strip_prefix("http://")
            .map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
        host.is_some_and(|host| host != "localhost" && !host.starts_with("127.") && host != "[")
    }

    /// The server at this address, without credentials.
    pub(crate) fn at(address: String) -> Self {
        Self {
            address,
            token_file: None,
            ca_file: None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct KeysArguments {
    #[command(subcommand)]
    pub(crate) action: KeysAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysAction {
    /// Makes a key and prints it, this once
    Create {
        /// The tenant for whom it speaks
        #[arg(long, value_name = "NAME", default_value = "default")]
        tenant: String,
        /// The name of the program or person that uses the key
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The calls that the key allows: read, append, admin, operator
        #[arg(long, value_name = "VERBS", value_delimiter = ',', default_values = ["read", "append"])]
        verbs: Vec<String>,
        /// Days until it is refused [default: never]
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i32).range(1..=36_500))]
        days: Option<i32>,
    },
    /// Lists keys, never their secrets
    List {
        /// Only those of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
    /// Revokes a key; servers take it for ten seconds more, thirty where they cannot ask the database
    Revoke {
        /// Its id
        key: uuid::Uuid,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TenantsArguments {
    #[command(subcommand)]
    pub(crate) action: TenantsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsAction {
    /// Makes a tenant
    Create {
        /// Its name, as credentials say it
        name: String,
    },
    /// Lists tenants
    List {
        /// Beside each name the messages that are stored and counted, and the bytes of their content
        #[arg(long)]
        usage: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// Folder of the private PostgreSQL
    #[arg(long, value_name = "FOLDER", default_value = ".anneal")]
    pub(crate) folder: PathBuf,
    /// Folder with PostgreSQL's programs (initdb, postgres) [default: looked for]
    #[arg(long, env = "ANNEAL_PG_BIN", value_name = "FOLDER")]
    pub(crate) pg_bin: Option<PathBuf>,
    /// Import these files first
    #[arg(long, value_name = "FILE")]
    pub(crate) import: Vec<PathBuf>,
    /// Import, wait for the worker, show the contexts, check the promises, and leave
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
    /// Seconds to wait for other migrators and long transactions
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArguments {
    /// Which process to ask
    #[arg(value_enum, default_value_t = Process::Server)]
    pub(crate) process: Process,
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

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Files with conversations; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The format of the files [default: by their content]
    #[arg(long, value_enum)]
    pub(crate) format: Option<FileFormat>,
    /// The agent that the conversations belong to [default: the one that a file names]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) agent: String,
    /// The user that the conversations belong to
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Every branch of a session, each as a conversation of its own [default: the one that the session is on]
    #[arg(long)]
    pub(crate) all_branches: bool,
    /// Import nothing of a file that holds something which cannot be kept
    #[arg(long)]
    pub(crate) strict: bool,
    /// The session's name, where the file's name is what names it (claw0) [default: the file's name without its ending]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write what was not simply kept into this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Conversations, in the order in which they are to be written
    #[arg(required = true, value_name = "CONVERSATION")]
    pub(crate) conversations: Vec<String>,
    /// The format of the file
    #[arg(long, value_enum)]
    pub(crate) format: FileFormat,
    /// The file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id
    pub(crate) conversation: String,
    /// Tokens that the context may count at most
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget: Option<u64>,
    /// A user message to add at the end, as if it were the next one
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    /// Look with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// Print the provider's request instead: one line of JSON, ready to send
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArgument>,
    /// Look as if a model had refused the context as too long
    #[arg(long, value_enum)]
    pub(crate) pressure: Option<PressureArgument>,
    /// Say of every message how it is sent and why; then repairs, the provider's cache, and the checkpoint that is due
    #[arg(long, conflicts_with_all = ["full", "json"])]
    pub(crate) explain: bool,
    /// Show every text whole
    #[arg(long, conflicts_with = "format")]
    pub(crate) full: bool,
    /// Print the answer as JSON lines instead: one message per line
    #[arg(long, conflicts_with_all = ["full", "format"])]
    pub(crate) json: bool,
}

/// Whose request a context is shaped for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormatArgument {
    /// OpenAI's chat completions, and the servers that take the same
    Openai,
    /// Anthropic's messages
    Anthropic,
    /// Gemini's generateContent
    Gemini,
}

/// Measures after a model has refused a context as too long.
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
    /// The conversation's id
    pub(crate) conversation: String,
    /// Also work out what contexts have cost, and would have cost otherwise
    #[arg(long)]
    pub(crate) economics: bool,
    /// Look with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id
    pub(crate) conversation: String,
    /// Words for the summariser: the subject that the summary should keep above all
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) focus: String,
    /// Change nothing; say what would be cut
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seconds to wait for the checkpoint, at most 60; 0: leave it to the worker
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) wait: u32,
    /// With --dry-run: look with these settings instead of the conversation's own
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Conversations to check
    #[arg(required_unless_present = "all", value_name = "CONVERSATION")]
    pub(crate) conversations: Vec<String>,
    /// Check every conversation
    #[arg(long, conflicts_with = "conversations")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
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
    /// Puts a dead job back to work, or makes a waiting one due now
    Requeue(JobArguments),
    /// Takes a dead job off the list for good
    Discard(JobArguments),
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// The kind of the job
    #[arg(value_enum)]
    pub(crate) kind: JobKind,
    /// The conversation's id
    pub(crate) conversation: String,
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
