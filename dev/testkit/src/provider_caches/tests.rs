//! The caches, against the examples of their pages.

use serde_json::{Value, json};

use super::{
    BilledCall, MarkFault, Refresh,
    anthropic::AnthropicCache,
    gemini::GeminiCache,
    openai::OpenAiCache,
    prefix::{PrefixReader, TextCounts},
    request_json::Refusal,
};
use crate::prose;

/// A model whose cache needs 512 tokens.
const CLAUDE: &str = "claude-opus-5";
/// Tokens that a message has beside its content.
const FRAMING: u64 = 4;

fn tokens(text: &str) -> u64 {
    let mut counts = TextCounts::default();
    let mut reader = PrefixReader::new(&mut counts);
    reader.count_text(text);
    reader.prefix().tokens
}

/// The caches of the three providers, with a clock.
#[derive(Default)]
struct Caches {
    anthropic: AnthropicCache,
    openai: OpenAiCache,
    gemini: GeminiCache,
    counts: TextCounts,
    now: u64,
    switches: (Refresh, MarkFault),
}

impl Caches {
    fn anthropic(&mut self, body: &Value) -> Result<BilledCall, Refusal> {
        let json = body.to_string();
        self.anthropic
            .bill(&json, self.now, self.switches, &mut self.counts)
    }

    fn openai(&mut self, body: &Value) -> Result<BilledCall, Refusal> {
        let json = body.to_string();
        self.openai
            .bill(&json, self.now, self.switches, &mut self.counts)
    }

    fn gemini(&mut self, model: &str, body: &Value) -> Result<BilledCall, Refusal> {
        let path = format!("/v1/models/{model}:streamGenerateContent?alt=sse");
        let json = body.to_string();
        self.gemini.bill((&path, &json), self.now, &mut self.counts)
    }

    /// A request to Anthropic of these blocks, in one message of the user.
    fn blocks(&mut self, blocks: &[Value]) -> BilledCall {
        self.anthropic(&of_blocks(CLAUDE, blocks))
            .expect("the request is accepted")
    }
}

fn of_blocks(model: &str, blocks: &[Value]) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": blocks}]})
}

/// Block number `n`, of about 220 tokens.
fn block(n: usize) -> Value {
    json!({"type": "text", "text": prose(n * 10, 10)})
}

fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

fn marked_for_an_hour(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    block
}

/// Blocks 1 to `count`, of which these are marked.
fn blocks_with_marks(count: usize, marks: &[usize]) -> Vec<Value> {
    let one = |n| {
        if marks.contains(&n) {
            marked(block(n))
        } else {
            block(n)
        }
    };
    (1..=count).map(one).collect()
}

/// Tokens of blocks 1 to `count`.
fn tokens_of_blocks(count: usize) -> u64 {
    (1..=count)
        .map(|n| tokens(&prose(n * 10, 10)) + FRAMING)
        .sum()
}

#[test]
fn a_mark_finds_what_was_written_among_the_twenty_blocks_that_end_with_it() {
    // The page's example of a growing conversation: 10, 15 and 35 blocks.
    let mut caches = Caches::default();
    let first = caches.blocks(&blocks_with_marks(10, &[10]));
    assert_eq!((first.cached, first.written), (0, tokens_of_blocks(10)));
    let second = caches.blocks(&blocks_with_marks(15, &[15]));
    assert_eq!(second.cached, tokens_of_blocks(10));
    assert_eq!(second.written, tokens_of_blocks(15) - tokens_of_blocks(10));
    let third = caches.blocks(&blocks_with_marks(35, &[35]));
    assert_eq!(third.cached, 0, "block 15 is one position too far");
    // The same with a second mark, in a cache that has not seen the third request.
    let mut caches = Caches::default();
    caches.blocks(&blocks_with_marks(15, &[15]));
    let third = caches.blocks(&blocks_with_marks(35, &[15, 35]));
    assert_eq!(third.cached, tokens_of_blocks(15));
    let mut caches = Caches::default();
    caches.blocks(&blocks_with_marks(15, &[15]));
    let near = caches.blocks(&blocks_with_marks(34, &[34]));
    assert_eq!(near.cached, tokens_of_blocks(15), "the twentieth position");
}

#[test]
fn nothing_is_found_where_no_request_has_written() {
    // The page's common mistake: a mark on a block that changes with every request.
    let request = |time: &str, mark_on_stable: bool| {
        let mut blocks = blocks_with_marks(5, if mark_on_stable { &[5] } else { &[] });
        blocks.push(json!({"type": "text", "text": time}));
        if !mark_on_stable {
            blocks[5] = marked(blocks[5].clone());
        }
        blocks
    };
    let mut caches = Caches::default();
    caches.blocks(&request("nine", false));
    let second = caches.blocks(&request("ten", false));
    assert_eq!(second.cached, 0);
    assert_eq!(second.written, second.input, "everything is paid again");
    caches.blocks(&request("eleven", true));
    let fourth = caches.blocks(&request("twelve", true));
    assert_eq!(fourth.cached, tokens_of_blocks(5));
    assert_eq!(
        fourth.units,
        fourth.cached * 10 + (fourth.input - fourth.cached) * 100
    );
}

#[test]
fn hours_and_minutes_are_billed_by_the_three_positions_of_the_page() {
    // A: the highest hit. B: the highest mark of an hour behind it. C: the last mark.
    let mut caches = Caches::default();
    let request = |count: usize, minutes: usize| {
        let mut blocks = blocks_with_marks(count, &[minutes]);
        blocks[3] = marked_for_an_hour(block(4));
        blocks
    };
    let (b, c) = (tokens_of_blocks(4), tokens_of_blocks(6));
    let first = caches.blocks(&request(7, 6));
    let rest = tokens_of_blocks(7) - c;
    assert_eq!((first.cached, first.written, first.long_written), (0, c, b));
    assert_eq!(first.units, b * 200 + (c - b) * 125 + rest * 100);
    let hit_at_c = caches.blocks(&request(8, 7));
    assert_eq!((hit_at_c.cached, hit_at_c.long_written), (c, 0));
    caches.now = 301;
    let hit_at_b = caches.blocks(&request(8, 7));
    assert_eq!(
        (hit_at_b.cached, hit_at_b.long_written),
        (b, 0),
        "minutes are over"
    );
    assert_eq!(hit_at_b.written, tokens_of_blocks(7) - b);
    caches.now += 3_601;
    assert_eq!(caches.blocks(&request(8, 7)).cached, 0);
}

#[test]
fn an_entry_lives_five_minutes_from_the_start_of_its_last_use() {
    let mut caches = Caches::default();
    let request = blocks_with_marks(4, &[4]);
    caches.blocks(&request);
    for now in [300, 600] {
        caches.now = now;
        assert_eq!(caches.blocks(&request).cached, tokens_of_blocks(4));
    }
    caches.now = 901;
    assert_eq!(caches.blocks(&request).cached, 0);
}

#[test]
fn shorter_entries_at_other_marks_are_refreshed_or_not() {
    for (refresh, expected) in [(Refresh::All, tokens_of_blocks(3)), (Refresh::Longest, 0)] {
        let mut caches = Caches {
            switches: (refresh, MarkFault::None),
            ..Caches::default()
        };
        let request = blocks_with_marks(6, &[3, 6]);
        caches.blocks(&request);
        caches.now = 200;
        caches.blocks(&request);
        caches.now = 400;
        let mut other_end = request.clone();
        other_end[4] = block(99);
        assert_eq!(caches.blocks(&other_end).cached, expected, "{refresh:?}");
    }
}

#[test]
fn a_beginning_below_the_minimum_of_the_model_is_not_cached() {
    let request = |model| of_blocks(model, &blocks_with_marks(4, &[4]));
    let count = tokens_of_blocks(4);
    assert!((512..1_024).contains(&count), "{count}");
    for (model, written) in [("claude-opus-5", count), ("claude-sonnet-4-5", 0)] {
        let mut caches = Caches::default();
        let billed = caches.anthropic(&request(model)).expect("is accepted");
        assert_eq!((billed.written, billed.input), (written, count), "{model}");
    }
    let unknown = Caches::default().anthropic(&request("claude-9"));
    assert!(unknown.is_err());
}

#[test]
fn each_tier_of_a_request_voids_what_follows_it() {
    let request = |tool: &str, prompt: &str, choice: &str| {
        let tool = json!({"name": tool, "description": prose(900, 40), "input_schema": {}});
        let prompt = json!({"type": "text", "text": format!("{prompt} {}", prose(2_000, 40))});
        json!({
            "model": CLAUDE,
            "tools": [marked(tool)],
            "tool_choice": {"type": choice},
            "system": [marked(prompt)],
            "messages": [{"role": "user", "content": blocks_with_marks(2, &[2])}],
        })
    };
    let mut caches = Caches::default();
    let mut read = |tool, prompt, choice| {
        let billed = caches.anthropic(&request(tool, prompt, choice));
        let billed = billed.expect("is accepted");
        (billed.cached, billed.input)
    };
    let (none, all) = read("look", "Be brief.", "auto");
    assert_eq!(none, 0);
    assert_eq!(read("look", "Be brief.", "auto").0, all);
    let of_messages = tokens_of_blocks(2);
    assert_eq!(read("look", "Be brief.", "none").0, all - of_messages);
    let (of_tools, _) = read("look", "Be long.", "auto");
    assert!(of_tools > 512 && of_tools < all - of_messages, "{of_tools}");
    assert_eq!(read("find", "Be brief.", "auto").0, 0);
}

#[test]
fn marks_that_the_provider_does_not_accept_are_refused() {
    let refuse = |blocks: &[Value]| {
        let answer = Caches::default().anthropic(&of_blocks(CLAUDE, blocks));
        answer.expect_err("is refused").0
    };
    let words = refuse(&blocks_with_marks(5, &[1, 2, 3, 4, 5]));
    assert!(words.contains("Found 5"), "{words}");
    let words = refuse(&[marked(block(1)), marked_for_an_hour(block(2))]);
    assert!(words.contains("ttl='1h'"), "{words}");
    let empty = marked(json!({"type": "text", "text": ""}));
    assert!(refuse(&[empty]).contains("empty text"));
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    assert!(refuse(&[marked(thinking)]).contains("not permitted"));
    let accepted = Caches::default().anthropic(&of_blocks(
        CLAUDE,
        &[marked_for_an_hour(block(1)), marked(block(2))],
    ));
    assert_eq!(accepted.map(|billed| billed.marks), Ok(2));
}

#[test]
fn faults_of_marks_change_what_is_read_and_not_what_was_sent() {
    for (fault, expected) in [
        (MarkFault::Dropped, 0),
        (MarkFault::OneBlockEarly, tokens_of_blocks(5)),
    ] {
        let mut caches = Caches {
            switches: (Refresh::All, fault),
            ..Caches::default()
        };
        caches.blocks(&blocks_with_marks(6, &[6]));
        let second = caches.blocks(&blocks_with_marks(6, &[6]));
        assert_eq!((second.cached, second.marks), (expected, 1), "{fault:?}");
    }
}

/// A request to OpenAI of these messages: role and content.
fn chat(model: &str, messages: &[(&str, Value)]) -> Value {
    let messages: Vec<Value> = messages
        .iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect();
    json!({"model": model, "prompt_cache_key": "k", "messages": messages})
}

fn text(n: usize, sentences: usize) -> Value {
    json!(prose(n, sentences))
}

fn with_breakpoint(text: &Value) -> Value {
    json!([{"type": "text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}}])
}

#[test]
fn before_gpt_5_6_whole_steps_of_any_beginning_are_cached() {
    let mut caches = Caches::default();
    let mut messages = vec![("system", text(0, 30)), ("user", text(30, 30))];
    let first = caches
        .openai(&chat("gpt-5.5", &messages))
        .expect("is billed");
    assert_eq!((first.cached, first.units), (0, first.input * 100));
    messages.extend([("assistant", text(60, 2)), ("user", text(62, 2))]);
    let second = caches
        .openai(&chat("gpt-5.5", &messages))
        .expect("is billed");
    assert_eq!(second.cached, first.input / 128 * 128);
    // The sequence of the page: 1024, 1152, 1280, 1408.
    assert!(
        [1_024, 1_152, 1_280, 1_408].contains(&second.cached),
        "{second:?}"
    );
    assert_eq!(second.written, 0);
    messages[1].1 = text(500, 30);
    let changed = caches
        .openai(&chat("gpt-5.5", &messages))
        .expect("is billed");
    assert_eq!(changed.cached, 0, "the system prompt alone is too short");
    caches.now = 301;
    let late = caches
        .openai(&chat("gpt-5.5", &messages))
        .expect("is billed");
    assert_eq!(late.cached, 0);
}

#[test]
fn a_day_of_retention_outlives_minutes() {
    let mut body = chat("gpt-5.5", &[("system", text(0, 80)), ("user", text(90, 1))]);
    body["prompt_cache_retention"] = json!("24h");
    let mut caches = Caches::default();
    caches.openai(&body).expect("is billed");
    caches.now = 24 * 3_600;
    assert!(caches.openai(&body).expect("is billed").cached > 0);
}

#[test]
fn from_gpt_5_6_on_a_conversation_reads_what_its_last_request_has_written() {
    // The page's example of a growing conversation.
    let mut caches = Caches::default();
    let mut messages = vec![("system", text(0, 60)), ("user", text(60, 1))];
    let first = caches
        .openai(&chat("gpt-5.6", &messages))
        .expect("is billed");
    assert_eq!((first.cached, first.written), (0, first.input));
    messages.extend([("assistant", text(61, 2)), ("user", text(63, 2))]);
    let second = caches
        .openai(&chat("gpt-5.6", &messages))
        .expect("is billed");
    assert_eq!(
        (second.cached, second.written),
        (first.input, second.input - first.input)
    );
    // Written once and read once: 1.35 times the plain price of the beginning.
    let of_beginning = first.units + first.input * 10;
    assert_eq!(of_beginning, first.input * 135);
    let mut other_key = chat("gpt-5.6", &messages);
    other_key["prompt_cache_key"] = json!("other");
    assert_eq!(caches.openai(&other_key).expect("is billed").cached, 0);
    caches.now = 30 * 60;
    assert_eq!(
        caches
            .openai(&chat("gpt-5.6", &messages))
            .expect("is billed")
            .written,
        0
    );
    caches.now += 30 * 60 + 1;
    assert_eq!(
        caches
            .openai(&chat("gpt-5.6", &messages))
            .expect("is billed")
            .cached,
        0
    );
}

#[test]
fn from_gpt_5_6_on_only_an_explicit_breakpoint_keeps_a_beginning_whose_end_changes() {
    // The page's example of stable instructions, a timestamp and a user message.
    let request = |instructions: Value, time: &str| {
        chat(
            "gpt-5.6",
            &[("system", instructions), ("user", json!(time))],
        )
    };
    let plain = text(0, 60);
    let mut caches = Caches::default();
    caches
        .openai(&request(plain.clone(), "nine"))
        .expect("is billed");
    let second = caches
        .openai(&request(plain.clone(), "ten"))
        .expect("is billed");
    assert_eq!((second.cached, second.written), (0, second.input));
    let marked = with_breakpoint(&plain);
    caches
        .openai(&request(marked.clone(), "eleven"))
        .expect("is billed");
    let fourth = caches
        .openai(&request(marked.clone(), "twelve"))
        .expect("is billed");
    assert_eq!(fourth.cached, tokens(&prose(0, 60)) + FRAMING);
    assert_eq!(fourth.marks, 1);
    let mut explicit = request(marked, "one");
    explicit["prompt_cache_options"] = json!({"mode": "explicit"});
    let fifth = caches.openai(&explicit).expect("is billed");
    let rest = fifth.input - fifth.cached;
    assert_eq!(
        (fifth.written, fifth.units),
        (0, fifth.cached * 10 + rest * 100)
    );
}

#[test]
fn breakpoints_where_they_are_not_supported_are_refused() {
    let messages = [
        ("system", with_breakpoint(&text(0, 60))),
        ("user", text(60, 1)),
    ];
    assert!(
        Caches::default()
            .openai(&chat("gpt-5.5", &messages))
            .is_err()
    );
    let answer = [
        ("user", text(60, 1)),
        ("assistant", with_breakpoint(&text(0, 60))),
    ];
    assert!(Caches::default().openai(&chat("gpt-5.6", &answer)).is_err());
}

#[test]
fn gemini_reads_any_beginning_above_its_minimum() {
    let request = |count: usize| {
        let contents: Vec<Value> = (0..count)
            .map(|n| json!({"role": "user", "parts": [{"text": prose(n * 50, 50)}]}))
            .collect();
        let prompt = json!({"parts": [{"text": prose(7_000, 50)}]});
        json!({"systemInstruction": prompt, "contents": contents})
    };
    for (model, shortest) in [("gemini-2.5-pro", 2_048), ("gemini-3.5-flash", 4_096)] {
        let mut caches = Caches::default();
        let mut before = 0;
        for count in 1..6 {
            let billed = caches.gemini(model, &request(count)).expect("is billed");
            let expected = if before < shortest { 0 } else { before };
            assert_eq!(billed.cached, expected, "{model}, {count} contents");
            assert_eq!(
                billed.units,
                billed.cached * 10 + (billed.input - billed.cached) * 100
            );
            before = billed.input;
        }
        assert!(before > shortest);
        caches.now = 301;
        let late = caches.gemini(model, &request(5)).expect("is billed");
        assert_eq!(late.cached, 0);
    }
}

#[test]
fn a_summary_counts_as_anneal_counts_it() {
    let mark = "[Summary of message 7; its original of 9 bytes is kept under that id]\n";
    assert_eq!(
        tokens(&format!("{mark}It is about the sea.")),
        tokens(mark) + tokens("It is about the sea.")
    );
}
