//! Measures how long contexts take to build and to render: tails of 50, 500 and 5,000 messages of 2
//! kB, without a budget and with a budget of half the tail. Run it with `cargo run --release -p
//! anneal-core --example build`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anneal_core::{
    context::{Ask, Body, CheckpointSummary, Material, SummaryOrigin, TailMessage, build},
    message::{MessageId, Part, Role},
    policy::Policy,
    render::{Format, render},
    tokens::{Encoding, Tokens, count_parts},
};

const ENCODING: Encoding = Encoding::O200kBase;
/// Bytes of each message's text.
const BYTES: usize = 2_000;

fn main() {
    println!(
        "{:<20} {:>8} {:>8} {:>24} {:>24}",
        "format", "messages", "budget", "build p50 / p99 µs", "render p50 / p99 µs"
    );
    for messages in [50, 500, 5_000] {
        let material = material(messages);
        let tokens: u64 = material
            .tail
            .iter()
            .map(|message| message.tokens.get())
            .sum();
        for format in Format::ALL {
            for budget in [None, Some(tokens / 2)] {
                measure(&material, format, budget);
            }
        }
    }
}

/// System prompt, summary, and turns of question, call, result and answer.
fn material(messages: usize) -> Material {
    let line = "The tide comes in at noon, the boat leaves at 12:30 from pier 4. ";
    let text: String = line.chars().cycle().take(BYTES).collect();
    let message = |index: usize| {
        let call_id = format!("call_{}", index / 4);
        let (role, part) = match index % 4 {
            0 => (Role::User, Part::Text { text: text.clone() }),
            1 => {
                let input = format!("{{\"path\":\"{text}\"}}");
                (
                    Role::Assistant,
                    Part::ToolUse {
                        id: call_id,
                        name: "read_file".into(),
                        input,
                    },
                )
            }
            2 => (
                Role::Tool,
                Part::ToolResult {
                    id: call_id,
                    text: text.clone(),
                    is_error: false,
                    media: Vec::new(),
                },
            ),
            _ => (Role::Assistant, Part::Text { text: text.clone() }),
        };
        let parts = vec![part];
        let tokens = count_parts(ENCODING, &parts);
        // The checkpoint covers messages 1 to 10.
        let (id, turn) = (MessageId(index as i64 + 11), (index / 4) as i32 + 1);
        TailMessage {
            id,
            role,
            turn,
            tokens,
            estimated: false,
            body: Body::Original(parts),
            ready_summary: None,
        }
    };
    Material {
        last_message_id: MessageId(messages as i64 + 10),
        last_role: Some(Role::Assistant),
        turn: (messages / 4) as i32,
        encoding: ENCODING,
        policy: Policy::default(),
        system_prompt: "Answer briefly.".into(),
        system_prompt_tokens: Tokens::new(3),
        separator: None,
        checkpoint: Some(CheckpointSummary {
            last: MessageId(10),
            text: text.clone(),
            tokens: Tokens::new(500),
            saved: Tokens::ZERO,
            origin: SummaryOrigin::Stored,
        }),
        tail: (0..messages).map(message).collect(),
        prefix: None,
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        idle_seconds: None,
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    }
}

/// Builds and renders the context many times, and prints the quantiles of both times.
fn measure(material: &Material, format: Format, budget: Option<u64>) {
    let (mut builds, mut renders) = (Vec::new(), Vec::new());
    // The longer the tail, the fewer rounds, so that each line takes about as long.
    let rounds = 200_000 / (material.tail.len() + 150);
    for _ in 0..rounds {
        let material = material.clone();
        let ask = Ask {
            format,
            budget: budget.map(Tokens::new),
            ..Ask::default()
        };
        let start = Instant::now();
        let context = build(material, ask).expect("half of the tail is enough");
        builds.push(start.elapsed());
        let start = Instant::now();
        black_box(render(&context, format));
        renders.push(start.elapsed());
    }
    let budget = budget.map_or_else(|| "none".into(), |budget| budget.to_string());
    let (build, render) = (quantiles(builds), quantiles(renders));
    println!(
        "{:<20} {:>8} {budget:>8} {build:>24} {render:>24}",
        format.name(),
        material.tail.len()
    );
}

/// Median and 99th percentile, in microseconds.
fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    format!("{} / {}", at(50), at(99))
}
