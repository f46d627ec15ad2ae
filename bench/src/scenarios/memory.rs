//! What processes hold: a server with a thousand open streams, calm and after something has come through each of them; a
//! worker that counts one message of 40 MB, and one that summarises it as well.

use std::time::Duration;

use anneal_proto::v1::{self as pb, append_large_message_request as large, conversation_event::Event, part::Part};
use tokio::task::JoinSet;
use tonic::{Streaming, transport::Channel};

use crate::{
    figures::{Figure, Figures, Target},
    house::House,
    pace::Pace,
    processes::Process,
    talks,
};

const RUNS: usize = 5;
const STREAMS: usize = 1_000;
/// A connection takes 128 streams.
const STREAMS_PER_CONNECTION: usize = 100;
const MESSAGE_BYTES: usize = 40_000_000;
const PIECE_BYTES: usize = 1 << 20;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let runs = pace.rounds(RUNS);
    let house = House::start_with(&format!("[server]\nconcurrent_watches = {}\n", STREAMS + 100)).await?;
    streams(&house, runs, figures).await?;
    house.stop().await?;
    let mut house = House::start().await?;
    house.stop_worker().await?;
    large_message(&house, runs, figures).await?;
    house.stop().await
}

async fn streams(house: &House, runs: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    let mut conversations = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        conversations.push(house.conversation(&channel, None).await?);
    }
    let (mut idle, mut calm, mut after, mut peak, mut open) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..runs {
        let server = Process::server(house).await?;
        idle.push(server.memory()?.now);
        let watches = watch(&server, &conversations).await?;
        calm.push(server.memory()?.now);
        say_something(&server.channel().await?, &conversations).await?;
        let mut watches = hear_of_it(watches).await?;
        let memory = server.memory()?;
        let streams = still_open(&mut watches).await;
        anyhow::ensure!(streams == STREAMS, "only {streams} streams were open when memory was read");
        open.push(streams as f64);
        after.push(memory.now);
        peak.push(memory.peak);
        server.stop().await?;
    }
    figures.add("memory", "server, without calls", "MiB", idle);
    figures.add("memory", format!("server, {STREAMS} open streams"), "MiB", calm);
    figures.add("memory", "streams open when it was measured", "streams", open);
    figures.add("memory", format!("server, after an event in each of {STREAMS} streams"), "MiB", after);
    let peak = Figure::new("memory", format!("server, {STREAMS} open streams, peak"), "MiB", &peak);
    figures.put(peak.target(Target::AtMost(128.0)));
    Ok(())
}

/// A watch of each conversation; every one has said that it has started.
async fn watch(server: &Process, conversations: &[String]) -> anyhow::Result<Vec<Streaming<pb::ConversationEvent>>> {
    let mut watches = Vec::with_capacity(conversations.len());
    for of_a_connection in conversations.chunks(STREAMS_PER_CONNECTION) {
        let mut client = House::messages(&server.channel().await?);
        for conversation_id in of_a_connection {
            let ask = pb::WatchConversationRequest { conversation_id: conversation_id.clone(), ..Default::default() };
            let mut watch = client.watch_conversation(ask).await?.into_inner();
            let started = watch.message().await?.and_then(|said| said.event);
            anyhow::ensure!(matches!(started, Some(Event::Started(_))), "a watch began with {started:?}");
            watches.push(watch);
        }
    }
    Ok(watches)
}

async fn say_something(channel: &Channel, conversations: &[String]) -> anyhow::Result<()> {
    for conversation_id in conversations {
        talks::append_in_turn(channel, conversation_id, 1).await?;
    }
    Ok(())
}

/// The watches, once each has told of a message.
async fn hear_of_it(
    watches: Vec<Streaming<pb::ConversationEvent>>,
) -> anyhow::Result<Vec<Streaming<pb::ConversationEvent>>> {
    let mut hearing = JoinSet::new();
    for mut watch in watches {
        hearing.spawn(async move {
            while let Some(said) = watch.message().await? {
                if matches!(said.event, Some(Event::MessageAppended(_))) {
                    return Ok(watch);
                }
            }
            anyhow::bail!("a watch ended")
        });
    }
    let mut open = Vec::with_capacity(hearing.len());
    while let Some(heard) = hearing.join_next().await {
        open.push(heard??);
    }
    Ok(open)
}

/// How many watches have not ended: those that have nothing to say now, or something.
async fn still_open(watches: &mut [Streaming<pb::ConversationEvent>]) -> usize {
    let mut open = 0;
    for watch in watches {
        let said = tokio::time::timeout(Duration::ZERO, watch.message()).await;
        open += usize::from(matches!(said, Err(_) | Ok(Ok(Some(_)))));
    }
    open
}

async fn large_message(house: &House, runs: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    let huge = Some(1_000_000_000);
    let never = pb::Policy {
        large_message_threshold: huge,
        token_threshold: huge,
        max_message_count: Some(0),
        ..Default::default()
    };
    for (name, policy) in [("counting", Some(never)), ("counting and summarising", None)] {
        let mut peak = Vec::new();
        for _ in 0..runs {
            let conversation = house.conversation(&channel, policy.clone()).await?;
            append_large(&channel, conversation).await?;
            let worker = Process::worker(house).await?;
            house.settle(&channel).await?;
            peak.push(worker.memory()?.peak);
            worker.stop().await?;
        }
        let peak = Figure::new("memory", format!("worker {name} a 40 MB message, peak"), "MiB", &peak);
        figures.put(peak.target(Target::AtMost(512.0)));
    }
    Ok(())
}

async fn append_large(channel: &Channel, conversation_id: String) -> anyhow::Result<()> {
    let text = include_str!("../../../LICENSE");
    let text = text.repeat(MESSAGE_BYTES / text.len() + 1);
    let message = pb::NewMessage {
        role: pb::Role::User.into(),
        parts: vec![pb::Part { part: Some(Part::Text(pb::TextPart { text: String::new() })) }],
        ..Default::default()
    };
    let header = large::Header { conversation_id, message: Some(message), ..Default::default() };
    let pieces = text.as_bytes()[..MESSAGE_BYTES].chunks(PIECE_BYTES).map(|piece| large::Frame::Chunk(piece.to_vec()));
    let frames = std::iter::once(large::Frame::Header(header)).chain(pieces);
    let frames: Vec<_> = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) }).collect();
    House::messages(channel).append_large_message(tokio_stream::iter(frames)).await?;
    Ok(())
}
