//! `anneal chat`: a conversation at the terminal. Everything is asked of a server; nothing is kept here but the history of lines.

mod answer;
mod arguments;
mod choice;
mod columns;
mod editor;
mod fullness;
mod leaving;
mod line;
mod list;
mod orders;
mod place;
mod reading;
mod recent;
mod screen;
mod show;
mod trouble;
mod turn;
mod typed;

use std::{io, io::IsTerminal as _, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use arguments::ChatArguments;
use editor::{Editor, Titles};
use line::{Line, Order};
use place::{Owner, Place};
use reading::Lines;
use screen::{Reader, Screen};
use trouble::Trouble;
use turn::Asked;

use crate::{client::Client, paint::Paint};

/// A conversation under way.
struct Chat {
    client: Client,
    owner: Owner,
    place: Place,
    screen: Screen,
    lines: Lines,
    /// Titles that Tab completes.
    titles: Titles,
    /// Words that have no answer yet; /retry says them again.
    unanswered: Option<Asked>,
    /// The model that is asked for, or that has answered last; empty: not known yet.
    model: String,
}

/// Whether the chat goes on after a line.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}

/// Reads lines, and says or does what they mean, until the person leaves. A pipe ends with the first failure, and exit code 1.
pub(crate) async fn run(arguments: ChatArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let mut chat = Chat::open(client, arguments).await.map_err(anyhow::Error::msg)?;
    while let Some(text) = chat.lines.next(chat.place.name()).await? {
        let line = line::parse(&text);
        let was_turn = matches!(line, Line::Say(_) | Line::Order(Order::Retry));
        let mut interrupts = chat.interrupts()?;
        let outcome = tokio::select! {
            outcome = chat.act(line) => outcome,
            () = interrupted(&mut interrupts) => chat.stopped(was_turn).map(|()| Next::GoOn),
        };
        match outcome {
            Ok(Next::GoOn) => {}
            Ok(Next::Leave) => break,
            Err(Trouble::Broken(error)) => return Err(error.into()),
            Err(trouble) if chat.screen.reader == Reader::Pipe => anyhow::bail!("{trouble}"),
            Err(trouble) => chat.screen.trouble(&trouble.to_string())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Chat {
    /// A chat where the arguments say: in a conversation that is there, or in one that the first words begin.
    async fn open(client: Client, arguments: ChatArguments) -> Result<Self, Trouble> {
        let owner = Owner {
            agent: arguments.agent,
            user: arguments.user.unwrap_or_else(login_name),
            model: arguments.model.unwrap_or_default(),
            system: arguments.system,
        };
        let titles = Titles::default();
        let (screen, lines, note) = open_terminal(&titles, arguments.no_history)?;
        let place = Place::unbegun(line::title(arguments.new.as_deref().unwrap_or_default())?);
        let model = owner.model.clone();
        let mut chat = Self { client, owner, place, screen, lines, titles, unanswered: None, model };
        if let Some(note) = note {
            chat.screen.note(&note)?;
        }
        let there = match (&arguments.conversation, &arguments.new) {
            (Some(prefix), _) => Some(chat.owner.find(&chat.client, prefix).await?),
            (None, Some(_)) => None,
            (None, None) => chat.owner.newest(&chat.client).await?,
        };
        if chat.screen.reader == Reader::Person {
            leaving::on_signals()?;
            chat.greet(there.as_ref()).await?;
        } else if let Some(conversation) = there {
            chat.place = Place::begun(&conversation);
        }
        Ok(chat)
    }

    async fn greet(&mut self, there: Option<&anneal_proto::v1::Conversation>) -> Result<(), Trouble> {
        let (newest, _) = self.owner.newest_of(&self.client, 0).await?;
        self.offer(&newest.into_iter().map(|conversation| conversation.title).collect::<Vec<_>>());
        match there {
            Some(conversation) => self.go_to(conversation).await?,
            None => self.screen.note(&format!("{}: it begins with your first words", self.place.name()))?,
        }
        Ok(self.screen.note("/help lists the commands; Ctrl-D leaves")?)
    }

    async fn act(&mut self, line: Line) -> Result<Next, Trouble> {
        match line {
            Line::Nothing => {}
            Line::Say(text) => self.say(text).await?,
            Line::Wrong(why) => return Err(why.into()),
            Line::Order(order) => return self.obey(order).await,
        }
        Ok(Next::GoOn)
    }

    async fn obey(&mut self, order: Order) -> Result<Next, Trouble> {
        match order {
            Order::New(title) => self.start_anew(title)?,
            Order::Switch(prefix) => self.switch(&prefix).await?,
            Order::List => self.list().await?,
            Order::Context => self.fullness().await?,
            Order::Compact(focus) => self.compact(focus).await?,
            Order::Separate => self.separate().await?,
            Order::Show(message_id) => self.show(message_id).await?,
            Order::Rename(title) => self.rename(title).await?,
            Order::Retry => self.retry().await?,
            Order::Help => self.help()?,
            Order::Quit => return Ok(Next::Leave),
        }
        Ok(Next::GoOn)
    }

    /// Ctrl-C from now on. Where nobody types, it ends the process as it ends any other.
    fn interrupts(&self) -> io::Result<Option<Signal>> {
        match self.screen.reader {
            Reader::Person => signal(SignalKind::interrupt()).map(Some),
            Reader::Pipe => Ok(None),
        }
    }
}

async fn interrupted(interrupts: &mut Option<Signal>) {
    match interrupts {
        Some(interrupts) => {
            interrupts.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// A person's screen and editor where a terminal is on both sides; else lines as they stand. A history that cannot be kept is
/// worth a note.
fn open_terminal(titles: &Titles, no_history: bool) -> io::Result<(Screen, Lines, Option<String>)> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let are_terminals = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    if is_dumb || !are_terminals {
        return Ok((Screen::new(Reader::Pipe, Paint::Plain), Lines::Read, None));
    }
    let paint = Paint::of_output();
    let screen = Screen::new(Reader::Person, paint);
    let file = if no_history { None } else { editor::history_file() };
    let (editor, note) = match Editor::new(file.as_deref(), Titles::clone(titles), paint) {
        Ok(editor) => (editor, None),
        Err(error) => {
            let editor = Editor::new(None, Titles::clone(titles), paint)?;
            (editor, Some(format!("what you type is not remembered: {error}")))
        }
    };
    Ok((screen, Lines::Typed(Some(Box::new(editor))), note))
}

/// The login name; `local` where the environment has none.
fn login_name() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "local".to_owned())
}
