//! Whether a model that never answers is felt: appends and contexts at a steady rate, calm and while 100 conversations wait
//! for their summaries, in turns within one run.

use std::time::Duration;

use anneal_proto::v1 as pb;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{
    figures::{Figures, percentile},
    house::{House, user},
    silent_model::SilentModel,
};

const ROUNDS: usize = 7;
const SECONDS: u64 = 4;
const WAITING: usize = 100;
/// Callers, and the calls that each makes in a second: together about a tenth of what two cores can do.
const APPENDERS: usize = 8;
const READERS: usize = 4;
const CALLS_PER_SECOND: u64 = 25;

/// The 99th percentiles of one round, in milliseconds.
struct Tails {
    append: f64,
    context: f64,
}

pub(crate) async fn measure(figures: &mut Figures) -> anyhow::Result<()> {
    let model = SilentModel::start().await?;
    let house = House::start_with(&settings(&model)).await?;
    let channel = house.channel().await?;
    let (mut calm, mut waiting) = (Vec::new(), Vec::new());
    round(&house).await?;
    for _ in 0..ROUNDS {
        calm.push(round(&house).await?);
        model.hold();
        for _ in 0..WAITING {
            ripe(&house, &channel).await?;
        }
        model.waits_for(WAITING).await?;
        waiting.push(round(&house).await?);
        anyhow::ensure!(model.waiting() >= WAITING, "only {} conversations still waited", model.waiting());
        model.release();
        house.settle(&channel).await?;
    }
    for (name, tail) in [("append", (|tails| tails.append) as fn(&Tails) -> f64), ("context", |tails| tails.context)] {
        let ratios = calm.iter().zip(&waiting).map(|(calm, waiting)| tail(waiting) / tail(calm)).collect();
        figures.add("isolation", format!("{name} p99, calm"), "ms", calm.iter().map(tail).collect());
        figures.add("isolation", format!("{name} p99, {WAITING} wait"), "ms", waiting.iter().map(tail).collect());
        figures.add("isolation", format!("{name} p99, waiting to calm"), "ratio", ratios);
    }
    house.stop().await
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
async fn ripe(house: &House, channel: &tonic::transport::Channel) -> anyhow::Result<()> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    let conversation_id = house.conversation(channel, Some(policy)).await?;
    let messages = (0..12).map(|number| user(format!("Question {number}: {}", "what about it? ".repeat(20)))).collect();
    let ask = pb::AppendMessagesRequest { conversation_id, messages, ..Default::default() };
    House::messages(channel).append_messages(ask).await?;
    Ok(())
}

/// Appends and contexts at a steady rate. A call's time begins when it should have begun.
async fn round(house: &House) -> anyhow::Result<Tails> {
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let (mut appends, mut contexts) = (JoinSet::new(), JoinSet::new());
    let policy = pb::Policy { max_message_count: Some(0), ..Default::default() };
    for caller in 0..APPENDERS + READERS {
        let channel = house.channel().await?;
        let conversation_id = house.conversation(&channel, Some(policy.clone())).await?;
        if caller < APPENDERS {
            appends.spawn(steadily(until, move |number| {
                let ask = pb::AppendMessagesRequest {
                    conversation_id: conversation_id.clone(),
                    request_id: number.to_string(),
                    messages: vec![user("The quick brown fox jumps over the lazy dog. ".repeat(9))],
                    ..Default::default()
                };
                let mut client = House::messages(&channel);
                async move { client.append_messages(ask).await.map(|_| ()) }
            }));
        } else {
            let messages = (0..50).map(|number| user(format!("{number}: {}", "a word of it ".repeat(30)))).collect();
            let fill =
                pb::AppendMessagesRequest { conversation_id: conversation_id.clone(), messages, ..Default::default() };
            House::messages(&channel).append_messages(fill).await?;
            contexts.spawn(steadily(until, move |_| {
                let ask = pb::BuildContextRequest { conversation_id: conversation_id.clone(), ..Default::default() };
                let mut client = House::contexts(&channel);
                async move { client.build_context(ask).await.map(|_| ()) }
            }));
        }
    }
    Ok(Tails { append: tail(appends).await?, context: tail(contexts).await? })
}

/// Calls at a steady rate until it is time; each call's milliseconds.
async fn steadily<F>(until: Instant, mut call: impl FnMut(u64) -> F) -> Result<Vec<f64>, tonic::Status>
where
    F: Future<Output = Result<(), tonic::Status>>,
{
    let mut clock = interval_at(Instant::now(), Duration::from_millis(1_000 / CALLS_PER_SECOND));
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let due = clock.tick().await;
        call(latencies.len() as u64).await?;
        latencies.push(due.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(latencies)
}

async fn tail(mut callers: JoinSet<Result<Vec<f64>, tonic::Status>>) -> anyhow::Result<f64> {
    let mut latencies = Vec::new();
    while let Some(done) = callers.join_next().await {
        latencies.extend(done??);
    }
    Ok(percentile(&mut latencies, 0.99))
}
