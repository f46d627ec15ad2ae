//! ListConversations, one caller: a page of 50 among 100,000 conversations of one user with 100 agents.

use std::time::Instant;

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::transport::Channel;

use crate::{figures::Figures, house::House, latencies::Latencies, pace::Pace};

const RUNS: usize = 5;
const CALLS: usize = 200;
const CONVERSATIONS: usize = 100_000;
const AGENTS: usize = 100;
/// Calls at once while the conversations are made.
const MAKERS: usize = 16;

pub(crate) async fn measure(house: &House, pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let channel = house.channel().await?;
    fill(&channel).await?;
    let ask = pb::ListConversationsRequest::default;
    let (user_id, agent_id) = (String::from("anna"), agent(7));
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
            pb::ListConversationsRequest { user_id, title_prefix: "7 ".into(), ..ask() },
        ),
    ];
    for (name, ask) in lists {
        let (mut first, mut deep) = (Vec::new(), Vec::new());
        let far = tenth_page(&channel, &ask).await?;
        for _ in 0..pace.rounds(RUNS) {
            first.push(run(&channel, &ask).await?);
            deep.push(run(&channel, &far).await?);
        }
        figures.add("lists", format!("{name}, p50"), "ms", first);
        figures.add("lists", format!("{name}, tenth page, p50"), "ms", deep);
    }
    Ok(())
}

fn agent(number: usize) -> String {
    format!("agent {}", number % AGENTS)
}

async fn fill(channel: &Channel) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for maker in 0..MAKERS {
        let mut client = ConversationServiceClient::new(channel.clone());
        tasks.spawn(async move {
            for number in (maker..CONVERSATIONS).step_by(MAKERS) {
                let ask = pb::CreateConversationRequest {
                    user_id: "anna".into(),
                    agent_id: agent(number / 3),
                    title: format!("{} is its number", number % 100),
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
async fn run(channel: &Channel, ask: &pb::ListConversationsRequest) -> anyhow::Result<f64> {
    let mut client = ConversationServiceClient::new(channel.clone());
    let mut latencies = Latencies::default();
    for _ in 0..CALLS {
        let before = Instant::now();
        let page = client.list_conversations(ask.clone()).await?.into_inner();
        latencies.record(before.elapsed());
        anyhow::ensure!(page.conversations.len() == 50, "a page has {} rows", page.conversations.len());
    }
    Ok(latencies.p50())
}
