//! Other libraries that store conversations in PostgreSQL, beside anneal: all are called by the same
//! Python program, on the same PostgreSQL, in rounds that alternate. Needs python3 and PyPI.

use std::process::Stdio;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::{
    figures::{Figure, Figures, median},
    pace::{Pace, alternate},
    stack::BenchStack,
    wal,
};

/// Each library's name for the program, and its name in figures. The others are compared with the
/// first one.
const LIBRARIES: [(&str, &str); 4] = [
    ("anneal", "anneal"),
    ("openai", "OpenAI Agents' SQLAlchemySession"),
    ("adk", "ADK's DatabaseSessionService"),
    ("langgraph", "LangGraph's PostgresSaver"),
];
/// Their places in [`LIBRARIES`].
const PLACES: [usize; LIBRARIES.len()] = [0, 1, 2, 3];
const ROUNDS: usize = 3;
/// Callers of a round, each of which appends to a new conversation.
const CALLERS: usize = 16;
/// Messages of such a conversation.
const MESSAGES: u64 = 50;
/// Messages of the conversations that are read.
const LENGTHS: [usize; 3] = [100, 1_000, 10_000];
/// How often a conversation is read in a round.
const READS: u64 = 10;
/// The script that installs the libraries, where it installs them, and the program.
const INSTALL: &str = "scripts/peers.sh";
const FOLDER: &str = ".tools/peers";
const PROGRAM: &str = "dev/bench/peers/peers.py";

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let mut install = Command::new(INSTALL);
    let installed = install.arg(FOLDER).stdout(Stdio::null()).status().await?;
    if !installed.success() {
        println!("The other libraries could not be installed, so there are no figures of peers.");
        return Ok(());
    }
    let stack = BenchStack::start().await?;
    let database = stack.database()?;
    wal::prepare(&database).await?;
    database.run("create database peers").await?;
    let mut peers = Vec::new();
    for (library, _) in LIBRARIES {
        peers.push(Peer::start(&stack, library)?);
    }
    measure_appends(pace, &stack, &mut peers, figures).await?;
    measure_contexts(pace, &stack, &mut peers, figures).await?;
    // The programs end before PostgreSQL does.
    drop(peers);
    stack.stop().await
}

/// Messages per second and bytes of the log, those of new conversations and of counts included.
async fn measure_appends(
    pace: Pace,
    stack: &BenchStack,
    peers: &mut [Peer],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let database = stack.database()?;
    let channel = stack.channel().await?;
    let of_each = pace.number(MESSAGES) as usize;
    let command = format!("append {CALLERS} {of_each}");
    for peer in &mut *peers {
        // A warm-up, whose result is not used.
        peer.run::<f64>(&command).await?;
    }
    let messages = CALLERS * of_each;
    let (mut rates, mut bytes) = (PLACES.map(|_| Vec::new()), PLACES.map(|_| Vec::new()));
    for round in 0..pace.rounds(ROUNDS) {
        for place in alternate(round, PLACES) {
            let from = wal::position(&database).await?;
            let seconds: f64 = peers[place].run(&command).await?;
            stack.wait_until_idle(&channel).await?;
            let wal = wal::bytes_since(&database, &from, messages).await?;
            rates[place].push(messages as f64 / seconds);
            bytes[place].push(wal.without_page_images);
        }
    }
    let name = format!("{CALLERS} callers, one message each");
    report(figures, &name, "messages/s", &rates);
    let name = "WAL of append and count, without page images";
    report(figures, name, "bytes/message", &bytes);
    Ok(())
}

/// How long it takes to read a whole conversation, of several lengths.
async fn measure_contexts(
    pace: Pace,
    stack: &BenchStack,
    peers: &mut [Peer],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let lengths = if pace.is_quick() {
        &LENGTHS[..1]
    } else {
        &LENGTHS[..]
    };
    let database = stack.database()?;
    let channel = stack.channel().await?;
    let command = format!("read {}", pace.number(READS));
    for length in lengths {
        for peer in &mut *peers {
            peer.run::<()>(&format!("grow {length}")).await?;
        }
        stack.wait_until_idle(&channel).await?;
        for name in ["postgres", "peers"] {
            let database = database.with_name(name);
            database.run("vacuum (analyze); checkpoint").await?;
        }
        let mut medians = PLACES.map(|_| Vec::new());
        for round in 0..pace.rounds(ROUNDS) {
            for place in alternate(round, PLACES) {
                let milliseconds: Vec<f64> = peers[place].run(&command).await?;
                medians[place].push(median(&milliseconds));
            }
        }
        let name = format!("context of all {length} messages, p50");
        report(figures, &name, "ms", &medians);
    }
    Ok(())
}

/// Adds a figure of each library, compared with the first one's.
fn report(figures: &mut Figures, name: &str, unit: &'static str, values: &[Vec<f64>]) {
    for (place, values_of_one) in values.iter().enumerate() {
        let name = format!("{}, {name}", LIBRARIES[place].1);
        let figure = Figure::new("peers", name, unit, values_of_one);
        figures.put(if place == 0 {
            figure
        } else {
            figure.with_baseline(LIBRARIES[0].1, values_of_one, &values[0])
        });
    }
}

/// The program with one library. It is killed when this is dropped.
struct Peer {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(stack: &BenchStack, library: &str) -> anyhow::Result<Self> {
        let mut python = Command::new(format!("{FOLDER}/bin/python"));
        python.args(["-W", "ignore", PROGRAM, library]);
        python
            .env("PYTHONPATH", format!("{FOLDER}/stubs"))
            .env("ANNEAL_ADDRESS", stack.address())
            .env("ANNEAL_AUTHORIZATION", stack.credential().authorization()?);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let database = stack.database()?.with_name("peers");
        let mut child = database.connected(python).spawn()?;
        let answers = child.stdout.take().context("the program's output")?;
        Ok(Self {
            child,
            answers: BufReader::new(answers).lines(),
        })
    }

    /// Gives the program a command, and waits for its answer.
    async fn run<T: DeserializeOwned>(&mut self, command: &str) -> anyhow::Result<T> {
        let commands = self.child.stdin.as_mut().context("the program's input")?;
        commands
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        let answer = self.answers.next_line().await?;
        let answer = answer.with_context(|| format!("the program ended during {command:?}"))?;
        Ok(serde_json::from_str(&answer)?)
    }
}
