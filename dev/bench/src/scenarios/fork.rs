//! ForkConversation: histories of 1,000 and of 100,000 messages, and appends to the longer one
//! while it is forked again and again.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::Request;

use crate::{
    connection::Channel,
    conversations,
    figures::{Figure, Figures, Target},
    history::{self, Shape},
    latencies::Latencies,
    load::OpenLoop,
    pace::{Pace, alternate},
    stack::{BenchStack, user},
};

const ROUNDS: usize = 5;
/// Messages of the histories, forks of a round, and the most milliseconds that one may take.
const HISTORIES: [(usize, u64, f64); 2] = [(1_000, 40, 50.0), (100_000, 1, 5_000.0)];
/// Messages after the newest checkpoint.
const TAIL: usize = 50;
/// Seconds of a round of appends.
const SECONDS: f64 = 5.0;
/// Appends per second to the conversation that is forked: a small part of what one can take.
const APPENDS_PER_SECOND: f64 = 50.0;
/// Longest time of a call: the server's longest deadline.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn measure(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    let mut longest = String::new();
    for (messages, forks, most) in HISTORIES {
        let messages = pace.number(messages as u64) as usize;
        let shape = Shape {
            messages,
            tail: TAIL.min(messages),
        };
        let source = history::create(stack, &channel, shape).await?;
        // A warm-up, whose result is not used.
        time_forks(&channel, &source, 1).await?;
        let mut medians = Vec::new();
        for _ in 0..pace.rounds(ROUNDS) {
            medians.push(
                time_forks(&channel, &source, pace.number(forks))
                    .await?
                    .p50(),
            );
            stack.wait_for_counts(&channel).await?;
        }
        let name = format!("history of {messages}, p50");
        let figure = Figure::new("fork", name, "ms", &medians);
        figures.put(figure.with_target(Target::AtMost(most)));
        longest = source;
    }
    measure_appends(stack, &channel, &longest, pace, figures).await
}

/// Whether the conversation is forked in a round of appends.
#[derive(Debug, Clone, Copy)]
enum Forks {
    None,
    OneAfterAnother,
}

/// Appends to the source, in rounds with and without forks of it.
async fn measure_appends(
    stack: &BenchStack,
    channel: &Channel,
    source: &str,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let appends = stack.channel().await?;
    // A warm-up, whose result is not used.
    append_p99(&appends, source, pace).await?;
    let (mut calm, mut forked) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for forks in alternate(round, [Forks::None, Forks::OneAfterAnother]) {
            stack.wait_for_counts(channel).await?;
            let load = append_p99(&appends, source, pace);
            match forks {
                Forks::None => calm.push(load.await?),
                Forks::OneAfterAnother => {
                    let ended = Cell::new(false);
                    let load = async {
                        let p99 = load.await;
                        ended.set(true);
                        p99
                    };
                    let (p99, forks) = tokio::join!(load, fork_until(channel, source, &ended));
                    forked.push(p99?);
                    for fork in forks? {
                        delete(channel, fork).await?;
                    }
                }
            }
        }
    }
    let figure = Figure::new(
        "fork",
        "append to a conversation that is forked meanwhile, p99",
        "ms",
        &forked,
    );
    figures.put(figure.with_baseline("while it is not forked", &forked, &calm));
    Ok(())
}

/// Forks the conversation again and again until `ended`. Returns the ids of the forks. They are
/// deleted later, so that no deletion disturbs the appends.
async fn fork_until(
    channel: &Channel,
    source: &str,
    ended: &Cell<bool>,
) -> anyhow::Result<Vec<String>> {
    let mut forks = Vec::new();
    while !ended.get() {
        forks.push(fork(channel, source).await?);
    }
    Ok(forks)
}

/// The 99th percentile of appends of one message to the conversation, in milliseconds.
async fn append_p99(channel: &Channel, source: &str, pace: Pace) -> anyhow::Result<f64> {
    let open_loop = OpenLoop {
        rate: APPENDS_PER_SECOND,
        warm_up: pace.seconds(0.5),
        time: pace.seconds(SECONDS),
        max_in_flight: OpenLoop::UNBOUNDED,
    };
    let (channel, source) = (channel.clone(), source.to_owned());
    let append = move |_| {
        let (channel, source) = (channel.clone(), source.clone());
        async move {
            let messages = vec![user(conversations::text())];
            conversations::append(&channel, &source, messages)
                .await
                .map(drop)
        }
    };
    let load = open_loop.run(append).await?.require_success()?;
    Ok(load.latencies.p99())
}

/// Latencies of forks that are made one after the other. Each is deleted again, which is not timed.
async fn time_forks(channel: &Channel, source: &str, forks: u64) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    for _ in 0..forks {
        let before = Instant::now();
        let fork = fork(channel, source).await?;
        latencies.record(before.elapsed());
        delete(channel, fork).await?;
    }
    Ok(latencies)
}

/// Forks the conversation at its newest message, and returns the fork's id.
async fn fork(channel: &Channel, source: &str) -> anyhow::Result<String> {
    let mut ask = Request::new(pb::ForkConversationRequest {
        conversation_id: source.to_owned(),
        ..Default::default()
    });
    ask.set_timeout(TIMEOUT);
    let fork = ConversationServiceClient::new(channel.clone())
        .fork_conversation(ask)
        .await?;
    Ok(fork.into_inner().conversation_id)
}

async fn delete(channel: &Channel, conversation_id: String) -> anyhow::Result<()> {
    let mut ask = Request::new(pb::DeleteConversationRequest {
        conversation_id,
        ..Default::default()
    });
    ask.set_timeout(TIMEOUT);
    ConversationServiceClient::new(channel.clone())
        .delete_conversation(ask)
        .await?;
    Ok(())
}
