//! ResolveSession of sessions that are there: how many a second, how long one takes, how many statements it costs.

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::{Status, transport::Channel};

use crate::{
    figures::Figures,
    house::House,
    load::{Closed, Load},
    pace::Pace,
};

const RUNS: usize = 5;
const SECONDS: f64 = 2.0;
const CALLERS: u64 = 16;
const CONNECTIONS: usize = 4;
/// Sessions that are resolved in turn.
const SESSIONS: usize = 1_000;
/// Resolves whose statements are counted.
const COUNTED: usize = 500;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let house = House::start().await?;
    fill(&house.channel().await?).await?;
    let mut loads = Vec::new();
    for _ in 0..pace.rounds(RUNS) {
        loads.push(run(&house, pace).await?);
    }
    figures.add("resolve", format!("{CALLERS} callers"), "resolves/s", loads.iter().map(Load::rate));
    figures.add("resolve", format!("{CALLERS} callers, p50"), "ms", loads.iter().map(|load| load.latencies.p50()));
    figures.add("resolve", format!("{CALLERS} callers, p99"), "ms", loads.iter().map(|load| load.latencies.p99()));
    house.stop().await?;
    let statements = statements().await?;
    figures.add("resolve", "statements of one", "statements", vec![statements]);
    Ok(())
}

async fn resolve(client: &mut ConversationServiceClient<Channel>, number: usize) -> Result<(), Status> {
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

async fn run(house: &House, pace: Pace) -> anyhow::Result<Load> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(ConversationServiceClient::new(house.channel().await?));
    }
    let how = Closed { callers: CALLERS, warm_up: pace.seconds(0.5), time: pace.seconds(SECONDS) };
    let load = how.run(move |number| {
        let mut client = clients[number as usize % CONNECTIONS].clone();
        async move { resolve(&mut client, number as usize).await }
    });
    load.await?.clean()
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
