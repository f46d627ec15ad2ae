//! Appends and contexts of this build beside those of another one, in rounds that alternate. The
//! servers of both run at the same time, without a worker, each on a database of its own in the
//! same PostgreSQL. Each build migrates its own database, so the other one may have an older
//! schema. No message is ever changed, so a feature that changes messages must cost nothing here.

use std::path::Path;

use anneal_proto::v1 as pb;

use crate::{
    connection::Channel,
    conversations::{self, Conversations, dialogue, never_compacted},
    figures::{Figure, Figures, Target, format_number},
    pace::{Pace, alternate},
    processes::Process,
    scenarios::{
        append::{CALLERS, CONNECTIONS, run_closed_loop},
        context::time_contexts,
    },
    stack::{self, BenchStack},
};

/// Rounds of each comparison. In each round, both builds are measured once.
const ROUNDS: usize = 11;
/// Seconds of appends in a round.
const SECONDS: f64 = 3.0;
/// Contexts in a round.
const CONTEXTS: u64 = 200;
/// Messages before the separator, and after it, of the conversation whose contexts are built.
const HISTORY: [usize; 2] = [950, 50];
/// Messages of an append to that conversation: so few that a server counts them itself.
const BATCH: usize = 10;
/// The database of the other build.
const OTHER_DATABASE: &str = "other_build";

pub(crate) async fn measure(
    pace: Pace,
    other_binary: &Path,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let stack = BenchStack::start_without_worker().await?;
    let other_server = Process::start_server_of_build(&stack, other_binary, OTHER_DATABASE).await?;
    let (mut our_channels, mut other_channels) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        our_channels.push(stack.channel().await?);
        other_channels.push(other_server.channel().await?);
    }
    let ours = Build::prepare(&stack, our_channels).await?;
    let other = Build::prepare(&stack, other_channels).await?;
    let database = stack.database()?;
    for database in [database.with_name(OTHER_DATABASE), database] {
        database.run("vacuum (analyze); checkpoint").await?;
    }
    // A warm-up, whose result is not used.
    for build in [&ours, &other] {
        Measured::AllCallers.run(pace, build).await?;
    }
    let version = stack::run(
        stack.anneal_of_build(other_binary, OTHER_DATABASE),
        &["--version"],
    )
    .await?;
    for measured in Measured::ALL {
        figures.put(compare(pace, measured, [&ours, &other], &version).await?);
    }
    other_server.stop().await?;
    stack.stop().await
}

/// A build's server, with what is measured on it.
struct Build {
    conversations: Conversations,
    /// The conversation whose contexts are built.
    history: String,
}

impl Build {
    async fn prepare(stack: &BenchStack, channels: Vec<Channel>) -> anyhow::Result<Self> {
        let conversations = Conversations::create_over(stack, CALLERS, channels).await?;
        let channel = conversations.channel(0);
        let history = create_history(stack, channel).await?;
        // The first context records a version of its beginning; later ones write nothing.
        time_contexts(channel, &history, 10).await?;
        Ok(Self {
            conversations,
            history,
        })
    }
}

/// Creates a conversation with a separator before its newest messages, through gRPC: builds may
/// have different tables.
async fn create_history(stack: &BenchStack, channel: &Channel) -> anyhow::Result<String> {
    let conversation = stack
        .create_conversation(channel, Some(never_compacted()))
        .await?;
    let [before, tail] = HISTORY;
    append_dialogue(channel, &conversation, before).await?;
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation.clone(),
        ..Default::default()
    };
    BenchStack::message_client(channel)
        .insert_separator(ask)
        .await?;
    append_dialogue(channel, &conversation, tail).await?;
    Ok(conversation)
}

async fn append_dialogue(
    channel: &Channel,
    conversation: &str,
    messages: usize,
) -> anyhow::Result<()> {
    for _ in 0..messages / BATCH {
        conversations::append(channel, conversation, dialogue(BATCH)).await?;
    }
    Ok(())
}

/// The figure that is compared.
#[derive(Debug, Clone, Copy)]
enum Measured {
    /// Appends per second of all callers.
    AllCallers,
    /// Median latency of appends of one caller.
    OneCaller,
    /// Median latency of contexts.
    Context,
}

impl Measured {
    const ALL: [Self; 3] = [Self::AllCallers, Self::OneCaller, Self::Context];

    fn name(self) -> String {
        match self {
            Self::AllCallers => format!("append, {CALLERS} callers"),
            Self::OneCaller => "append, 1 caller, p50".to_owned(),
            Self::Context => {
                let [before, tail] = HISTORY;
                format!("context, history of {}, tail of {tail}, p50", before + tail)
            }
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::AllCallers => "messages/s",
            Self::OneCaller | Self::Context => "ms",
        }
    }

    /// The ratio that is no more than the noise of a comparison.
    const fn target(self) -> Target {
        match self {
            Self::AllCallers => Target::RatioAtLeast(0.98),
            Self::OneCaller | Self::Context => Target::RatioAtMost(1.02),
        }
    }

    /// Measures a build once.
    async fn run(self, pace: Pace, build: &Build) -> anyhow::Result<f64> {
        let conversations = &build.conversations;
        Ok(match self {
            Self::AllCallers => run_closed_loop(pace, SECONDS, CALLERS, conversations)
                .await?
                .rate(),
            Self::OneCaller => run_closed_loop(pace, SECONDS, 1, conversations)
                .await?
                .latencies
                .p50(),
            Self::Context => {
                let calls = pace.number(CONTEXTS);
                time_contexts(conversations.channel(0), &build.history, calls)
                    .await?
                    .p50()
            }
        })
    }
}

/// Measures both builds in rounds that alternate, and prints each round.
async fn compare(
    pace: Pace,
    measured: Measured,
    [ours, other]: [&Build; 2],
    other_version: &str,
) -> anyhow::Result<Figure> {
    let (name, unit) = (measured.name(), measured.unit());
    let (mut our_values, mut other_values) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        let sides = [(ours, &mut our_values), (other, &mut other_values)];
        for (build, values) in alternate(round, sides) {
            values.push(measured.run(pace, build).await?);
        }
        if let (Some(our), Some(their)) = (our_values.last(), other_values.last()) {
            println!(
                "builds: {name}, round {}: {} beside {} {unit}, ratio {:.3}",
                round + 1,
                format_number(*our),
                format_number(*their),
                our / their
            );
        }
    }
    let figure = Figure::new("builds", name, unit, &our_values);
    let baseline = format!("the other build, {other_version}");
    Ok(figure
        .with_baseline(baseline, &our_values, &other_values)
        .with_target(measured.target()))
}
