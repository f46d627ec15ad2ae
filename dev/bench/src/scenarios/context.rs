//! BuildContext, measured in three ways:
//!
//! - With histories of different lengths before a tail of 50 messages, compared with the bare
//!   SELECT of that tail.
//! - With a cooled message of 4 MB in the tail, compared with a tail that has a message as short as
//!   its summary instead.
//! - With the whole history as the tail.

use std::time::Instant;

use anneal_proto::{
    convert::message::text_message,
    v1::{self as pb, part::Part},
};
use anyhow::Context as _;
use tokio::task::JoinSet;

use crate::{
    connection::Channel,
    conversations,
    figures::{Figure, Figures, Target, median},
    history::{self, Shape},
    latencies::Latencies,
    pace::{Pace, alternate},
    stack::{BenchStack, user},
};

/// Rounds of the comparisons. In each round, every side is measured once.
const ROUNDS: usize = 11;
/// Rounds of the figures that are not compared with anything.
const ALONE_ROUNDS: usize = 5;
/// Calls of a caller in a round; a tenth of them if the whole history is the tail.
const CALLS: u64 = 200;
/// Messages of a tail.
const TAIL: usize = 50;
/// Messages of the histories that end with such a tail.
const HISTORIES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Messages of the histories whose tail is the whole history.
const WHOLE_TAILS: [usize; 2] = [100, 10_000];
/// Concurrent callers of one conversation.
const CALLERS: usize = 16;
const CONNECTIONS: usize = 4;
/// Bytes of the large message.
const LARGE_BYTES: usize = 4_000_000;

pub(crate) async fn measure(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    measure_by_history(stack, &channel, pace, figures).await?;
    measure_cooled_message(stack, &channel, pace, figures).await?;
    for messages in WHOLE_TAILS {
        let shape = Shape {
            messages,
            tail: messages,
        };
        let conversation = history::create(stack, &channel, shape).await?;
        let mut medians = Vec::new();
        for _ in 0..pace.rounds(ALONE_ROUNDS) {
            medians.push(
                time_contexts(&channel, &conversation, pace.number(CALLS / 10))
                    .await?
                    .p50(),
            );
        }
        figures.add(
            "context",
            format!("{messages} messages, all of it as tail, p50"),
            "ms",
            medians,
        );
    }
    Ok(())
}

/// A history, and the medians of its rounds in milliseconds.
struct History {
    messages: usize,
    conversation: String,
    /// Medians of BuildContext.
    context: Vec<f64>,
    /// Medians of the bare SELECT of the tail. Empty without pgbench.
    bare: Vec<f64>,
}

async fn measure_by_history(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let lengths = if pace.is_quick() {
        &HISTORIES[..2]
    } else {
        &HISTORIES[..]
    };
    let database = stack.database()?;
    let mut histories = Vec::new();
    for &messages in lengths {
        let conversation = history::create(
            stack,
            channel,
            Shape {
                messages,
                tail: TAIL,
            },
        )
        .await?;
        // The first context records a version of its beginning; later ones write nothing.
        time_contexts(channel, &conversation, 10).await?;
        histories.push(History {
            messages,
            conversation,
            context: Vec::new(),
            bare: Vec::new(),
        });
    }
    database.run("vacuum (analyze); checkpoint").await?;
    for round in 0..pace.rounds(ROUNDS) {
        for place in 0..histories.len() {
            // A different history comes first in each round.
            let history = &mut histories[(round + place) % lengths.len()];
            history.context.push(
                time_contexts(channel, &history.conversation, pace.number(CALLS))
                    .await?
                    .p50(),
            );
            let tail = format!(
                "select message_id, role, content from ai_message
                 where conversation_id = '{}' and message_id > {} order by message_id;",
                history.conversation,
                history.messages - TAIL
            );
            let bare = database
                .time_statement(&tail, pace.number(CALLS) as usize)
                .await?;
            history.bare.extend(bare.map(|bare| median(&bare)));
        }
    }
    report(&histories, figures);
    let shortest = &histories[0];
    for history in [shortest, &histories[histories.len() - 1]] {
        measure_concurrent(stack, history, pace, figures).await?;
    }
    Ok(())
}

/// Compares each history with the shortest, and with the SELECT of its tail.
fn report(histories: &[History], figures: &mut Figures) {
    let shortest = &histories[0];
    for (
        place,
        History {
            messages,
            context,
            bare,
            ..
        },
    ) in histories.iter().enumerate()
    {
        let by_length = Figure::new(
            "context",
            format!("history of {messages}, tail of {TAIL}, p50"),
            "ms",
            context,
        );
        figures.put(if place == 0 {
            by_length
        } else {
            let baseline = format!("history of {}", shortest.messages);
            by_length
                .with_baseline(baseline, context, &shortest.context)
                .with_target(Target::RatioAtMost(1.1))
        });
        if bare.len() == context.len() {
            let name = format!("history of {messages}, tail of {TAIL}, p50 beside its SELECT");
            let figure = Figure::new("context", name, "ms", context).with_baseline(
                "the bare SELECT of the tail",
                context,
                bare,
            );
            figures.put(figure.with_target(Target::RatioAtMost(5.5)));
        }
    }
}

/// Contexts of one conversation, requested by several callers as fast as they can.
async fn measure_concurrent(
    stack: &BenchStack,
    history: &History,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(stack.channel().await?);
    }
    let (mut rates, mut medians, mut p99s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pace.rounds(ALONE_ROUNDS) {
        let mut callers = JoinSet::new();
        let before = Instant::now();
        for channel in channels.iter().cycle().take(CALLERS) {
            let (channel, conversation) = (channel.clone(), history.conversation.clone());
            callers.spawn(async move {
                time_contexts(&channel, &conversation, pace.number(CALLS)).await
            });
        }
        let mut latencies = Latencies::default();
        while let Some(done) = callers.join_next().await {
            latencies.add(&done??);
        }
        rates.push(latencies.count() as f64 / before.elapsed().as_secs_f64());
        medians.push(latencies.p50());
        p99s.push(latencies.p99());
    }
    let name = format!(
        "history of {}, tail of {TAIL}, {CALLERS} callers",
        history.messages
    );
    figures.add("context", name.as_str(), "contexts/s", rates);
    figures.add("context", format!("{name}, p50"), "ms", medians);
    figures.add("context", format!("{name}, p99"), "ms", p99s);
    Ok(())
}

/// A tail whose first message has 4 MB and has cooled, compared with a tail whose first message has
/// the same text as that message's summary.
async fn measure_cooled_message(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let swapped = create_tail(stack, channel, words(LARGE_BYTES)).await?;
    let ask = pb::BuildContextRequest {
        conversation_id: swapped.clone(),
        ..Default::default()
    };
    let context = BenchStack::context_client(channel)
        .build_context(ask)
        .await?
        .into_inner();
    let first = context
        .messages
        .into_iter()
        .next()
        .context("the context's first message")?;
    let Some(Part::Text(pb::TextPart { text: summary })) =
        first.parts.into_iter().next().and_then(|part| part.part)
    else {
        anyhow::bail!("the context does not begin with a text");
    };
    anyhow::ensure!(
        summary.len() < LARGE_BYTES / 100,
        "the large message is sent with {} bytes",
        summary.len()
    );
    let plain = create_tail(stack, channel, summary).await?;
    stack
        .database()?
        .run("vacuum (analyze); checkpoint")
        .await?;
    let (mut swapped_medians, mut plain_medians) = (Vec::new(), Vec::new());
    for round in 0..pace.rounds(ROUNDS) {
        for (conversation, medians) in alternate(
            round,
            [
                (&swapped, &mut swapped_medians),
                (&plain, &mut plain_medians),
            ],
        ) {
            medians.push(
                time_contexts(channel, conversation, pace.number(CALLS))
                    .await?
                    .p50(),
            );
        }
    }
    let figure = Figure::new(
        "context",
        format!("tail of {TAIL} with a cooled message of 4 MB, p50"),
        "ms",
        &swapped_medians,
    );
    let figure = figure.with_baseline(
        "a message of its summary's size in its place",
        &swapped_medians,
        &plain_medians,
    );
    figures.put(figure.with_target(Target::RatioAtMost(1.05)));
    Ok(())
}

/// Creates a conversation of 50 messages that begins with this text, waits until it is counted and,
/// if the first message is large, summarized. Then builds ten contexts: only the first one writes.
async fn create_tail(
    stack: &BenchStack,
    channel: &Channel,
    first: String,
) -> anyhow::Result<String> {
    let policy = pb::Policy {
        large_message_threshold: Some(1_000),
        hot_zone_radius: Some(1),
        max_message_count: Some(0),
        token_threshold: Some(1_000_000_000),
        ..Default::default()
    };
    let conversation = stack.create_conversation(channel, Some(policy)).await?;
    let rest = (1..TAIL).map(|number| {
        let role = if number % 2 == 0 {
            pb::Role::User
        } else {
            pb::Role::Assistant
        };
        text_message(role, conversations::text())
    });
    for messages in [vec![user(first)], rest.collect()] {
        conversations::append(channel, &conversation, messages).await?;
    }
    stack.wait_until_idle(channel).await?;
    time_contexts(channel, &conversation, 10).await?;
    Ok(conversation)
}

/// Words of random letters, which do not compress well in the database.
fn words(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    (0..bytes)
        .map(|_| {
            if random.u8(..31) < 26 {
                random.lowercase()
            } else {
                ' '
            }
        })
        .collect()
}

/// Latencies of BuildContext calls that are made one after the other.
pub(super) async fn time_contexts(
    channel: &Channel,
    conversation: &str,
    calls: u64,
) -> anyhow::Result<Latencies> {
    let mut client = BenchStack::context_client(channel);
    let mut latencies = Latencies::default();
    for _ in 0..calls {
        let ask = pb::BuildContextRequest {
            conversation_id: conversation.to_owned(),
            ..Default::default()
        };
        let before = Instant::now();
        client.build_context(ask).await?;
        latencies.record(before.elapsed());
    }
    Ok(latencies)
}
