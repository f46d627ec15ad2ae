//! Whether a model that never answers is felt: appends and contexts at a steady rate, calm and while 100 conversations wait
//! for their summaries, in turns within one run.

use std::{sync::Arc, time::Duration};

use anneal_proto::v1 as pb;
use tonic::transport::Channel;

use crate::{
    figures::Figures,
    house::{House, user},
    load::Open,
    pace::{Pace, in_turns},
    silent_model::SilentModel,
    talks::{self, Talks},
};

const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;
const WAITING: usize = 100;
/// Calls in a second, and the conversations that take them in turn: a small part of what two cores can do.
const APPENDS_PER_SECOND: f64 = 200.0;
const CONTEXTS_PER_SECOND: f64 = 100.0;
const GROWING: u64 = 8;
const READ: usize = 4;

/// The 99th percentiles of one round, in milliseconds.
struct Tails {
    append: f64,
    context: f64,
    /// How late the generator began calls of either kind.
    late: f64,
}

/// What the model does in a round.
#[derive(Debug, Clone, Copy)]
enum Model {
    Answers,
    /// It does not, and conversations wait for it.
    IsSilent,
}

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let model = SilentModel::start().await?;
    let house = House::start_with(&settings(&model)).await?;
    let channel = house.channel().await?;
    let (mut calm, mut waiting) = (Vec::new(), Vec::new());
    let calls = Calls::prepare(&house, &channel).await?;
    calls.round(pace).await?;
    for round in 0..pace.rounds(ROUNDS) {
        for state in in_turns(round, [Model::Answers, Model::IsSilent]) {
            match state {
                Model::Answers => calm.push(calls.round(pace).await?),
                Model::IsSilent => waiting.push(while_waiting(pace, &house, &channel, &model, &calls).await?),
            }
        }
    }
    for (name, tail) in [("append", (|tails| tails.append) as fn(&Tails) -> f64), ("context", |tails| tails.context)] {
        let ratios = calm.iter().zip(&waiting).map(|(calm, waiting)| tail(waiting) / tail(calm));
        figures.add("isolation", format!("{name} p99, calm"), "ms", calm.iter().map(tail));
        figures.add("isolation", format!("{name} p99, {WAITING} wait"), "ms", waiting.iter().map(tail));
        figures.add("isolation", format!("{name} p99, waiting to calm"), "ratio", ratios);
    }
    let late = calm.iter().chain(&waiting).map(|tails| tails.late);
    figures.add("isolation", "lateness of the generator, p99", "ms", late);
    house.stop().await
}

/// A round while conversations wait for the model; it answers them afterwards.
async fn while_waiting(
    pace: Pace,
    house: &House,
    channel: &Channel,
    model: &SilentModel,
    calls: &Calls,
) -> anyhow::Result<Tails> {
    model.hold();
    for _ in 0..WAITING {
        ripe(house, channel).await?;
    }
    model.waits_for(WAITING).await?;
    let tails = calls.round(pace).await?;
    anyhow::ensure!(model.waiting() >= WAITING, "only {} conversations still waited", model.waiting());
    model.release();
    house.settle(channel).await?;
    Ok(tails)
}

/// A worker that calls the silent model for as many conversations at once as the test has.
fn settings(model: &SilentModel) -> String {
    format!(
        "[providers.silent]\napi = \"openai\"\nurl = \"http://{}/v1\"\nfirst_byte_timeout_ms = 600000\n\
         total_timeout_ms = 600000\n[models.silent]\nprovider = \"silent\"\nwindow_tokens = 32768\n\
         [summarizer]\nmodel = \"silent\"\n[worker]\nsummary_concurrency = {}\n",
        model.address(),
        WAITING + 8
    )
}

/// A conversation that is due for a checkpoint.
async fn ripe(house: &House, channel: &Channel) -> anyhow::Result<()> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    let conversation_id = house.conversation(channel, Some(policy)).await?;
    let messages = (0..12).map(|number| user(format!("Question {number}: {}", "what about it? ".repeat(20)))).collect();
    talks::append(channel, &conversation_id, messages).await?;
    Ok(())
}

/// What is called.
struct Calls {
    channel: Channel,
    growing: Talks,
    /// Conversations of 50 messages.
    read: Arc<[String]>,
}

impl Calls {
    async fn prepare(house: &House, channel: &Channel) -> anyhow::Result<Self> {
        let policy = pb::Policy { max_message_count: Some(0), ..Default::default() };
        let mut read = Vec::new();
        for _ in 0..READ {
            let conversation_id = house.conversation(channel, Some(policy.clone())).await?;
            let messages = (0..50).map(|number| user(format!("{number}: {}", "a word of it ".repeat(30)))).collect();
            talks::append(channel, &conversation_id, messages).await?;
            read.push(conversation_id);
        }
        let growing = Talks::start(house, GROWING, GROWING as usize).await?;
        Ok(Self { channel: channel.clone(), growing, read: read.into() })
    }

    /// Appends and contexts at their rates.
    async fn round(&self, pace: Pace) -> anyhow::Result<Tails> {
        let at = |rate| Open { rate, warm_up: Duration::ZERO, time: pace.seconds(SECONDS), in_flight: Open::ENOUGH };
        let (client, read) = (House::contexts(&self.channel), Arc::clone(&self.read));
        let contexts = at(CONTEXTS_PER_SECOND).run(move |number| {
            let conversation_id = read[number as usize % READ].clone();
            let (mut client, ask) = (client.clone(), pb::BuildContextRequest { conversation_id, ..Default::default() });
            async move { client.build_context(ask).await.map(drop) }
        });
        let (appends, contexts) = tokio::join!(at(APPENDS_PER_SECOND).run(self.growing.appends()), contexts);
        let (appends, contexts) = (appends?.clean()?, contexts?.clean()?);
        let mut late = appends.lateness;
        late.add(&contexts.lateness);
        Ok(Tails { append: appends.latencies.p99(), context: contexts.latencies.p99(), late: late.p99() })
    }
}
