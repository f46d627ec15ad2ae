//! ListConversations with one caller: a page of 50 out of 100,000 conversations of one user with
//! 100 agents.

use std::time::Instant;

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};

use crate::{
    connection::Channel, figures::Figures, latencies::Latencies, pace::Pace, stack::BenchStack,
};

const RUNS: usize = 5;
const CALLS: u64 = 200;
const CONVERSATIONS: u64 = 100_000;
/// Number of agents and of title prefixes. Each of them, including the requested one, occurs in one
/// of this many conversations.
const KINDS: u64 = 100;
/// The number of the agent and of the title prefix that are requested. A quick run has only five of
/// each.
const WANTED: u64 = 4;
/// Number of calls while all conversations have the same age. It is small, because each call then
/// reads all conversations that were active within seconds of its page.
const AT_ONCE_CALLS: u64 = 10;
/// Changes the times of the last activity so that they are a minute apart, as for conversations of
/// a real user.
const SPREAD_ACTIVITY: &str = "
    update ai_conversation as c set last_activity_ts = t.active_ts, listed_ts = t.active_ts
    from (
        select conversation_id, now() - row_number() over (order by conversation_id desc) * interval '1 minute' as active_ts
        from ai_conversation
    ) as t
    where c.conversation_id = t.conversation_id;
    vacuum (analyze) ai_conversation";
/// Concurrent calls while the conversations are created.
const MAKERS: u64 = 16;

pub(crate) async fn measure(
    stack: &BenchStack,
    pace: Pace,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let channel = stack.channel().await?;
    create_conversations(&channel, pace.number(CONVERSATIONS), pace.number(KINDS)).await?;
    let all = pb::ListConversationsRequest::default();
    let mut at_once = Vec::new();
    for _ in 0..pace.rounds(RUNS) {
        at_once.push(median_ms_of(&channel, &all, AT_ONCE_CALLS).await?);
    }
    figures.add(
        "lists",
        "all, when all were made within seconds, p50",
        "ms",
        at_once,
    );
    stack.database()?.run(SPREAD_ACTIVITY).await?;
    let unfiltered = pb::ListConversationsRequest::default;
    let (user_id, agent_id) = (String::from("anna"), agent(WANTED));
    let both = pb::ListConversationsRequest {
        user_id: user_id.clone(),
        agent_id: agent_id.clone(),
        ..unfiltered()
    };
    let active = pb::ConversationStatus::Active.into();
    let lists = [
        ("all", unfiltered()),
        (
            "of the user",
            pb::ListConversationsRequest {
                user_id: user_id.clone(),
                ..unfiltered()
            },
        ),
        (
            "of an agent",
            pb::ListConversationsRequest {
                agent_id,
                ..unfiltered()
            },
        ),
        ("of the user with an agent", both),
        (
            "of the user, active",
            pb::ListConversationsRequest {
                user_id: user_id.clone(),
                status: active,
                ..unfiltered()
            },
        ),
        (
            "of the user, titles of one in 100",
            pb::ListConversationsRequest {
                user_id,
                title_prefix: format!("{WANTED} "),
                ..unfiltered()
            },
        ),
    ];
    for (name, ask) in lists {
        let (mut first, mut tenth) = (Vec::new(), Vec::new());
        let tenth_ask = tenth_page(&channel, &ask).await?;
        for _ in 0..pace.rounds(RUNS) {
            first.push(median_ms(&channel, &ask, pace).await?);
            tenth.push(median_ms(&channel, &tenth_ask, pace).await?);
        }
        figures.add("lists", format!("{name}, p50"), "ms", first);
        figures.add("lists", format!("{name}, tenth page, p50"), "ms", tenth);
    }
    Ok(())
}

fn agent(kind: u64) -> String {
    format!("agent {kind}")
}

/// Creates this many conversations of one user, with so many agents and prefixes of titles.
pub(super) async fn create_conversations(
    channel: &Channel,
    conversations: u64,
    kinds: u64,
) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for maker in 0..MAKERS {
        let mut client = ConversationServiceClient::new(channel.clone());
        tasks.spawn(async move {
            for number in (maker..conversations).step_by(MAKERS as usize) {
                // Divided by three, so that an agent does not always occur with the same title.
                let ask = pb::CreateConversationRequest {
                    user_id: "anna".into(),
                    agent_id: agent(number / 3 % kinds),
                    title: format!("{} is its number", number % kinds),
                    ..Default::default()
                };
                client.create_conversation(ask).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// The request for the tenth page.
async fn tenth_page(
    channel: &Channel,
    ask: &pb::ListConversationsRequest,
) -> anyhow::Result<pb::ListConversationsRequest> {
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut ask = ask.clone();
    for _ in 1..10 {
        ask.page_token = client
            .list_conversations(ask.clone())
            .await?
            .into_inner()
            .next_page_token;
    }
    Ok(ask)
}

/// Median milliseconds of the calls of one round.
async fn median_ms(
    channel: &Channel,
    ask: &pb::ListConversationsRequest,
    pace: Pace,
) -> anyhow::Result<f64> {
    median_ms_of(channel, ask, pace.number(CALLS)).await
}

/// Median milliseconds of this many calls.
async fn median_ms_of(
    channel: &Channel,
    ask: &pb::ListConversationsRequest,
    calls: u64,
) -> anyhow::Result<f64> {
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut latencies = Latencies::default();
    for _ in 0..calls {
        let before = Instant::now();
        let answer = client.list_conversations(ask.clone()).await?.into_inner();
        latencies.record(before.elapsed());
        anyhow::ensure!(
            answer.conversations.len() == 50,
            "a page has {} rows",
            answer.conversations.len()
        );
    }
    Ok(latencies.p50())
}
