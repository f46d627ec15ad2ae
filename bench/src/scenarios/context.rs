//! BuildContext: by the length of the history before a tail of 50 messages, beside the bare SELECT of that tail; with a
//! message of 4 MB in the tail that has cooled, beside the same tail without it; and with the whole history as tail.

use std::time::Instant;

use anneal_proto::v1::{self as pb, part::Part};
use anyhow::Context as _;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::{
    figures::{Figure, Figures, Target, median},
    history::{self, Shape},
    house::{House, user},
    latencies::Latencies,
    pace::{Pace, in_turns},
    talks,
};

/// Rounds, in each of which everything that is compared has its turn.
const ROUNDS: usize = 11;
/// Rounds of what stands beside nothing.
const ALONE_ROUNDS: usize = 5;
const CALLS: u64 = 200;
const TAIL: usize = 50;
const HISTORIES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const WHOLE: [usize; 2] = [100, 10_000];
const CALLERS: usize = 16;
const CONNECTIONS: usize = 4;
const LARGE_BYTES: usize = 4_000_000;

pub(crate) async fn measure(house: &House, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    by_history(house, &channel, pace, figures).await?;
    cooled(house, &channel, pace, figures).await?;
    for messages in WHOLE {
        let shape = Shape { messages, tail: messages };
        let conversation = history::fill(house, &channel, shape).await?;
        let mut medians = Vec::new();
        for _ in 0..pace.rounds(ALONE_ROUNDS) {
            medians.push(timed(&channel, &conversation, pace.number(CALLS / 10)).await?.p50());
        }
        figures.add("context", format!("{messages} messages, all of it as tail, p50"), "ms", medians);
    }
    Ok(())
}

/// A history, and the medians of its rounds.
struct History {
    messages: usize,
    conversation: String,
    context: Vec<f64>,
    bare: Vec<f64>,
}

async fn by_history(house: &House, channel: &Channel, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let lengths = if pace.is_quick() { &HISTORIES[..2] } else { &HISTORIES[..] };
    let database = house.database()?;
    let mut histories = Vec::new();
    for &messages in lengths {
        let conversation = history::fill(house, channel, Shape { messages, tail: TAIL }).await?;
        // The first context records the version of its beginning.
        timed(channel, &conversation, 10).await?;
        histories.push(History { messages, conversation, context: Vec::new(), bare: Vec::new() });
    }
    database.run("vacuum (analyze); checkpoint").await?;
    for round in 0..pace.rounds(ROUNDS) {
        for place in 0..histories.len() {
            // Another one comes first in each round.
            let history = &mut histories[(round + place) % lengths.len()];
            history.context.push(timed(channel, &history.conversation, pace.number(CALLS)).await?.p50());
            let tail = format!(
                "select message_id, role, content from ai_message
                 where conversation_id = '{}' and message_id > {} order by message_id;",
                history.conversation,
                history.messages - TAIL
            );
            let bare = database.bare(&tail, pace.number(CALLS) as usize).await?;
            history.bare.extend(bare.map(|bare| median(&bare)));
        }
    }
    put(&histories, figures);
    let shortest = &histories[0];
    for history in [shortest, &histories[histories.len() - 1]] {
        at_once(house, history, pace, figures).await?;
    }
    Ok(())
}

/// Each history beside the shortest, and beside the SELECT of its tail.
fn put(histories: &[History], figures: &mut Figures) {
    let shortest = &histories[0];
    for (place, History { messages, context, bare, .. }) in histories.iter().enumerate() {
        let flat = Figure::new("context", format!("history of {messages}, tail of {TAIL}, p50"), "ms", context);
        figures.put(if place == 0 {
            flat
        } else {
            let beside = format!("history of {}", shortest.messages);
            flat.beside(beside, context, &shortest.context).target(Target::RatioAtMost(1.1))
        });
        if bare.len() == context.len() {
            let name = format!("history of {messages}, tail of {TAIL}, p50 beside its SELECT");
            let figure =
                Figure::new("context", name, "ms", context).beside("the bare SELECT of the tail", context, bare);
            figures.put(figure.target(Target::RatioAtMost(3.0)));
        }
    }
}

/// Contexts of one conversation, as fast as several callers can.
async fn at_once(house: &House, history: &History, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ALONE_ROUNDS) {
        let mut callers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let channel = house.channel().await?;
            for _ in 0..CALLERS / CONNECTIONS {
                let (channel, conversation) = (channel.clone(), history.conversation.clone());
                callers.spawn(async move { timed(&channel, &conversation, pace.number(CALLS)).await });
            }
        }
        let mut latencies = Latencies::default();
        while let Some(done) = callers.join_next().await {
            latencies.add(&done??);
        }
        medians.push(latencies.p50());
        tails.push(latencies.p99());
    }
    let name = format!("history of {}, tail of {TAIL}, {CALLERS} callers", history.messages);
    figures.add("context", format!("{name}, p50"), "ms", medians);
    figures.add("context", format!("{name}, p99"), "ms", tails);
    Ok(())
}

/// A tail whose first message has 4 MB and has cooled, beside one whose first message says what its summary says.
async fn cooled(house: &House, channel: &Channel, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let swapped = tail_after(house, channel, words(LARGE_BYTES)).await?;
    let ask = pb::BuildContextRequest { conversation_id: swapped.clone(), ..Default::default() };
    let context = House::contexts(channel).build_context(ask).await?.into_inner();
    let first = context.messages.into_iter().next().context("the context's first message")?;
    let Some(Part::Text(pb::TextPart { text: summary })) = first.parts.into_iter().next().and_then(|part| part.part)
    else {
        anyhow::bail!("the context does not begin with a text");
    };
    anyhow::ensure!(summary.len() < LARGE_BYTES / 100, "the large message is sent with {} bytes", summary.len());
    let plain = tail_after(house, channel, summary).await?;
    house.database()?.run("vacuum (analyze); checkpoint").await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for (conversation, medians) in in_turns(round, [(&swapped, &mut with), (&plain, &mut without)]) {
            medians.push(timed(channel, conversation, pace.number(CALLS)).await?.p50());
        }
    }
    let figure = Figure::new("context", format!("tail of {TAIL} with a cooled message of 4 MB, p50"), "ms", &with);
    let figure = figure.beside("a message of its summary's size in its place", &with, &without);
    figures.put(figure.target(Target::RatioAtMost(1.05)));
    Ok(())
}

/// A conversation of 50 messages that begins with this one; counted, and summarised where that is large.
async fn tail_after(house: &House, channel: &Channel, first: String) -> anyhow::Result<String> {
    let policy = pb::Policy {
        large_message_threshold: Some(1_000),
        hot_zone_radius: Some(1),
        max_message_count: Some(0),
        token_threshold: Some(1_000_000_000),
        ..Default::default()
    };
    let conversation = house.conversation(channel, Some(policy)).await?;
    let rest = (1..TAIL).map(|number| pb::NewMessage {
        role: if number % 2 == 0 { pb::Role::User } else { pb::Role::Assistant }.into(),
        ..user(talks::text())
    });
    for messages in [vec![user(first)], rest.collect()] {
        talks::append(channel, &conversation, messages).await?;
    }
    house.settle(channel).await?;
    timed(channel, &conversation, 10).await?;
    Ok(conversation)
}

/// Words of random letters, which no storage compresses to nothing.
fn words(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    (0..bytes).map(|_| if random.u8(..31) < 26 { random.lowercase() } else { ' ' }).collect()
}

/// How long calls took, one after the other.
async fn timed(channel: &Channel, conversation: &str, calls: u64) -> anyhow::Result<Latencies> {
    let mut client = House::contexts(channel);
    let mut latencies = Latencies::default();
    for _ in 0..calls {
        let ask = pb::BuildContextRequest { conversation_id: conversation.to_owned(), ..Default::default() };
        let before = Instant::now();
        client.build_context(ask).await?;
        latencies.record(before.elapsed());
    }
    Ok(latencies)
}
