//! The time from the start of a process until it works. A server works when its gRPC health service
//! reports SERVING, a worker when it looks for jobs. Each is started ten times on a migrated
//! database. The size of the binary is reported too.

use std::time::{Duration, Instant};

use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    figures::{Figure, Figures, Target},
    pace::Pace,
    processes::Process,
    stack::BenchStack,
};

const RUNS: usize = 10;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stack = BenchStack::start().await?;
    stack.stop_worker().await?;
    let (mut servers, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..pace.rounds(RUNS) {
        servers.push(time_server_start(&stack).await?);
        workers.push(time_worker_start(&stack).await?);
    }
    let server = Figure::new("start", "server, process to SERVING", "ms", &servers);
    figures.put(server.with_target(Target::AtMost(300.0)));
    figures.add(
        "start",
        "worker, process to its first look for jobs",
        "ms",
        workers,
    );
    let binary = std::fs::metadata(stack.anneal()?.as_std().get_program())?.len();
    figures.add(
        "start",
        "size of the binary",
        "MiB",
        [binary as f64 / f64::from(1 << 20)],
    );
    stack.stop().await
}

async fn time_server_start(stack: &BenchStack) -> anyhow::Result<f64> {
    let before = Instant::now();
    let server = Process::start_server(stack).await?;
    let mut health = HealthClient::new(server.channel().await?);
    loop {
        let answer = health
            .check(HealthCheckRequest {
                service: String::new(),
            })
            .await?
            .into_inner();
        if answer.status() == ServingStatus::Serving {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let milliseconds = before.elapsed().as_secs_f64() * 1_000.0;
    server.stop().await?;
    Ok(milliseconds)
}

async fn time_worker_start(stack: &BenchStack) -> anyhow::Result<f64> {
    let before = Instant::now();
    // Returns when the worker looks for jobs for the first time.
    let worker = Process::start_worker(stack).await?;
    let milliseconds = before.elapsed().as_secs_f64() * 1_000.0;
    worker.stop().await?;
    Ok(milliseconds)
}
