//! Turns of Chat with a model that answers at once, beside those of another build if one is given,
//! in rounds that alternate. The servers of both run at the same time, without a worker, each on a
//! database of its own in the same PostgreSQL, as in `builds`. Further, for this build alone: how
//! soon a stop closes the provider's connection, and what it costs a server to look for stops.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anneal_proto::v1::{self as pb, chat_service_client::ChatServiceClient};
use anyhow::Context as _;
use pb::{CancelOutcome, chat_response::Event};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::{
    connection::Channel,
    conversations::{Conversations, never_compacted, text},
    figures::{Figure, Figures, Target},
    latencies::Latencies,
    load::ClosedLoop,
    pace::{Pace, alternate},
    processes::Process,
    silent_model::SilentModel,
    stack::{self, BenchStack, user},
};

/// Rounds of the comparison. In each round, both builds are measured once.
const ROUNDS: usize = 11;
/// Seconds of turns in a round.
const SECONDS: f64 = 3.0;
/// Seconds of turns before.
const WARM_UP: f64 = 0.5;
/// Callers of a round. Each has its own conversation.
const CALLERS: u64 = 16;
const CONNECTIONS: usize = 4;
/// Turns whose statements are counted.
const COUNTED_TURNS: u64 = 100;
/// Turns that are stopped, one after the other, at each server.
const STOPS: u64 = 200;
/// A stop comes at any moment of the time between two readings of the stops: less than this after
/// the provider's call has begun.
const MAX_DELAY: Duration = Duration::from_millis(300);
/// Turns that run at the same time.
const RUNNING_TURNS: u64 = 1_000;
/// Fewer than the 128 streams that a connection supports.
const TURNS_PER_CONNECTION: usize = 100;
/// Seconds for which the statements are counted that look for stops.
const COUNTED_SECONDS: f64 = 20.0;
/// The name of the model, and of its provider.
pub(super) const MODEL: &str = "scripted";
/// The database of the other build.
const OTHER_DATABASE: &str = "other_build";
/// Text that only the statement has that looks for stops (`store/sql/find_stops.sql`).
pub(super) const FIND_STOPS: &str = "as running (tenant_id, conversation_id, lease)";

pub(crate) async fn measure(
    pace: Pace,
    other_binary: Option<&Path>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    raise_file_limit()?;
    let model = SilentModel::start().await?;
    let settings = settings(&model);
    let stack = BenchStack::start_without_worker_with(&settings).await?;
    measure_turns(pace, &stack, other_binary, figures).await?;
    measure_stops(pace, &stack, &model, 0, figures).await?;
    stack.stop().await?;
    let stack = BenchStack::start_logging_without_worker_with(&settings).await?;
    measure_statements(pace, &stack, other_binary, figures).await?;
    measure_running_turns(pace, &stack, &model, figures).await?;
    stack.stop().await
}

/// Raises this process's limit of open files: each call of the model is a connection to it.
fn raise_file_limit() -> anyhow::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    setrlimit(Resource::Nofile, raised).context("the limit of open files cannot be raised")
}

/// Settings of servers that call the model, for as many turns as run at the same time.
pub(super) fn settings(model: &SilentModel) -> String {
    format!(
        "[providers.{MODEL}]\napi = \"openai\"\nurl = \"http://{}/v1\"\nfirst_byte_timeout_ms = 600000\n\
         total_timeout_ms = 600000\n[models.{MODEL}]\nprovider = \"{MODEL}\"\nwindow_tokens = 128000\n\
         [server]\nconcurrent_turns = {}\n",
        model.address(),
        RUNNING_TURNS + 100
    )
}

/// Another build's server.
struct OtherBuild {
    server: Process,
    version: String,
}

impl OtherBuild {
    /// Starts the server of the build, if there is another one.
    async fn start(stack: &BenchStack, binary: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let Some(binary) = binary else {
            return Ok(None);
        };
        let server = Process::start_server_of_build(stack, binary, OTHER_DATABASE).await?;
        let anneal = stack.anneal_of_build(binary, OTHER_DATABASE);
        let version = stack::run(anneal, &["--version"]).await?;
        Ok(Some(Self { server, version }))
    }

    /// The name of what is compared with.
    fn name(&self) -> String {
        format!("the other build, {}", self.version)
    }
}

/// Turns of one build.
struct Turns {
    conversations: Conversations,
}

/// The figures of one round.
struct Round {
    turns_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Turns {
    async fn prepare(stack: &BenchStack, channels: Vec<Channel>) -> anyhow::Result<Self> {
        let conversations = Conversations::create_over(stack, CALLERS, channels).await?;
        Ok(Self { conversations })
    }

    /// Runs turns for a while. The contexts of each round begin anew, so that those of the faster
    /// build are not longer.
    async fn run_round(&self, pace: Pace) -> anyhow::Result<Round> {
        let load = self.run_load(pace).await?;
        self.conversations.insert_separators().await?;
        Ok(load)
    }

    async fn run_load(&self, pace: Pace) -> anyhow::Result<Round> {
        let closed_loop = ClosedLoop {
            callers: CALLERS,
            warm_up: pace.seconds(WARM_UP),
            time: pace.seconds(SECONDS),
        };
        let conversations = self.conversations.clone();
        let load = closed_loop.run(move |number| {
            let channel = conversations.channel(number).clone();
            let conversation = conversations.id(number).to_owned();
            async move { run_turn(&channel, &conversation).await }
        });
        let load = load.await?.require_success()?;
        Ok(Round {
            turns_per_second: load.rate(),
            p50_ms: load.latencies.p50(),
            p99_ms: load.latencies.p99(),
        })
    }
}

/// Begins a turn, and returns its events.
async fn begin_turn(
    channel: &Channel,
    conversation: &str,
) -> Result<Streaming<pb::ChatResponse>, Status> {
    let ask = pb::ChatRequest {
        conversation_id: conversation.to_owned(),
        request_id: Uuid::new_v4().to_string(),
        messages: vec![user(text())],
        model: MODEL.to_owned(),
        ..Default::default()
    };
    let events = ChatServiceClient::new(channel.clone()).chat(ask).await?;
    Ok(events.into_inner())
}

/// Reads the events of a turn to its end.
async fn read_to_end(
    mut events: Streaming<pb::ChatResponse>,
) -> Result<pb::chat_response::Done, Status> {
    let mut done = None;
    while let Some(response) = events.message().await? {
        if let Some(Event::Done(last)) = response.event {
            done = Some(last);
        }
    }
    done.ok_or_else(|| Status::internal("a turn has no end"))
}

/// Runs a turn to its end.
async fn run_turn(channel: &Channel, conversation: &str) -> Result<(), Status> {
    let events = begin_turn(channel, conversation).await?;
    read_to_end(events).await.map(drop)
}

/// Measures turns of this build, beside those of the other one if there is one.
async fn measure_turns(
    pace: Pace,
    stack: &BenchStack,
    other_binary: Option<&Path>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let other = OtherBuild::start(stack, other_binary).await?;
    let (mut our_channels, mut other_channels) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        our_channels.push(stack.channel().await?);
        if let Some(other) = &other {
            other_channels.push(other.server.channel().await?);
        }
    }
    let ours = Turns::prepare(stack, our_channels).await?;
    let others = match &other {
        Some(_) => Some(Turns::prepare(stack, other_channels).await?),
        None => None,
    };
    // A warm-up, whose result is not used.
    for turns in others.iter().chain([&ours]) {
        turns.run_round(pace).await?;
    }
    let (mut our_rounds, mut other_rounds) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        let Some(others) = &others else {
            our_rounds.push(ours.run_round(pace).await?);
            continue;
        };
        let sides = [(&ours, &mut our_rounds), (others, &mut other_rounds)];
        for (turns, rounds) in alternate(round, sides) {
            rounds.push(turns.run_round(pace).await?);
        }
    }
    for (name, unit, value, target) in [
        (
            "",
            "turns/s",
            (|round| round.turns_per_second) as fn(&Round) -> f64,
            Target::RatioAtLeast(0.97),
        ),
        (
            ", p50",
            "ms",
            |round| round.p50_ms,
            Target::RatioAtMost(1.03),
        ),
        (
            ", p99",
            "ms",
            |round| round.p99_ms,
            Target::RatioAtMost(1.03),
        ),
    ] {
        let our_values: Vec<f64> = our_rounds.iter().map(value).collect();
        let other_values: Vec<f64> = other_rounds.iter().map(value).collect();
        let figure = Figure::new(
            "chat",
            format!("turns of {CALLERS} callers{name}"),
            unit,
            &our_values,
        );
        figures.put(match &other {
            Some(other) => figure
                .with_baseline(other.name(), &our_values, &other_values)
                .with_target(target),
            None => figure,
        });
    }
    match other {
        Some(other) => other.server.stop().await,
        None => Ok(()),
    }
}

/// A turn of one server that is stopped at another one, or at the same.
struct StopSetup<'a> {
    model: &'a SilentModel,
    running: &'a Channel,
    stopping: &'a Channel,
    conversation: String,
    /// Other turns that run at the same time.
    others: u64,
}

impl StopSetup<'_> {
    /// Begins a turn and stops it while the model does not answer. Returns the time from the call
    /// of CancelTurn until the provider's connection was closed.
    async fn time_stop(&self) -> anyhow::Result<Duration> {
        let (model, others) = (self.model, self.others as usize);
        let events = begin_turn(self.running, &self.conversation).await?;
        model.wait_for_calls(others + 1).await?;
        tokio::time::sleep(MAX_DELAY.mul_f64(fastrand::f64())).await;
        let ask = pb::CancelTurnRequest {
            conversation_id: self.conversation.clone(),
            ..Default::default()
        };
        let mut client = ChatServiceClient::new(self.stopping.clone());
        let begun = Instant::now();
        let closed = async { model.wait_for_ends(others).await.map(|()| begun.elapsed()) };
        let (took, stopped) = tokio::join!(closed, client.cancel_turn(ask));
        let outcome = stopped?.into_inner().outcome();
        anyhow::ensure!(
            outcome == CancelOutcome::Dropped,
            "a turn that was stopped ended as {outcome:?}"
        );
        anyhow::ensure!(
            read_to_end(events).await?.stopped,
            "a turn that was stopped was answered"
        );
        took
    }
}

/// Measures stops at the server that runs the turn, and at another one, while this many other turns
/// run.
async fn measure_stops(
    pace: Pace,
    stack: &BenchStack,
    model: &SilentModel,
    others: u64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    model.hold();
    let running = stack.channel().await?;
    let other_server = Process::start_server(stack).await?;
    let remote = other_server.channel().await?;
    let beside = match others {
        0 => String::new(),
        others => format!(" beside {others} turns"),
    };
    for (place, stopping, most_ms) in [
        ("at the turn's server", &running, 500.0),
        ("at another server", &remote, 900.0),
    ] {
        let conversation = stack
            .create_conversation(&running, Some(never_compacted()))
            .await?;
        let setup = StopSetup {
            model,
            running: &running,
            stopping,
            conversation,
            others,
        };
        let mut latencies = Latencies::default();
        for _ in 0..pace.number(STOPS) {
            latencies.record(setup.time_stop().await?);
        }
        let name = format!("stop {place}{beside}, until the provider's connection is closed");
        figures.add("chat", format!("{name}, p50"), "ms", [latencies.p50()]);
        let p99 = Figure::new("chat", format!("{name}, p99"), "ms", &[latencies.p99()]);
        figures.put(p99.with_target(Target::AtMost(most_ms)));
    }
    other_server.stop().await?;
    if others == 0 {
        model.release();
    }
    Ok(())
}

/// Counts the statements of a turn, of both builds if there is another one.
async fn measure_statements(
    pace: Pace,
    stack: &BenchStack,
    other_binary: Option<&Path>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let ours = count_statements(pace, stack, &stack.channel().await?).await?;
    let figure = Figure::new("chat", "statements of a turn", "statements", &[ours]);
    let Some(other) = OtherBuild::start(stack, other_binary).await? else {
        figures.put(figure);
        return Ok(());
    };
    let theirs = count_statements(pace, stack, &other.server.channel().await?).await?;
    let figure = figure.with_baseline(other.name(), &[ours], &[theirs]);
    figures.put(figure.with_target(Target::RatioAtMost(1.0)));
    other.server.stop().await
}

/// The statements of a turn, without those that look for stops: these do not depend on the number
/// of turns. Rounded, because a server makes a few at other times.
async fn count_statements(
    pace: Pace,
    stack: &BenchStack,
    channel: &Channel,
) -> anyhow::Result<f64> {
    let conversation = stack
        .create_conversation(channel, Some(never_compacted()))
        .await?;
    // The first context records a version of its beginning.
    run_turn(channel, &conversation).await?;
    let turns = pace.number(COUNTED_TURNS);
    let before = stack.log_end()?;
    for _ in 0..turns {
        run_turn(channel, &conversation).await?;
    }
    let of_turns = |statement: &str| !statement.contains(FIND_STOPS);
    let statements = stack.statements_since(before, of_turns)?;
    Ok((statements.executed as f64 / turns as f64).round())
}

/// Measures what it costs a server with many turns to look for stops, and stops beside these turns.
async fn measure_running_turns(
    pace: Pace,
    stack: &BenchStack,
    model: &SilentModel,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let turns = pace.number(RUNNING_TURNS);
    model.hold();
    // Read by nobody. A turn ends when its events are dropped.
    let events = begin_turns(stack, turns as usize).await?;
    model.wait_for_calls(turns as usize).await?;
    let (before, begun) = (stack.log_end()?, Instant::now());
    tokio::time::sleep(pace.seconds(COUNTED_SECONDS)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let reads = stack.statements_since(before, |statement| statement.contains(FIND_STOPS))?;
    anyhow::ensure!(reads.executed > 0, "no server has looked for stops");
    let name = format!("{turns} running turns, statements that look for stops");
    let rate = reads.executed as f64 / seconds;
    let figure = Figure::new("chat", name.as_str(), "statements/s", &[rate]);
    figures.put(figure.with_target(Target::AtMost(4.0)));
    let percent = reads.total_ms / 1_000.0 / seconds * 100.0;
    let figure = Figure::new("chat", format!("{name}, of a core"), "%", &[percent]);
    figures.put(figure.with_target(Target::AtMost(1.0)));
    measure_stops(pace, stack, model, turns, figures).await?;
    model.release();
    drop(events);
    Ok(())
}

/// Begins this many turns, each in a conversation of its own.
async fn begin_turns(
    stack: &BenchStack,
    turns: usize,
) -> anyhow::Result<Vec<Streaming<pb::ChatResponse>>> {
    let mut all = Vec::with_capacity(turns);
    while all.len() < turns {
        let channel = stack.channel().await?;
        for _ in 0..TURNS_PER_CONNECTION.min(turns - all.len()) {
            let conversation = stack
                .create_conversation(&channel, Some(never_compacted()))
                .await?;
            all.push(begin_turn(&channel, &conversation).await?);
        }
    }
    Ok(all)
}
