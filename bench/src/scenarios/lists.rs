//! ListConversations, one caller: a page of 50 among 100,000 conversations of one user with 100 agents.

use std::time::Instant;

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::transport::Channel;

use crate::{figures::Figures, house::House, latencies::Latencies, pace::Pace};

const RUNS: usize = 5;
const CALLS: u64 = 200;
const CONVERSATIONS: u64 = 100_000;
/// Agents, and beginnings of titles: one in so many conversations has the one that is asked for.
const KINDS: u64 = 100;
/// The agent that is asked for, and the beginning of titles.
const WANTED: u64 = 4;
/// Calls at once while the conversations are made.
const MAKERS: u64 = 16;

pub(crate) async fn measure(house: &House, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    fill(&channel, pace).await?;
    let ask = pb::ListConversationsRequest::default;
    let (user_id, agent_id) = (String::from("anna"), agent(WANTED));
    let both = pb::ListConversationsRequest { user_id: user_id.clone(), agent_id: agent_id.clone(), ..ask() };
    let active = pb::ConversationStatus::Active.into();
    let lists = [
        ("all", ask()),
        ("of the user", pb::ListConversationsRequest { user_id: user_id.clone(), ..ask() }),
        ("of an agent", pb::ListConversationsRequest { agent_id, ..ask() }),
        ("of the user with an agent", both),
        ("of the user, active", pb::ListConversationsRequest { user_id: user_id.clone(), status: active, ..ask() }),
        (
            "of the user, titles of one in 100",
            pb::ListConversationsRequest { user_id, title_prefix: format!("{WANTED} "), ..ask() },
        ),
    ];
    for (name, ask) in lists {
        let (mut first, mut deep) = (Vec::new(), Vec::new());
        let far = tenth_page(&channel, &ask).await?;
        for _ in 0..pace.rounds(RUNS) {
            first.push(run(&channel, &ask, pace).await?);
            deep.push(run(&channel, &far, pace).await?);
        }
        figures.add("lists", format!("{name}, p50"), "ms", first);
        figures.add("lists", format!("{name}, tenth page, p50"), "ms", deep);
    }
    Ok(())
}

fn agent(kind: u64) -> String {
    format!("agent {kind}")
}

async fn fill(channel: &Channel, pace: Pace) -> anyhow::Result<()> {
    let (conversations, kinds) = (pace.number(CONVERSATIONS), pace.number(KINDS));
    let mut tasks = tokio::task::JoinSet::new();
    for maker in 0..MAKERS {
        let mut client = ConversationServiceClient::new(channel.clone());
        tasks.spawn(async move {
            for number in (maker..conversations).step_by(MAKERS as usize) {
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

async fn tenth_page(
    channel: &Channel,
    ask: &pb::ListConversationsRequest,
) -> anyhow::Result<pb::ListConversationsRequest> {
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut ask = ask.clone();
    for _ in 1..10 {
        ask.page_token = client.list_conversations(ask.clone()).await?.into_inner().next_page_token;
    }
    Ok(ask)
}

/// Median milliseconds of a call.
async fn run(channel: &Channel, ask: &pb::ListConversationsRequest, pace: Pace) -> anyhow::Result<f64> {
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut latencies = Latencies::default();
    for _ in 0..pace.number(CALLS) {
        let before = Instant::now();
        let answer = client.list_conversations(ask.clone()).await?.into_inner();
        latencies.record(before.elapsed());
        anyhow::ensure!(answer.conversations.len() == 50, "a page has {} rows", answer.conversations.len());
    }
    Ok(latencies.p50())
}
