//! ResolveSession for existing sessions: calls per second, latency, and number of SQL statements
//! on sessions per call.

use anneal_proto::v1::{self as pb, conversation_service_client::ConversationServiceClient};
use tonic::Status;

use crate::{
    connection::Channel,
    figures::Figures,
    load::{ClosedLoop, Load},
    pace::Pace,
    stack::BenchStack,
};

const RUNS: usize = 5;
const SECONDS: f64 = 2.0;
const CALLERS: u64 = 16;
const CONNECTIONS: usize = 4;
/// Number of sessions, which are resolved in turn.
const SESSIONS: usize = 1_000;
/// Number of calls whose statements are counted.
const COUNTED_CALLS: usize = 500;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start().await?;
    create_sessions(&stack.channel().await?).await?;
    let mut loads = Vec::new();
    for _ in 0..pace.rounds(RUNS) {
        loads.push(run_load(&stack, pace).await?);
    }
    figures.add(
        "resolve",
        format!("{CALLERS} callers"),
        "resolves/s",
        loads.iter().map(Load::rate),
    );
    figures.add(
        "resolve",
        format!("{CALLERS} callers, p50"),
        "ms",
        loads.iter().map(|load| load.latencies.p50()),
    );
    figures.add(
        "resolve",
        format!("{CALLERS} callers, p99"),
        "ms",
        loads.iter().map(|load| load.latencies.p99()),
    );
    stack.stop().await?;
    let statements = count_statements().await?;
    figures.add(
        "resolve",
        "statements of one",
        "statements",
        vec![statements],
    );
    Ok(())
}

/// Resolves the session with this number, modulo [`SESSIONS`]. The first call for a session creates
/// it.
async fn resolve(
    client: &mut ConversationServiceClient<Channel>,
    number: usize,
) -> Result<(), Status> {
    let scope = pb::SessionScope {
        agent_id: "main".into(),
        channel: "telegram".into(),
        sender_id: format!("person {}", number % SESSIONS),
        ..Default::default()
    };
    client
        .resolve_session(pb::ResolveSessionRequest {
            scope: Some(scope),
            ..Default::default()
        })
        .await?;
    Ok(())
}

async fn create_sessions(channel: &Channel) -> anyhow::Result<()> {
    let mut client = ConversationServiceClient::new(channel.clone());
    for number in 0..SESSIONS {
        resolve(&mut client, number).await?;
    }
    Ok(())
}

async fn run_load(stack: &BenchStack, pace: Pace) -> anyhow::Result<Load> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(ConversationServiceClient::new(stack.channel().await?));
    }
    let closed_loop = ClosedLoop {
        callers: CALLERS,
        warm_up: pace.seconds(0.5),
        time: pace.seconds(SECONDS),
    };
    let load = closed_loop.run(move |number| {
        let mut client = clients[number as usize % CONNECTIONS].clone();
        async move { resolve(&mut client, number as usize).await }
    });
    load.await?.require_success()
}

/// Statements on sessions per call, counted in PostgreSQL's log.
async fn count_statements() -> anyhow::Result<f64> {
    let stack = BenchStack::start_logging().await?;
    let channel = stack.channel().await?;
    let mut client = ConversationServiceClient::new(channel.clone());
    create_sessions(&channel).await?;
    let of_sessions = |statement: &str| statement.contains("ai_session");
    let before = stack.log_end()?;
    for number in 0..COUNTED_CALLS {
        resolve(&mut client, number).await?;
    }
    let statements = stack.statements_since(before, of_sessions)?;
    stack.stop().await?;
    Ok(statements.executed as f64 / COUNTED_CALLS as f64)
}
