//! `anneal chat`: a conversation at the terminal. All state is on the server, except the history of
//! typed lines.
//!
//! - `parse_line`: what a typed line means.
//! - `turn`: sending a message and streaming the answer.
//! - `commands`, `changes`, `context_usage`, `show_message`: the commands.
//! - `target`: which conversation is meant.
//! - `line_source`, `editor`, `sanitized_editor`: input. `quiet_input`: keeps what is typed during
//!   an answer for the next line.
//! - `errors`: why a call failed, and advice. `signals`: restores the terminal when a signal ends
//!   the process.
//! - `screen`, `answer`: output. `recent_messages`: fetches the last messages and formats them.

mod answer;
mod changes;
mod commands;
mod context_usage;
mod editor;
mod errors;
mod line_source;
mod parse_line;
mod quiet_input;
mod recent_messages;
mod sanitized_editor;
mod screen;
mod show_message;
mod signals;
mod target;
mod turn;

use std::{
    io,
    io::IsTerminal as _,
    pin::{Pin, pin},
    process::ExitCode,
    sync::{Arc, PoisonError},
    time::Duration,
};

use anneal_proto::v1 as pb;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use editor::{Editor, Titles};
use errors::ChatError;
use line_source::LineSource;
use parse_line::{ChatCommand, Line};
use quiet_input::QuietInput;
use screen::{Reader, Screen};
use target::{ConversationOwner, Target};
use turn::{PendingTurn, StreamingTurn};

use crate::{client::Client, command::ChatArguments, terminal_style::TerminalStyle};

/// How long Ctrl-C waits for the end of the turn that it stops.
const MAX_WAIT_FOR_STOP: Duration = Duration::from_secs(10);

/// The state of a chat.
struct Chat {
    client: Client,
    owner: ConversationOwner,
    target: Target,
    screen: Screen,
    lines: LineSource,
    /// Keeps input for the next line. None on a pipe.
    quiet_input: Option<QuietInput>,
    /// The titles that Tab completes.
    titles: Titles,
    /// The message without an answer, which /retry sends again.
    pending_turn: Option<PendingTurn>,
    /// The turn whose answer arrives, which Ctrl-C stops.
    streaming_turn: StreamingTurn,
    /// The messages that each /undo has withdrawn since a message was stored, those of the last one
    /// at the end. /redo restores them.
    undone: Vec<Vec<pb::IdRange>>,
    /// The model that answered last. Before the first answer: the model of `--model`. Empty:
    /// unknown.
    model: String,
}

/// Whether the chat continues after a line.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}

/// Reads lines and runs them until the person leaves or the input ends. On a pipe, the first
/// failure ends the chat with exit code 1.
pub(crate) async fn run(arguments: ChatArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let mut chat = Chat::open(client, arguments)
        .await
        .map_err(anyhow::Error::msg)?;
    while let Some(text) = chat.lines.next(chat.target.name()).await? {
        if let Some(quiet_input) = &chat.quiet_input {
            quiet_input.apply()?;
        }
        let line = parse_line::parse(&text);
        let was_turn = matches!(
            line,
            Line::Message(_) | Line::Command(ChatCommand::Edit(_) | ChatCommand::Retry)
        );
        let mut interrupt_signals = chat.interrupt_signals()?;
        let outcome = chat.run_until_interrupt(line, &mut interrupt_signals).await;
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => chat.report_interrupt(was_turn).map(|()| Next::GoOn),
        };
        match outcome {
            Ok(Next::GoOn) => {}
            Ok(Next::Leave) => break,
            Err(ChatError::Io(error)) => return Err(error.into()),
            Err(error) if chat.screen.reader == Reader::Pipe => anyhow::bail!("{error}"),
            Err(error) => chat.screen.print_error(&error.to_string())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Chat {
    /// Opens a chat in the conversation that the arguments name. If they name none: in the newest
    /// one. With `--new`, or if there is none yet: in a new one.
    async fn open(client: Client, arguments: ChatArguments) -> Result<Self, ChatError> {
        let owner = ConversationOwner {
            agent: arguments.agent,
            user: arguments.user.unwrap_or_else(login_name),
            model: arguments.model.unwrap_or_default(),
            fallback_models: arguments.fallback_models,
            system: arguments.system,
        };
        let titles = Titles::default();
        let (screen, lines, note) = open_terminal(&titles, arguments.no_history)?;
        let target = Target::new(parse_line::title(
            arguments.new.as_deref().unwrap_or_default(),
        )?);
        let model = owner.model.clone();
        let mut chat = Self {
            client,
            owner,
            target,
            screen,
            lines,
            quiet_input: None,
            titles,
            pending_turn: None,
            streaming_turn: StreamingTurn::default(),
            undone: Vec::new(),
            model,
        };
        if let Some(note) = note {
            chat.screen.print_note(&note)?;
        }
        let existing = match (&arguments.conversation, &arguments.new) {
            (Some(prefix), _) => Some(chat.owner.find(&chat.client, prefix).await?),
            (None, Some(_)) => None,
            (None, None) => chat.owner.newest(&chat.client).await?,
        };
        if chat.screen.reader == Reader::Person {
            chat.open_for_person(existing.as_ref()).await?;
            let quiet_input = QuietInput::begin()?;
            signals::restore_terminal_on_signals(quiet_input.previous_mode())?;
            chat.quiet_input = Some(quiet_input);
        } else if let Some(conversation) = existing {
            chat.target = Target::existing(&conversation);
        }
        Ok(chat)
    }

    /// Makes the existing conversation, if there is one, the target and prints its last messages.
    /// Also fetches the titles that Tab completes.
    async fn open_for_person(
        &mut self,
        existing: Option<&pb::Conversation>,
    ) -> Result<(), ChatError> {
        // 0: as many as the server lists by default.
        let (newest, _) = self.owner.newest_page(&self.client, 0).await?;
        self.add_completion_titles(
            &newest
                .into_iter()
                .map(|conversation| conversation.title)
                .collect::<Vec<_>>(),
        );
        match existing {
            Some(conversation) => self.open_conversation(conversation).await?,
            None => self.screen.print_note(&format!(
                "{}: your first message creates it",
                self.target.name()
            ))?,
        }
        Ok(self
            .screen
            .print_note("/help lists the commands; Ctrl-D leaves")?)
    }

    /// Runs a line until it ends or Ctrl-C ends it. Ctrl-C during an answer stops its turn at the
    /// server, and the line ends with the turn: the server says what it has kept. None: the line
    /// has not come to its end.
    async fn run_until_interrupt(
        &mut self,
        line: Line,
        interrupt_signals: &mut Option<Signal>,
    ) -> Option<Result<Next, ChatError>> {
        let (client, streaming) = (self.client.clone(), Arc::clone(&self.streaming_turn));
        let mut running = pin!(self.run_line(line));
        tokio::select! {
            outcome = &mut running => return Some(outcome),
            () = wait_for_interrupt(interrupt_signals) => {}
        }
        let turn = streaming
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        tokio::select! {
            outcome = timeout(MAX_WAIT_FOR_STOP, stop_turn(&client, turn, running)) => outcome.ok()?,
            // Ctrl-C again does not wait.
            () = wait_for_interrupt(interrupt_signals) => None,
        }
    }

    async fn run_line(&mut self, line: Line) -> Result<Next, ChatError> {
        match line {
            Line::Empty => {}
            Line::Message(text) => self.send_message(text).await?,
            Line::Invalid(why) => return Err(why.into()),
            Line::Command(command) => return self.run_command(command).await,
        }
        Ok(Next::GoOn)
    }

    async fn run_command(&mut self, command: ChatCommand) -> Result<Next, ChatError> {
        match command {
            ChatCommand::New(title) => self.start_new_conversation(title)?,
            ChatCommand::Switch(prefix) => self.switch_conversation(&prefix).await?,
            ChatCommand::List => self.list_conversations().await?,
            ChatCommand::Context => self.show_context().await?,
            ChatCommand::Compact(focus) => self.compact(focus).await?,
            ChatCommand::Separate => self.insert_separator().await?,
            ChatCommand::Show(message_id) => self.show_message(message_id).await?,
            ChatCommand::Rename(title) => self.rename_conversation(title).await?,
            ChatCommand::Undo => self.undo().await?,
            ChatCommand::Redo => self.redo().await?,
            ChatCommand::Edit(text) => self.edit_question(text).await?,
            ChatCommand::Retry => self.retry_turn().await?,
            ChatCommand::Alternatives => self.list_alternatives().await?,
            ChatCommand::Choose(number) => self.choose_alternative(number).await?,
            ChatCommand::Fork { message_id, title } => {
                self.fork_conversation(message_id, title).await?;
            }
            ChatCommand::Help => self.print_help()?,
            ChatCommand::Quit => return Ok(Next::Leave),
        }
        Ok(Next::GoOn)
    }

    /// The Ctrl-C signals from now on. None on a pipe, where Ctrl-C ends the process.
    fn interrupt_signals(&self) -> io::Result<Option<Signal>> {
        match self.screen.reader {
            Reader::Person => signal(SignalKind::interrupt()).map(Some),
            Reader::Pipe => Ok(None),
        }
    }
}

/// Stops a turn at the server, and reads its answer until it ends. None: the server cannot stop it.
async fn stop_turn<T>(
    client: &Client,
    turn: pb::CancelTurnRequest,
    running: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut chats = client.chats();
    let stopped = chats.cancel_turn(turn);
    let ended = async { Ok::<_, tonic::Status>(running.await) };
    let (_, outcome) = tokio::try_join!(stopped, ended).ok()?;
    Some(outcome)
}

async fn wait_for_interrupt(interrupt_signals: &mut Option<Signal>) {
    match interrupt_signals {
        Some(interrupt_signals) => {
            interrupt_signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// A screen and a line editor if input and output are terminals, otherwise plain lines. The last
/// value is a note for the person if the history file cannot be used.
fn open_terminal(
    titles: &Titles,
    no_history: bool,
) -> io::Result<(Screen, LineSource, Option<String>)> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let are_terminals =
        io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    if is_dumb || !are_terminals {
        return Ok((
            Screen::new(Reader::Pipe, TerminalStyle::Plain),
            LineSource::StandardInput,
            None,
        ));
    }
    let style = TerminalStyle::of_output();
    let screen = Screen::new(Reader::Person, style);
    let file = if no_history {
        None
    } else {
        editor::history_file()
    };
    let (editor, note) = match Editor::new(file.as_deref(), Titles::clone(titles), style) {
        Ok(editor) => (editor, None),
        Err(error) => {
            let editor = Editor::new(None, Titles::clone(titles), style)?;
            (
                editor,
                Some(format!("typed lines are not saved in the history: {error}")),
            )
        }
    };
    Ok((screen, LineSource::Editor(Some(Box::new(editor))), note))
}

/// The login name; `local` if the environment has none.
fn login_name() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    named("USER")
        .or_else(|| named("LOGNAME"))
        .unwrap_or_else(|| "local".to_owned())
}
