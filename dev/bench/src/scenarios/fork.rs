//! ForkConversation: histories of 1,000 and of 100,000 messages, and appends to the longer one
//! while it is forked again and again.

use std::time::{Duration, Instant};

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
                    let fork_again = async {
                        loop {
                            if let Err(error) = time_forks(channel, source, 1).await {
                                return error;
                            }
                        }
                    };
                    tokio::select! {
                        p99 = load => forked.push(p99?),
                        error = fork_again => return Err(error),
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
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut latencies = Latencies::default();
    for _ in 0..forks {
        let mut ask = Request::new(pb::ForkConversationRequest {
            conversation_id: source.to_owned(),
            ..Default::default()
        });
        ask.set_timeout(TIMEOUT);
        let before = Instant::now();
        let fork = client.fork_conversation(ask).await?.into_inner();
        latencies.record(before.elapsed());
        let mut ask = Request::new(pb::DeleteConversationRequest {
            conversation_id: fork.conversation_id,
            ..Default::default()
        });
        ask.set_timeout(TIMEOUT);
        client.delete_conversation(ask).await?;
    }
    Ok(latencies)
}
