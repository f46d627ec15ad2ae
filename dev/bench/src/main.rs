//! `make bench`: measures anneal and compares it with plain PostgreSQL. Starts its own durable
//! PostgreSQL, server and worker, measures through gRPC and HTTP, prints a table and writes
//! target/bench/results.json, or results-SCENARIO.json for a single scenario. Figures of the same
//! run can be compared with each other. Figures of different runs cannot if the machine is shared.
//!
//! `anneal-bench replay-simulated` replays real transcripts without a service and starts none of
//! these processes. `anneal-bench replay [FAMILY]`, built with the feature `replay`, replays them
//! through a service in this process.
//!
//! - `scenarios`: one file per measurement. `replay`: replays of transcripts.
//! - `pace`: how long and how often to measure, and which side of a comparison comes first.
//! - `stack`: the measured PostgreSQL, server and worker. `processes`: further processes beside
//!   them. `connection`: connections to a server, with credentials. `process_log`: tells from a log
//!   when a process is ready. `silent_model`: a model that answers at once, after a time, or not
//!   until it may. `doors`: turns that call it.
//! - `load`: makes calls. `conversations`: the conversations that they append to. `history`:
//!   creates long ones with SQL.
//! - `database`: statements on PostgreSQL itself. `pgbench`, `pgbench_log`: the baseline for
//!   appends. `wal`: bytes of its log. `statement_log`: the statements in its other log. `backlog`:
//!   how many messages wait for their counts.
//! - `figures`, `latencies`: the results. `environment`: the machine and the build. `report`,
//!   `plots`: print, write and draw the results.

mod backlog;
mod connection;
mod conversations;
mod database;
mod doors;
mod environment;
mod figures;
mod history;
mod latencies;
mod load;
mod pace;
mod pgbench;
mod pgbench_log;
mod plots;
mod process_log;
mod processes;
mod replay;
mod report;
mod scenarios;
mod silent_model;
mod stack;
mod statement_log;
mod wal;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum, builder::PossibleValue};

use figures::Figures;
use pace::Pace;
use scenarios::{
    append, builds, changes, chat, context, count, dead_model, erasure, footprint, fork, isolation,
    jobs, lists, memory, overload, page, peers, resolve, responses, retention, start, write_cost,
};
use stack::BenchStack;

/// Measures anneal through gRPC. Exits with 0 even if targets are missed; the last line says how
/// many targets are missed.
#[derive(Debug, Parser)]
#[command(name = "anneal-bench")]
struct Arguments {
    /// The scenario to measure [default: all except `builds` and the replays]
    scenario: Option<Scenario>,
    /// With `replay`: the only family of transcripts to replay (pi, mini-swe, swe-agent, tau,
    /// LoCoMo, CrossWOZ or KdConv) [default: all]
    family: Option<String>,
    /// With `footprint`: minutes under the mixed load [default: 10 seconds]
    #[arg(long)]
    minutes: Option<u64>,
    /// With `builds` and `chat`: the binary `anneal` of another build
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Run one short round to check that everything works; its figures are not meaningful
    #[arg(long)]
    quick: bool,
    /// Also draw docs/performance/SCENARIO.svg
    #[arg(long, conflicts_with = "quick")]
    plots: bool,
}

/// The scenarios. `make bench` measures all except `builds`, `replay` and `replay-simulated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Appends: messages per second and latency, compared with pgbench; also beside a worker.
    Append,
    /// Appends while 100,000 jobs wait for an unreachable model.
    #[value(name = "dead_model")]
    DeadModel,
    /// Counting: the time from an append's answer to the token count, and whether the worker keeps
    /// up with the appends.
    Jobs,
    /// Ten times as many appends as the server can store, for half a minute.
    Overload,
    /// BuildContext on histories of different lengths.
    Context,
    /// Turns of Chat with a model that answers at once, beside those of another build
    /// (`--baseline`); and turns that are stopped.
    Chat,
    /// Turns of POST /v1/responses, beside turns of Chat: chains of 1,000, and 64 side by side.
    Responses,
    /// ForkConversation: conversations of 1,000 and of 100,000 messages.
    Fork,
    /// Contexts of tails with withdrawn messages, WithdrawMessages, RestoreMessages, EditMessage.
    Changes,
    /// EraseUser of a user with 10,000 messages, EraseMessages.
    Erasure,
    /// Appends while a worker deletes 100,000 idle conversations.
    Retention,
    /// Tokenizers on ordinary and hostile texts.
    Count,
    /// Latency of other calls while a model does not answer.
    Isolation,
    /// ListConversations: pages of 50 among 100,000 conversations.
    Lists,
    /// ResolveSession of existing sessions.
    Resolve,
    /// The page: a list of 10,000 conversations, and the X-ray of 100,000 messages.
    Page,
    /// Bytes of PostgreSQL's log (WAL) per append.
    #[value(name = "write_cost")]
    WriteCost,
    /// Memory of a server with 1,000 streams, and of a worker that counts 40 MB.
    Memory,
    /// The time from the start of a process until it works.
    Start,
    /// Bytes on disk per message, and table bloat after a mixed load.
    Footprint,
    /// Other libraries that store conversations in PostgreSQL. Needs python3, and installs the
    /// libraries from PyPI.
    Peers,
    /// Appends and contexts of this build beside those of another one (`--baseline`).
    Builds,
    /// Replays transcripts through a service and meters the cost at a provider. Needs the feature
    /// `replay`.
    Replay,
    /// Replays transcripts without a service.
    ReplaySimulated,
}

impl Scenario {
    /// Whether the scenario runs if the command line names no scenario.
    fn is_usual(self) -> bool {
        !matches!(self, Self::Builds | Self::Replay | Self::ReplaySimulated)
    }

    async fn measure(
        self,
        pace: Pace,
        arguments: &Arguments,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        match self {
            Self::Append => append::measure(pace, figures).await,
            Self::DeadModel => dead_model::measure(pace, figures).await,
            Self::Jobs => jobs::measure(pace, figures).await,
            Self::Overload => overload::measure(pace, figures).await,
            Self::Context => {
                with_stack(async |stack| context::measure(stack, pace, figures).await).await
            }
            Self::Chat => chat::measure(pace, arguments.baseline.as_deref(), figures).await,
            Self::Responses => responses::measure(pace, figures).await,
            Self::Fork => with_stack(async |stack| fork::measure(stack, pace, figures).await).await,
            Self::Changes => {
                with_stack(async |stack| changes::measure(stack, pace, figures).await).await
            }
            Self::Erasure => {
                with_stack(async |stack| erasure::measure(stack, pace, figures).await).await
            }
            Self::Retention => retention::measure(pace, figures).await,
            Self::Count => {
                count::measure(pace, figures);
                Ok(())
            }
            Self::Isolation => isolation::measure(pace, figures).await,
            Self::Lists => {
                with_stack(async |stack| lists::measure(stack, pace, figures).await).await
            }
            Self::Resolve => resolve::measure(pace, figures).await,
            Self::Page => page::measure(pace, figures).await,
            Self::WriteCost => write_cost::measure(pace, figures).await,
            Self::Memory => memory::measure(pace, figures).await,
            Self::Start => start::measure(pace, figures).await,
            Self::Footprint => footprint::measure(pace, arguments.minutes, figures).await,
            Self::Peers => peers::measure(pace, figures).await,
            Self::Builds => {
                let baseline = arguments.baseline.as_deref();
                let other = baseline.context("`builds` needs --baseline FILE")?;
                builds::measure(pace, other, figures).await
            }
            Self::Replay | Self::ReplaySimulated => Ok(()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.scenario {
        Some(Scenario::ReplaySimulated) => return replay::measure_simulated(),
        Some(Scenario::Replay) => {
            return replay_through_the_service(arguments.family.as_deref()).await;
        }
        _ => anyhow::ensure!(arguments.family.is_none(), "only `replay` takes a family"),
    }
    let takes_baseline = matches!(arguments.scenario, Some(Scenario::Builds | Scenario::Chat));
    anyhow::ensure!(
        arguments.baseline.is_none() || takes_baseline,
        "only `builds` and `chat` take a baseline"
    );
    // Dropping the future also ends the processes that it started.
    tokio::select! {
        done = measure(&arguments) => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}

/// Runs the requested scenarios and writes the report.
async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let pace = if arguments.quick {
        Pace::Quick
    } else {
        Pace::Full
    };
    let mut figures = Figures::default();
    let mut failed = 0;
    for scenario in Scenario::value_variants() {
        if arguments
            .scenario
            .map_or(scenario.is_usual(), |wanted| wanted == *scenario)
        {
            // If one scenario fails, the others still run.
            if let Err(error) = scenario.measure(pace, arguments, &mut figures).await {
                eprintln!("{scenario:?} could not be measured: {error:#}");
                failed += 1;
            }
        }
    }
    if arguments.plots {
        plots::draw(&figures)?;
    }
    let scenario = arguments
        .scenario
        .and_then(|scenario| scenario.to_possible_value());
    report::write(
        &figures,
        pace,
        scenario.as_ref().map(PossibleValue::get_name),
    )?;
    anyhow::ensure!(failed == 0, "{failed} scenarios could not be measured");
    Ok(())
}

/// Runs a measurement with a newly started stack.
async fn with_stack(
    measure: impl AsyncFnOnce(&BenchStack) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stack = BenchStack::start().await?;
    measure(&stack).await?;
    stack.stop().await
}

#[cfg(feature = "replay")]
async fn replay_through_the_service(family: Option<&str>) -> anyhow::Result<()> {
    replay::measure_service(family).await
}

#[cfg(not(feature = "replay"))]
#[expect(clippy::unused_async, reason = "with the feature it waits")]
async fn replay_through_the_service(_: Option<&str>) -> anyhow::Result<()> {
    anyhow::bail!(
        "this program was built without the service: build it with --features replay, or run `make bench SCENARIO=replay`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_all_scenarios_needs_no_other_build() {
        assert!(!Scenario::Builds.is_usual() && Scenario::Chat.is_usual());
        let parsed =
            Arguments::try_parse_from(["anneal-bench", "builds", "--baseline", "a/anneal"]);
        assert!(parsed.is_ok_and(|arguments| arguments.scenario == Some(Scenario::Builds)));
    }

    #[test]
    fn quick_runs_draw_no_plots() {
        assert!(Arguments::try_parse_from(["anneal-bench", "jobs", "--plots"]).is_ok());
        assert!(Arguments::try_parse_from(["anneal-bench", "jobs", "--plots", "--quick"]).is_err());
    }
}
