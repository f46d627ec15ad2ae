//! Measures whether a model that never answers affects other calls: appends and contexts at a
//! constant rate, with an idle model and while 100 conversations wait for summaries, alternating
//! within one run.

use std::{sync::Arc, time::Duration};

use anneal_proto::v1 as pb;

use crate::{
    connection::Channel,
    conversations::{self, Conversations},
    figures::Figures,
    load::OpenLoop,
    pace::{Pace, alternate},
    silent_model::SilentModel,
    stack::{BenchStack, user},
};

const ROUNDS: usize = 5;
/// Seconds of a round.
const SECONDS: f64 = 3.0;
/// Conversations that wait for summaries.
const WAITING_CONVERSATIONS: usize = 100;
/// Appends per second. Together with the contexts they are a small part of what two cores can do.
const APPENDS_PER_SECOND: f64 = 200.0;
/// Contexts per second.
const CONTEXTS_PER_SECOND: f64 = 100.0;
/// Conversations that are appended to in turn.
const APPENDED_CONVERSATIONS: u64 = 8;
/// Conversations whose contexts are built in turn.
const READ_CONVERSATIONS: usize = 4;

/// The 99th percentiles of one round, in milliseconds.
struct P99s {
    append: f64,
    context: f64,
    /// How late the generator started calls of either kind.
    lateness: f64,
}

/// The model's state in a round.
#[derive(Debug, Clone, Copy)]
enum Model {
    /// No job calls the model.
    IsIdle,
    /// It does not answer, and conversations wait for it.
    IsSilent,
}

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let model = SilentModel::start().await?;
    let stack = BenchStack::start_with(&settings(&model)).await?;
    let channel = stack.channel().await?;
    let (mut calm, mut waiting) = (Vec::new(), Vec::new());
    let calls = Calls::prepare(&stack, &channel).await?;
    // A warm-up, whose result is not used.
    calls.run_round(pace).await?;
    for round in 0..pace.rounds(ROUNDS) {
        for state in alternate(round, [Model::IsIdle, Model::IsSilent]) {
            match state {
                Model::IsIdle => calm.push(calls.run_round(pace).await?),
                Model::IsSilent => {
                    waiting
                        .push(measure_while_waiting(pace, &stack, &channel, &model, &calls).await?);
                }
            }
        }
    }
    for (name, p99_of) in [
        ("append", (|p99s| p99s.append) as fn(&P99s) -> f64),
        ("context", |p99s| p99s.context),
    ] {
        let ratios = calm
            .iter()
            .zip(&waiting)
            .map(|(calm, waiting)| p99_of(waiting) / p99_of(calm));
        figures.add(
            "isolation",
            format!("{name} p99, calm"),
            "ms",
            calm.iter().map(p99_of),
        );
        figures.add(
            "isolation",
            format!("{name} p99, {WAITING_CONVERSATIONS} wait"),
            "ms",
            waiting.iter().map(p99_of),
        );
        figures.add(
            "isolation",
            format!("{name} p99, waiting to calm"),
            "ratio",
            ratios,
        );
    }
    let lateness = calm.iter().chain(&waiting).map(|p99s| p99s.lateness);
    figures.add(
        "isolation",
        "lateness of the generator, p99",
        "ms",
        lateness,
    );
    stack.stop().await
}

/// Runs a round while conversations wait for the model, and lets the model answer them afterwards.
async fn measure_while_waiting(
    pace: Pace,
    stack: &BenchStack,
    channel: &Channel,
    model: &SilentModel,
    calls: &Calls,
) -> anyhow::Result<P99s> {
    model.hold();
    for _ in 0..WAITING_CONVERSATIONS {
        create_due_conversation(stack, channel).await?;
    }
    model.wait_for_calls(WAITING_CONVERSATIONS).await?;
    let p99s = calls.run_round(pace).await?;
    anyhow::ensure!(
        model.waiting() >= WAITING_CONVERSATIONS,
        "only {} conversations still waited",
        model.waiting()
    );
    model.release();
    stack.wait_until_idle(channel).await?;
    Ok(p99s)
}

/// Settings of a worker that may call the silent model for all waiting conversations at once, and
/// for a few more.
fn settings(model: &SilentModel) -> String {
    format!(
        "[providers.silent]\napi = \"openai\"\nurl = \"http://{}/v1\"\nfirst_byte_timeout_ms = 600000\n\
         total_timeout_ms = 600000\n[models.silent]\nprovider = \"silent\"\nwindow_tokens = 32768\n\
         [summarizer]\nmodel = \"silent\"\n[worker]\nsummary_concurrency = {}\n",
        model.address(),
        WAITING_CONVERSATIONS + 8
    )
}

/// Creates a conversation that is due for a checkpoint.
async fn create_due_conversation(stack: &BenchStack, channel: &Channel) -> anyhow::Result<()> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation_id = stack.create_conversation(channel, Some(policy)).await?;
    let messages = (0..12)
        .map(|number| {
            user(format!(
                "Question {number}: {}",
                "what about it? ".repeat(20)
            ))
        })
        .collect();
    conversations::append(channel, &conversation_id, messages).await?;
    Ok(())
}

/// The calls whose latencies are measured, and the conversations that they go to.
struct Calls {
    channel: Channel,
    /// The conversations that are appended to.
    conversations: Conversations,
    /// Ids of the conversations, of 50 messages each, whose contexts are built.
    read_ids: Arc<[String]>,
}

impl Calls {
    async fn prepare(stack: &BenchStack, channel: &Channel) -> anyhow::Result<Self> {
        let mut read_ids = Vec::new();
        for _ in 0..READ_CONVERSATIONS {
            let conversation_id = stack
                .create_conversation(channel, Some(conversations::never_compacted()))
                .await?;
            let messages = (0..50)
                .map(|number| user(format!("{number}: {}", "a word of it ".repeat(30))))
                .collect();
            conversations::append(channel, &conversation_id, messages).await?;
            read_ids.push(conversation_id);
        }
        let connections = APPENDED_CONVERSATIONS as usize;
        let conversations =
            Conversations::create(stack, APPENDED_CONVERSATIONS, connections).await?;
        Ok(Self {
            channel: channel.clone(),
            conversations,
            read_ids: read_ids.into(),
        })
    }

    /// Appends and builds contexts at the same time, each at its own rate.
    async fn run_round(&self, pace: Pace) -> anyhow::Result<P99s> {
        let open_loop = |rate| OpenLoop {
            rate,
            warm_up: Duration::ZERO,
            time: pace.seconds(SECONDS),
            max_in_flight: OpenLoop::UNBOUNDED,
        };
        let (client, read_ids) = (
            BenchStack::context_client(&self.channel),
            Arc::clone(&self.read_ids),
        );
        let contexts = open_loop(CONTEXTS_PER_SECOND).run(move |number| {
            let conversation_id = read_ids[number as usize % READ_CONVERSATIONS].clone();
            let (mut client, ask) = (
                client.clone(),
                pb::BuildContextRequest {
                    conversation_id,
                    ..Default::default()
                },
            );
            async move { client.build_context(ask).await.map(drop) }
        });
        let (appends, contexts) = tokio::join!(
            open_loop(APPENDS_PER_SECOND).run(self.conversations.append_call()),
            contexts
        );
        let (appends, contexts) = (appends?.require_success()?, contexts?.require_success()?);
        let mut lateness = appends.lateness;
        lateness.add(&contexts.lateness);
        Ok(P99s {
            append: appends.latencies.p99(),
            context: contexts.latencies.p99(),
            lateness: lateness.p99(),
        })
    }
}
