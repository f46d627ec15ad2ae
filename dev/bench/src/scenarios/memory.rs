//! Memory of processes: a server without calls, with a thousand open streams, and after each stream
//! has delivered something; a worker that counts one message of 40 MB, and one that also summarizes
//! it.

use std::time::Duration;

use anneal_proto::v1::{
    self as pb, append_large_message_request as large, conversation_event::Event,
};
use tokio::task::JoinSet;
use tonic::Streaming;

use crate::{
    connection::Channel,
    conversations,
    figures::{Figure, Figures, Target},
    pace::Pace,
    processes::Process,
    stack::{BenchStack, user},
};

const RUNS: usize = 5;
const STREAMS: usize = 1_000;
/// Fewer than the 128 streams that a connection supports.
const STREAMS_PER_CONNECTION: usize = 100;
const MESSAGE_BYTES: usize = 40_000_000;
/// Bytes of a message that are sent in one frame.
const PIECE_BYTES: usize = 1 << 20;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let runs = pace.rounds(RUNS);
    let stack = BenchStack::start_with(&format!(
        "[server]\nconcurrent_watches = {}\n",
        STREAMS + 100
    ))
    .await?;
    measure_streams(&stack, runs, figures).await?;
    stack.stop().await?;
    let mut stack = BenchStack::start().await?;
    stack.stop_worker().await?;
    measure_large_message(&stack, runs, figures).await?;
    stack.stop().await
}

async fn measure_streams(
    stack: &BenchStack,
    runs: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    let mut conversations = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        conversations.push(stack.create_conversation(&channel, None).await?);
    }
    let (mut without_calls, mut open_streams, mut after_events, mut peak, mut open_counts) =
        (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..runs {
        let server = Process::start_server(stack).await?;
        without_calls.push(server.memory()?.now);
        let watches = open_watches(&server, &conversations).await?;
        open_streams.push(server.memory()?.now);
        append_to_each(&server.channel().await?, &conversations).await?;
        let mut watches = wait_for_events(watches).await?;
        let memory = server.memory()?;
        let streams = count_open(&mut watches).await;
        anyhow::ensure!(
            streams == STREAMS,
            "only {streams} streams were open when memory was read"
        );
        open_counts.push(streams as f64);
        after_events.push(memory.now);
        peak.push(memory.peak);
        server.stop().await?;
    }
    figures.add("memory", "server, without calls", "MiB", without_calls);
    figures.add(
        "memory",
        format!("server, {STREAMS} open streams"),
        "MiB",
        open_streams,
    );
    figures.add(
        "memory",
        "streams open when it was measured",
        "streams",
        open_counts,
    );
    figures.add(
        "memory",
        format!("server, after an event in each of {STREAMS} streams"),
        "MiB",
        after_events,
    );
    let peak = Figure::new(
        "memory",
        format!("server, {STREAMS} open streams, peak"),
        "MiB",
        &peak,
    );
    figures.put(peak.with_target(Target::AtMost(128.0)));
    Ok(())
}

/// Opens a watch for each conversation; returns when each has reported that it has started.
async fn open_watches(
    server: &Process,
    conversations: &[String],
) -> anyhow::Result<Vec<Streaming<pb::ConversationEvent>>> {
    let mut watches = Vec::with_capacity(conversations.len());
    for of_a_connection in conversations.chunks(STREAMS_PER_CONNECTION) {
        let mut client = BenchStack::message_client(&server.channel().await?);
        for conversation_id in of_a_connection {
            let ask = pb::WatchConversationRequest {
                conversation_id: conversation_id.clone(),
                ..Default::default()
            };
            let mut watch = client.watch_conversation(ask).await?.into_inner();
            let started = watch.message().await?.and_then(|event| event.event);
            anyhow::ensure!(
                matches!(started, Some(Event::Started(_))),
                "a watch began with {started:?}"
            );
            watches.push(watch);
        }
    }
    Ok(watches)
}

async fn append_to_each(channel: &Channel, conversations: &[String]) -> anyhow::Result<()> {
    for conversation_id in conversations {
        conversations::append_one_by_one(channel, conversation_id, 1).await?;
    }
    Ok(())
}

/// Waits until each watch has delivered an appended message.
async fn wait_for_events(
    watches: Vec<Streaming<pb::ConversationEvent>>,
) -> anyhow::Result<Vec<Streaming<pb::ConversationEvent>>> {
    let mut waiting = JoinSet::new();
    for mut watch in watches {
        waiting.spawn(async move {
            while let Some(event) = watch.message().await? {
                if matches!(event.event, Some(Event::MessageAppended(_))) {
                    return Ok(watch);
                }
            }
            anyhow::bail!("a watch ended")
        });
    }
    let mut open = Vec::with_capacity(waiting.len());
    while let Some(done) = waiting.join_next().await {
        open.push(done??);
    }
    Ok(open)
}

/// Number of watches that have not ended, whether or not they have an event to deliver.
async fn count_open(watches: &mut [Streaming<pb::ConversationEvent>]) -> usize {
    let mut open = 0;
    for watch in watches {
        let next = tokio::time::timeout(Duration::ZERO, watch.message()).await;
        open += usize::from(matches!(next, Err(_) | Ok(Ok(Some(_)))));
    }
    open
}

async fn measure_large_message(
    stack: &BenchStack,
    runs: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    let huge = Some(1_000_000_000);
    let without_summaries = pb::Policy {
        large_message_threshold: huge,
        token_threshold: huge,
        max_message_count: Some(0),
        ..Default::default()
    };
    for (name, policy) in [
        ("counting", Some(without_summaries)),
        ("counting and summarizing", None),
    ] {
        let mut peak = Vec::new();
        for _ in 0..runs {
            let conversation = stack.create_conversation(&channel, policy.clone()).await?;
            append_large(&channel, conversation).await?;
            let worker = Process::start_worker(stack).await?;
            stack.wait_until_idle(&channel).await?;
            peak.push(worker.memory()?.peak);
            worker.stop().await?;
        }
        let peak = Figure::new(
            "memory",
            format!("worker {name} a 40 MB message, peak"),
            "MiB",
            &peak,
        );
        figures.put(peak.with_target(Target::AtMost(512.0)));
    }
    Ok(())
}

async fn append_large(channel: &Channel, conversation_id: String) -> anyhow::Result<()> {
    let text = include_str!("../../../../LICENSE");
    let text = text.repeat(MESSAGE_BYTES / text.len() + 1);
    let header = large::Header {
        conversation_id,
        message: Some(user(String::new())),
        ..Default::default()
    };
    let pieces = text.as_bytes()[..MESSAGE_BYTES]
        .chunks(PIECE_BYTES)
        .map(|piece| large::Frame::Chunk(piece.to_vec()));
    let frames = std::iter::once(large::Frame::Header(header)).chain(pieces);
    let frames: Vec<_> = frames
        .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
        .collect();
    BenchStack::message_client(channel)
        .append_large_message(tokio_stream::iter(frames))
        .await?;
    Ok(())
}
