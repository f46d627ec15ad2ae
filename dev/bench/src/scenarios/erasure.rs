//! EraseUser, from the call to the receipt, of a user with 10,000 messages in 100 conversations;
//! and EraseMessages of 100 messages.

use std::time::{Duration, Instant};

use anneal_proto::v1::{
    self as pb, conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient,
};

use crate::{
    connection::Channel,
    conversations::{self, dialogue, never_compacted},
    figures::Figures,
    history::{self, Shape},
    latencies::Latencies,
    pace::Pace,
    stack::BenchStack,
};

const ROUNDS: usize = 5;
/// Conversations of the erased user.
const CONVERSATIONS: u64 = 100;
/// Messages of each of them.
const MESSAGES: usize = 100;
/// Polling interval for the receipt: the resolution of the figure.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Messages of the conversation whose messages are erased by EraseMessages, the newest first.
const HISTORY: u64 = 10_000;
/// Messages that one EraseMessages erases.
const ERASED_MESSAGES: i64 = 100;
/// Calls of EraseMessages in a round.
const CALLS: u64 = 10;

pub(crate) async fn measure(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    measure_user(stack, &channel, pace, figures).await?;
    measure_messages(stack, &channel, pace, figures).await
}

async fn measure_user(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let conversations = pace.number(CONVERSATIONS);
    let (mut seconds, mut rates) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    for round in 0..pace.rounds(ROUNDS) {
        let user_id = format!("user {round}");
        for _ in 0..conversations {
            create_conversation(channel, &user_id).await?;
        }
        stack.wait_until_idle(channel).await?;
        let before = Instant::now();
        let receipt = erase_user(channel, user_id).await?;
        let elapsed = before.elapsed().as_secs_f64();
        let erased = (receipt.erased_conversations, receipt.erased_messages);
        let wanted = (conversations as i64, conversations as i64 * MESSAGES as i64);
        anyhow::ensure!(
            erased == wanted,
            "{erased:?} conversations and messages were erased, not {wanted:?}"
        );
        let erased_rows = receipt.rows.values().sum::<i64>() as f64;
        seconds.push(elapsed);
        rows.push(erased_rows);
        rates.push(erased_rows / elapsed);
    }
    let name = format!(
        "user with {} messages in {conversations} conversations",
        conversations * MESSAGES as u64
    );
    figures.add(
        "erasure",
        format!("{name}, until the receipt"),
        "s",
        seconds,
    );
    figures.add("erasure", format!("{name}, by the receipt"), "rows", rows);
    figures.add("erasure", name, "rows/s", rates);
    Ok(())
}

/// Creates a conversation of the user, with all of its messages.
async fn create_conversation(channel: &Channel, user_id: &str) -> anyhow::Result<()> {
    let ask = pb::CreateConversationRequest {
        user_id: user_id.to_owned(),
        policy: Some(never_compacted()),
        ..Default::default()
    };
    let created = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await?
        .into_inner();
    conversations::append(channel, &created.conversation_id, dialogue(MESSAGES)).await?;
    Ok(())
}

/// Has the user erased, and returns the receipt.
async fn erase_user(channel: &Channel, user_id: String) -> anyhow::Result<pb::Erasure> {
    let mut client = ErasureServiceClient::new(channel.clone());
    let ask = pb::EraseUserRequest {
        user_id,
        ..Default::default()
    };
    let mut erasure = client.erase_user(ask).await?.into_inner();
    while erasure.state() != pb::ErasureState::Done {
        tokio::time::sleep(POLL_INTERVAL).await;
        let ask = pb::GetErasureRequest {
            erasure_id: erasure.erasure_id,
        };
        erasure = client.get_erasure(ask).await?.into_inner();
    }
    Ok(erasure)
}

/// Erases messages of one conversation that stand, the newest first.
async fn measure_messages(
    stack: &BenchStack,
    channel: &Channel,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let messages = pace.number(HISTORY) as usize;
    let shape = Shape {
        messages,
        tail: messages,
    };
    let conversation = history::create(stack, channel, shape).await?;
    let mut client = BenchStack::message_client(channel);
    let (mut last, mut medians) = (messages as i64, Vec::new());
    for _ in 0..pace.rounds(ROUNDS) {
        stack.wait_until_idle(channel).await?;
        let mut latencies = Latencies::default();
        for _ in 0..pace.number(CALLS) {
            let ask = pb::EraseMessagesRequest {
                conversation_id: conversation.clone(),
                range: Some(pb::IdRange {
                    first_message_id: last - ERASED_MESSAGES + 1,
                    last_message_id: last,
                }),
                ..Default::default()
            };
            let before = Instant::now();
            let change = client.erase_messages(ask).await?.into_inner();
            latencies.record(before.elapsed());
            anyhow::ensure!(!change.erasure_id.is_empty(), "nothing was erased");
            last -= ERASED_MESSAGES;
        }
        medians.push(latencies.p50());
    }
    let name = format!("{ERASED_MESSAGES} messages of a conversation, p50");
    figures.add("erasure", name, "ms", medians);
    Ok(())
}
