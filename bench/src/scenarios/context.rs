//! BuildContext: by the length of the history before a tail of 50 messages, beside the bare SELECT of that tail; with a
//! message of 4 MB in the tail that has cooled, beside the same tail without it; and with the whole history as tail.

use std::time::Instant;

use anneal_proto::v1::{self as pb, part::Part};
use anyhow::Context as _;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::{
    figures::{Figure, Figures, Target, median, percentile},
    history::{self, Shape},
    house::{House, user},
    pace::Pace,
};

/// Rounds, in each of which everything that is compared has its turn.
const ROUNDS: usize = 11;
const CALLS: usize = 200;
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
        for _ in 0..5 {
            medians.push(p50(&channel, &conversation, calls(pace) / 10).await?);
        }
        figures.add("context", format!("{messages} messages, all of it as tail, p50"), "ms", medians);
    }
    Ok(())
}

/// Calls of each in a round of this run.
fn calls(pace: Pace) -> usize {
    if pace.is_quick() { 20 } else { CALLS }
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
    for _ in 0..pace.rounds(ROUNDS) {
        for history in &mut histories {
            history.context.push(p50(channel, &history.conversation, calls(pace)).await?);
            let tail = format!(
                "select message_id, role, content from ai_message
                 where conversation_id = '{}' and message_id > {} order by message_id;",
                history.conversation,
                history.messages - TAIL
            );
            history.bare.extend(database.bare(&tail, calls(pace)).await?.map(|bare| median(&bare)));
        }
    }
    let shortest = &histories[0];
    for History { messages, context, bare, .. } in &histories {
        let flat = Figure::new("context", format!("history of {messages}, tail of {TAIL}, p50"), "ms", context);
        let flat = flat.beside(format!("history of {}", shortest.messages), context, &shortest.context);
        figures.put(flat.target(Target::RatioAtMost(1.1)));
        if bare.len() == context.len() {
            let name = format!("history of {messages}, tail of {TAIL}, p50 beside its SELECT");
            let figure =
                Figure::new("context", name, "ms", context).beside("the bare SELECT of the tail", context, bare);
            figures.put(figure.target(Target::RatioAtMost(3.0)));
        }
    }
    for history in [shortest, &histories[histories.len() - 1]] {
        at_once(house, history, pace, figures).await?;
    }
    Ok(())
}

/// Contexts of one conversation, as fast as several callers can.
async fn at_once(house: &House, history: &History, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let mut callers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let channel = house.channel().await?;
            for _ in 0..CALLERS / CONNECTIONS {
                let (channel, conversation) = (channel.clone(), history.conversation.clone());
                callers.spawn(async move { timed(&channel, &conversation, calls(pace)).await });
            }
        }
        let mut latencies = Vec::new();
        while let Some(done) = callers.join_next().await {
            latencies.extend(done??);
        }
        medians.push(percentile(&mut latencies, 0.5));
        tails.push(percentile(&mut latencies, 0.99));
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
    for _ in 0..pace.rounds(ROUNDS) {
        with.push(p50(channel, &swapped, calls(pace)).await?);
        without.push(p50(channel, &plain, calls(pace)).await?);
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
    let mut client = House::messages(channel);
    let rest = (1..TAIL).map(|number| pb::NewMessage {
        role: if number % 2 == 0 { pb::Role::User } else { pb::Role::Assistant }.into(),
        ..user(history::text())
    });
    for messages in [vec![user(first)], rest.collect()] {
        let conversation_id = conversation.clone();
        client.append_messages(pb::AppendMessagesRequest { conversation_id, messages, ..Default::default() }).await?;
    }
    house.settle(channel).await?;
    timed(channel, &conversation, 10).await?;
    Ok(conversation)
}

/// Words of random letters, which no storage compresses to nothing.
fn words(bytes: usize) -> String {
    let mut random = 7_u64;
    let letters = (0..bytes).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let die = (random >> 33) as u8 % 31;
        if die < 26 { char::from(b'a' + die) } else { ' ' }
    });
    letters.collect()
}

/// Median milliseconds of a call.
async fn p50(channel: &Channel, conversation: &str, calls: usize) -> anyhow::Result<f64> {
    Ok(median(&timed(channel, conversation, calls).await?))
}

/// Each call's milliseconds.
async fn timed(channel: &Channel, conversation: &str, calls: usize) -> anyhow::Result<Vec<f64>> {
    let mut client = House::contexts(channel);
    let mut latencies = Vec::with_capacity(calls);
    for _ in 0..calls {
        let ask = pb::BuildContextRequest { conversation_id: conversation.to_owned(), ..Default::default() };
        let before = Instant::now();
        client.build_context(ask).await?;
        latencies.push(before.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(latencies)
}
