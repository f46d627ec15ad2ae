//! ResolveSession of sessions that are there: how many a second, how long one takes, how many statements it costs.

use std::time::{Duration, Instant};

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::transport::Channel;

use crate::{
    figures::{Figures, percentile},
    house::House,
};

const RUNS: usize = 5;
const SECONDS: u64 = 4;
const CALLERS: usize = 16;
const CONNECTIONS: usize = 4;
/// Sessions that are resolved in turn.
const SESSIONS: usize = 1_000;
/// Resolves whose statements are counted.
const COUNTED: usize = 500;

pub(crate) async fn measure(figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start().await?;
    fill(&house.channel().await?).await?;
    let (mut rates, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (rate, mut latencies) = run(&house).await?;
        rates.push(rate);
        medians.push(percentile(&mut latencies, 0.5));
        tails.push(percentile(&mut latencies, 0.99));
    }
    figures.add("resolve", format!("{CALLERS} callers"), "resolves/s", rates);
    figures.add("resolve", format!("{CALLERS} callers, p50"), "ms", medians);
    figures.add("resolve", format!("{CALLERS} callers, p99"), "ms", tails);
    house.stop().await?;
    let statements = statements().await?;
    figures.add("resolve", "statements of one", "statements", vec![statements]);
    Ok(())
}

async fn resolve(client: &mut ConversationServiceClient<Channel>, number: usize) -> anyhow::Result<()> {
    let scope = pb::SessionScope {
        agent_id: "main".into(),
        channel: "telegram".into(),
        sender_id: format!("person {}", number % SESSIONS),
        ..Default::default()
    };
    client.resolve_session(pb::ResolveSessionRequest { scope: Some(scope), ..Default::default() }).await?;
    Ok(())
}

async fn fill(channel: &Channel) -> anyhow::Result<()> {
    let mut client = ConversationServiceClient::new(channel.clone());
    for number in 0..SESSIONS {
        resolve(&mut client, number).await?;
    }
    Ok(())
}

/// One run: resolves per second, and every call's milliseconds.
async fn run(house: &House) -> anyhow::Result<(f64, Vec<f64>)> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(house.channel().await?);
    }
    let started = Instant::now();
    let until = started + Duration::from_secs(SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = ConversationServiceClient::new(channels[caller % CONNECTIONS].clone());
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let before = Instant::now();
                resolve(&mut client, caller + latencies.len() * CALLERS).await?;
                latencies.push(before.elapsed().as_secs_f64() * 1_000.0);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    Ok((latencies.len() as f64 / started.elapsed().as_secs_f64(), latencies))
}

/// Statements that one resolve takes, as PostgreSQL's log has them.
async fn statements() -> anyhow::Result<f64> {
    let house = House::start_logging().await?;
    let channel = house.channel().await?;
    let mut client = ConversationServiceClient::new(channel.clone());
    fill(&channel).await?;
    let of_sessions = |statement: &str| statement.contains("ai_session");
    let before = house.statements(of_sessions)?;
    for number in 0..COUNTED {
        resolve(&mut client, number).await?;
    }
    let ran = house.statements(of_sessions)? - before;
    house.stop().await?;
    Ok(ran as f64 / COUNTED as f64)
}
