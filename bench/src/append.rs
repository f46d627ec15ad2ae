//! Appends of one 400-byte message each, durable, with request ids, as fast as a number of callers can.

use std::time::{Duration, Instant};

use anneal_proto::v1 as pb;

use crate::{
    figures::{Figures, percentile},
    house::{House, user},
};

const RUNS: usize = 5;
const SECONDS: u64 = 4;
const CALLERS: [usize; 2] = [16, 128];
const CONNECTIONS: usize = 4;

pub(crate) async fn measure(house: &House, figures: &mut Figures) -> anyhow::Result<()> {
    let text: String = "The quick brown fox jumps over the lazy dog. ".repeat(9).chars().take(400).collect();
    for callers in CALLERS {
        let (mut rates, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let (rate, mut latencies) = run(house, callers, &text).await?;
            rates.push(rate);
            medians.push(percentile(&mut latencies, 0.5));
            tails.push(percentile(&mut latencies, 0.99));
        }
        figures.add("append", format!("{callers} callers, one message each"), "messages/s", rates);
        figures.add("append", format!("{callers} callers, p50"), "ms", medians);
        figures.add("append", format!("{callers} callers, p99"), "ms", tails);
    }
    house.settle(&house.channel().await?).await
}

/// One run: messages per second, and every call's milliseconds.
async fn run(house: &House, callers: usize, text: &str) -> anyhow::Result<(f64, Vec<f64>)> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(house.channel().await?);
    }
    let started = Instant::now();
    let until = started + Duration::from_secs(SECONDS);
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let channel = channels[caller % CONNECTIONS].clone();
        let conversation_id = house.conversation(&channel, None).await?;
        let text = text.to_owned();
        tasks.spawn(async move {
            let mut client = House::messages(&channel);
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let ask = pb::AppendMessagesRequest {
                    conversation_id: conversation_id.clone(),
                    request_id: format!("{}", latencies.len()),
                    messages: vec![user(text.clone())],
                    expected_last_message_id: None,
                };
                let before = Instant::now();
                client.append_messages(ask).await?;
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
