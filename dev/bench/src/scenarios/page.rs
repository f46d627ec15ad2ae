//! The page with one caller: the list of conversations, and the X-ray of a long conversation. The
//! times are the server's own, as it names them to browsers.

use std::time::Duration;

use anyhow::Context as _;

use super::lists;
use crate::{
    figures::{Figure, Figures, Target},
    history::{self, Shape},
    latencies::Latencies,
    pace::Pace,
    stack::BenchStack,
};

const RUNS: usize = 5;
const CALLS: u64 = 100;
const CONVERSATIONS: u64 = 10_000;
/// Number of agents of the listed conversations.
const AGENTS: u64 = 100;
const MESSAGES: u64 = 100_000;
/// Messages after the checkpoint of the conversation that has one.
const TAIL: usize = 1_000;
/// The server's time for a page is at most this, in milliseconds, so that a person does not wait.
const TARGET_MS: f64 = 200.0;

pub(crate) async fn measure(pace: Pace, figures: &mut Figures) -> anyhow::Result<()> {
    let stack = BenchStack::start_with("[web]\nenabled = true\n").await?;
    let channel = stack.channel().await?;
    lists::create_conversations(&channel, pace.number(CONVERSATIONS), AGENTS).await?;
    let messages = pace.number(MESSAGES) as usize;
    let mut pages = vec![("list of conversations", "/conversations".to_owned())];
    for (name, tail) in [
        ("X-ray, all messages in the tail", messages),
        ("X-ray, with a checkpoint", TAIL),
    ] {
        let id = history::create(&stack, &channel, Shape { messages, tail }).await?;
        pages.push((name, format!("/conversations/{id}/xray")));
        if tail == TAIL {
            let path = format!("/conversations/{id}/xray/strip");
            pages.push(("messages before the checkpoint in detail", path));
        }
    }
    let browser = reqwest::Client::builder().no_proxy().build()?;
    for (name, path) in pages {
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for _ in 0..pace.rounds(RUNS) {
            let latencies = open_often(&stack, &browser, &path, pace.number(CALLS)).await?;
            p50.push(latencies.p50());
            p99.push(latencies.p99());
        }
        for (share, values) in [("p50", p50), ("p99", p99)] {
            let figure = Figure::new("page", format!("{name}, {share}"), "ms", &values);
            figures.put(figure.with_target(Target::AtMost(TARGET_MS)));
        }
    }
    stack.stop().await
}

/// Opens the page this many times. Returns the times that the server names.
async fn open_often(
    stack: &BenchStack,
    browser: &reqwest::Client,
    path: &str,
    calls: u64,
) -> anyhow::Result<Latencies> {
    let url = format!("http://{}{path}", stack.http_address());
    let mut latencies = Latencies::default();
    for _ in 0..calls {
        let ask = browser
            .get(&url)
            .header("accept", "text/html")
            .header("authorization", stack.credential().authorization()?);
        let answer = ask.send().await?.error_for_status()?;
        let timing = answer.headers().get("server-timing");
        let timing = timing.context("a page names its time")?.to_str()?;
        let milliseconds = timing.strip_prefix("total;dur=");
        let milliseconds: f64 = milliseconds.context("the time is a total")?.parse()?;
        latencies.record(Duration::from_secs_f64(milliseconds / 1_000.0));
        answer.bytes().await?;
    }
    Ok(latencies)
}
