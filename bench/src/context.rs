//! BuildContext, one caller: by the length of the history, with the tail that a checkpoint leaves and with the whole history
//! as tail.

use std::time::Instant;

use anneal_proto::v1 as pb;

use crate::{
    figures::{Figures, percentile},
    house::{House, user},
};

const RUNS: usize = 5;
const CALLS: usize = 200;
const HISTORIES: [usize; 2] = [100, 10_000];

pub(crate) async fn measure(house: &House, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    for (name, max_message_count) in [("checkpointed", None), ("all of it as tail", Some(0))] {
        for history in HISTORIES {
            let policy = pb::Policy { max_message_count, ..Default::default() };
            let conversation = house.conversation(&channel, Some(policy)).await?;
            fill(&channel, &conversation, history).await?;
            house.settle(&channel).await?;
            let calls = if history > 1_000 && max_message_count == Some(0) { CALLS / 10 } else { CALLS };
            let mut medians = Vec::new();
            for _ in 0..RUNS {
                medians.push(run(&channel, &conversation, calls).await?);
            }
            figures.add("context", format!("{history} messages, {name}, p50"), "ms", medians);
        }
    }
    Ok(())
}

async fn fill(channel: &tonic::transport::Channel, conversation: &str, messages: usize) -> anyhow::Result<()> {
    let mut client = House::messages(channel);
    for start in (0..messages).step_by(100) {
        let batch = (start..messages.min(start + 100)).map(|number| {
            let mut message =
                user(format!("{number}: ").chars().chain("a word of it ".repeat(30).chars()).take(400).collect());
            message.role = if number % 2 == 0 { pb::Role::User } else { pb::Role::Assistant }.into();
            message
        });
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation.to_owned(),
            messages: batch.collect(),
            ..Default::default()
        };
        client.append_messages(ask).await?;
    }
    Ok(())
}

/// Median milliseconds of a call.
async fn run(channel: &tonic::transport::Channel, conversation: &str, calls: usize) -> anyhow::Result<f64> {
    let mut client = House::contexts(channel);
    let mut latencies = Vec::with_capacity(calls);
    for _ in 0..calls {
        let ask = pb::BuildContextRequest { conversation_id: conversation.to_owned(), ..Default::default() };
        let before = Instant::now();
        client.build_context(ask).await?;
        latencies.push(before.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(percentile(&mut latencies, 0.5))
}
