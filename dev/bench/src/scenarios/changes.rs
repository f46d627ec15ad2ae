//! Changes of messages: contexts whose tail has withdrawn messages, compared with one that has
//! none; and how long WithdrawMessages, RestoreMessages and EditMessage take.

use std::time::{Duration, Instant};

use anneal_proto::v1 as pb;
use tonic::Request;

use crate::{
    connection::Channel,
    conversations,
    figures::{Figure, Figures},
    history::{self, Shape},
    latencies::Latencies,
    pace::Pace,
    scenarios::context::time_contexts,
    stack::{BenchStack, user},
};

/// Rounds of the contexts. In each round, every tail is measured once.
const CONTEXT_ROUNDS: usize = 11;
/// Contexts of a tail in a round.
const CONTEXTS: u64 = 200;
/// Messages of a tail that stand.
const STANDING: usize = 50;
/// Withdrawn messages of the tails, before those that stand.
const WITHDRAWN: [usize; 3] = [0, 10, 1_000];
/// Rounds of the changes.
const ROUNDS: usize = 5;
/// Messages of the conversation that is changed. The newest of them are changed.
const MESSAGES: u64 = 20_000;
/// Those after the newest checkpoint: more than are changed at once.
const TAIL: u64 = 10_050;
/// Messages that are withdrawn, and restored, at once, and how often in a round.
const CHANGES: [(u64, u64); 3] = [(1, 20), (100, 10), (10_000, 1)];
/// Edits in a round.
const EDITS: u64 = 20;
/// Longest time of a call: the server's longest deadline.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn measure(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    measure_contexts(stack, &channel, pace, figures).await?;
    measure_changes(stack, &channel, pace, figures).await
}

/// A conversation that is nothing but its tail, and the medians of its rounds in milliseconds.
struct Tail {
    withdrawn: usize,
    conversation: String,
    medians: Vec<f64>,
}

/// Contexts of as many messages, with different numbers of withdrawn messages before them.
async fn measure_contexts(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut tails = Vec::new();
    for withdrawn in WITHDRAWN {
        let messages = STANDING + withdrawn;
        let shape = Shape {
            messages,
            tail: messages,
        };
        let conversation = history::create(stack, channel, shape).await?;
        if withdrawn > 0 {
            let range = pb::IdRange {
                first_message_id: 1,
                last_message_id: withdrawn as i64,
            };
            withdraw(channel, &conversation, range).await?;
        }
        // The first context records a version of its beginning; later ones write nothing.
        time_contexts(channel, &conversation, 10).await?;
        tails.push(Tail {
            withdrawn,
            conversation,
            medians: Vec::new(),
        });
    }
    let database = stack.database()?;
    database.run("vacuum (analyze); checkpoint").await?;
    for round in 0..pace.rounds(CONTEXT_ROUNDS) {
        for place in 0..tails.len() {
            // A different tail comes first in each round.
            let tail = &mut tails[(round + place) % WITHDRAWN.len()];
            let latencies =
                time_contexts(channel, &tail.conversation, pace.number(CONTEXTS)).await?;
            tail.medians.push(latencies.p50());
        }
    }
    let none_withdrawn = &tails[0].medians;
    for (place, tail) in tails.iter().enumerate() {
        let name = format!(
            "context, tail of {STANDING} and {} withdrawn messages, p50",
            tail.withdrawn
        );
        let figure = Figure::new("changes", name, "ms", &tail.medians);
        figures.put(if place == 0 {
            figure
        } else {
            figure.with_baseline("without withdrawn messages", &tail.medians, none_withdrawn)
        });
    }
    Ok(())
}

/// Withdraws and restores the newest messages of a conversation, and edits one of them.
async fn measure_changes(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let newest = pace.number(MESSAGES);
    let shape = Shape {
        messages: newest as usize,
        tail: pace.number(TAIL) as usize,
    };
    let conversation = history::create(stack, channel, shape).await?;
    let newest = newest as i64;
    for (messages, calls) in CHANGES {
        let (messages, calls) = (pace.number(messages), pace.number(calls));
        let range = pb::IdRange {
            first_message_id: newest - messages as i64 + 1,
            last_message_id: newest,
        };
        let (mut withdrawals, mut restorations) = (Vec::new(), Vec::new());
        for _ in 0..pace.rounds(ROUNDS) {
            settle(stack, channel).await?;
            let times = time_changes(channel, &conversation, range, calls).await?;
            withdrawals.push(times.withdrawal.p50());
            restorations.push(times.restoration.p50());
        }
        let plural = if messages == 1 { "" } else { "s" };
        let name = format!("withdrawal of {messages} message{plural}, p50");
        figures.add("changes", name, "ms", withdrawals);
        let name = format!("restoration of {messages} message{plural}, p50");
        figures.add("changes", name, "ms", restorations);
    }
    let mut medians = Vec::new();
    for round in 0..pace.rounds(ROUNDS) {
        settle(stack, channel).await?;
        // The newest message of a user: messages of users have odd ids.
        let latencies = time_edits(channel, &conversation, newest - 1, (round, pace)).await?;
        medians.push(latencies.p50());
    }
    figures.add("changes", "edit of one message, p50", "ms", medians);
    Ok(())
}

/// Waits for the jobs that earlier changes have caused, and removes the row versions that they have
/// left.
async fn settle(stack: &BenchStack, channel: &Channel) -> anyhow::Result<()> {
    stack.wait_until_idle(channel).await?;
    stack.database()?.run("vacuum (analyze)").await.map(drop)
}

/// Latencies of calls that are made in turn.
#[derive(Default)]
struct ChangeTimes {
    withdrawal: Latencies,
    restoration: Latencies,
}

/// Withdraws the messages and restores them, this many times.
async fn time_changes(
    channel: &Channel,
    conversation: &str,
    range: pb::IdRange,
    calls: u64,
) -> anyhow::Result<ChangeTimes> {
    let mut client = BenchStack::message_client(channel);
    let mut times = ChangeTimes::default();
    for _ in 0..calls {
        times
            .withdrawal
            .record(withdraw(channel, conversation, range).await?);
        let mut ask = Request::new(pb::RestoreMessagesRequest {
            conversation_id: conversation.to_owned(),
            range: Some(range),
            ..Default::default()
        });
        ask.set_timeout(TIMEOUT);
        let before = Instant::now();
        let change = client.restore_messages(ask).await?.into_inner();
        times.restoration.record(before.elapsed());
        let left = change.withdrawn_messages;
        anyhow::ensure!(left == 0, "{left} messages are still withdrawn");
    }
    Ok(times)
}

/// Withdraws messages of a conversation in which all messages stand. Returns how long it took.
async fn withdraw(
    channel: &Channel,
    conversation: &str,
    range: pb::IdRange,
) -> anyhow::Result<Duration> {
    let mut ask = Request::new(pb::WithdrawMessagesRequest {
        conversation_id: conversation.to_owned(),
        range: Some(range),
        ..Default::default()
    });
    ask.set_timeout(TIMEOUT);
    let before = Instant::now();
    let change = BenchStack::message_client(channel)
        .withdraw_messages(ask)
        .await?
        .into_inner();
    let took = before.elapsed();
    let (withdrawn, wanted) = (
        change.withdrawn_messages,
        range.last_message_id - range.first_message_id + 1,
    );
    anyhow::ensure!(
        withdrawn == wanted,
        "{withdrawn} messages are withdrawn, not {wanted}"
    );
    Ok(took)
}

/// Edits a user's message, each time with another text of 400 bytes.
async fn time_edits(
    channel: &Channel,
    conversation: &str,
    message_id: i64,
    (round, pace): (usize, Pace),
) -> anyhow::Result<Latencies> {
    let mut client = BenchStack::message_client(channel);
    let mut latencies = Latencies::default();
    for number in 0..pace.number(EDITS) {
        let mut text = format!("Text {number} of round {round}. {}", conversations::text());
        text.truncate(conversations::text().len());
        let ask = pb::EditMessageRequest {
            conversation_id: conversation.to_owned(),
            message_id,
            message: Some(user(text)),
            ..Default::default()
        };
        let before = Instant::now();
        let change = client.edit_message(ask).await?.into_inner();
        latencies.record(before.elapsed());
        anyhow::ensure!(change.change_id > 0, "the edit has changed nothing");
    }
    Ok(latencies)
}
