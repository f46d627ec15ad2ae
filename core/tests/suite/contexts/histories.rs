//! Arbitrary conversations, including all the unusual content that the API accepts.

use std::collections::BTreeMap;

use anneal_core::{
    context::{Ask, Body, CheckpointSummary, Material, Pressure, SummaryOrigin, TailMessage},
    message::{Media, Message, MessageId, Part, Role, ToolMark, outline, plain_text_bytes},
    policy::Policy,
    render::Format,
    tokens::{Tokens, count_parts},
    turn,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::checks::ENCODING;

fn words() -> impl Strategy<Value = String> {
    let word = select(vec![
        "the sea, ",
        "海と空、",
        "{\"a\": 1} ",
        "line\n",
        "\u{0}nul ",
        "\u{1f469}\u{200d}\u{1f680} ",
        "0123456789",
    ]);
    prop_oneof![
        1 => Just(String::new()),
        1 => select(vec![" ", "\n \t", "\u{a0}"]).prop_map(str::to_owned),
        8 => (word.clone(), 1..30_usize).prop_map(|(word, times)| format!("Said: {}", word.repeat(times))),
        1 => (word, 200..900_usize).prop_map(|(word, times)| format!("Said: {}", word.repeat(times))),
    ]
}

fn json() -> impl Strategy<Value = String> {
    let rows = (0..400_usize).prop_map(|n| {
        format!(
            "{{\"rows\": [{}], \"n\":{n}}}",
            vec!["{\"name\": \"海 sea\", \"n\":1.50}"; n].join(", ")
        )
    });
    let text = (1..4_000_usize).prop_map(|n| {
        format!(
            "[{{\"out\":\"{}\",\"code\":0}}]",
            "\\u6d77\\n\\ud83d\\ude00 a\\\\".repeat(n)
        )
    });
    prop_oneof![rows, text]
}

fn id() -> impl Strategy<Value = String> {
    let short = [
        "a",
        "b",
        "c",
        "call_X|fc_Y",
        "call_X fc_Y",
        "toolu_01A",
        "é",
    ]
    .map(str::to_owned);
    select([short.to_vec(), vec!["x".repeat(41), "x".repeat(80)]].concat())
}

fn name() -> impl Strategy<Value = String> {
    let names = ["look", "read_file", "a.b:c", "9 lives", "été"].map(str::to_owned);
    select([names.to_vec(), vec!["n".repeat(100)]].concat())
}

fn input() -> impl Strategy<Value = String> {
    let inputs = [
        "{}",
        "{\"b\":1.50e2,\"a\":[null,true]}",
        "",
        " ",
        "[1]",
        "{\"a\":",
        "\"text\"",
        "{\"a\":\"\\ud83d\"}",
        "{\"n\":1e999}",
        "{\"big\":123456789012345678901234567890}",
    ];
    select(inputs.map(str::to_owned).to_vec())
}

fn media() -> impl Strategy<Value = Media> {
    let uris = [
        "https://a/b",
        "http://a/b",
        "gs://a/b",
        "s3://bucket/b",
        "data:image/png;base64,QUJD",
        "data:application/pdf;base64,QUI=",
        "data:,x",
    ];
    let types = [
        "image/png",
        "image/gif",
        "application/pdf",
        "audio/mp3",
        "application/octet-stream",
    ];
    (
        select(uris.to_vec()),
        select(types.to_vec()),
        select(vec![0, 5, 300]),
    )
        .prop_map(|(uri, media_type, tokens)| Media {
            uri: uri.into(),
            media_type: media_type.into(),
            bytes: 0,
            tokens,
        })
}

fn text() -> impl Strategy<Value = Part> {
    words().prop_map(|text| Part::Text { text })
}

fn user_part() -> impl Strategy<Value = Part> {
    prop_oneof![6 => text(), 1 => media().prop_map(Part::Media)]
}

fn assistant_part() -> impl Strategy<Value = Part> {
    let signature = select(vec!["", "c2ln", "no base64"]);
    let provider = select(vec!["", "anthropic", "openai", "gemini"]);
    let reasoning = (
        prop_oneof![Just(String::new()), words()],
        signature,
        provider,
    )
        .prop_map(|(text, signature, provider)| Part::Reasoning {
            text,
            signature: signature.into(),
            provider: provider.into(),
            redacted: false,
        });
    let call =
        (id(), name(), input()).prop_map(|(id, name, input)| Part::ToolUse { id, name, input });
    prop_oneof![3 => text(), 1 => media().prop_map(Part::Media), 2 => reasoning, 4 => call]
}

fn result_part() -> impl Strategy<Value = Part> {
    let text = prop_oneof![3 => words(), 1 => json()];
    (id(), text, any::<bool>(), vec(media(), 0..2)).prop_map(|(id, text, is_error, media)| {
        Part::ToolResult {
            id,
            text,
            is_error,
            media,
        }
    })
}

/// The next event of a conversation.
#[derive(Debug, Clone)]
enum Step {
    Append(Role, Vec<Part>),
    /// Every unanswered call gets a result with one of these texts, in turn. `reversed`: the
    /// results come in the reverse order of the calls. `at_once`: they come in one message.
    AnswerCalls {
        texts: Vec<String>,
        reversed: bool,
        at_once: bool,
    },
    /// An assistant message with these parts, which say nothing, and then the last user message
    /// again.
    Repeat(Vec<Part>),
}

fn step() -> impl Strategy<Value = Step> {
    let answered = (
        vec(prop_oneof![3 => words(), 1 => json()], 1..4),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        4 => vec(user_part(), 0..3).prop_map(|parts| Step::Append(Role::User, parts)),
        5 => vec(assistant_part(), 0..5).prop_map(|parts| Step::Append(Role::Assistant, parts)),
        1 => vec(result_part(), 1..4).prop_map(|parts| Step::Append(Role::Tool, parts)),
        1 => vec(text(), 1..2).prop_map(|parts| Step::Append(Role::System, parts)),
        4 => answered.prop_map(|(texts, reversed, at_once)| Step::AnswerCalls { texts, reversed, at_once }),
        1 => select(vec![vec![], vec![Part::Text { text: " ".into() }]]).prop_map(Step::Repeat),
    ]
}

/// A result for every call in `waiting`, which is then empty. The results take `texts` in turn.
fn take_results(waiting: &mut Vec<String>, texts: &[String], reversed: bool) -> Vec<Part> {
    if reversed {
        waiting.reverse();
    }
    let texts = texts.iter().cycle().cloned();
    let result = |(id, text)| Part::ToolResult {
        id,
        text,
        is_error: false,
        media: Vec::new(),
    };
    waiting.drain(..).zip(texts).map(result).collect()
}

fn messages_of(steps: Vec<Step>) -> Vec<(Role, Vec<Part>)> {
    let mut messages: Vec<(Role, Vec<Part>)> = Vec::new();
    let mut waiting: Vec<String> = Vec::new();
    for step in steps {
        match step {
            Step::Append(role, parts) => {
                let calls = parts.iter().filter_map(|part| match part {
                    Part::ToolUse { id, .. } => Some(id.clone()),
                    _ => None,
                });
                waiting.extend(calls);
                messages.push((role, parts));
            }
            Step::AnswerCalls {
                texts,
                reversed,
                at_once,
            } => {
                let results = take_results(&mut waiting, &texts, reversed);
                if at_once && !results.is_empty() {
                    messages.push((Role::Tool, results));
                } else {
                    messages.extend(results.into_iter().map(|result| (Role::Tool, vec![result])));
                }
            }
            Step::Repeat(blank_parts) => {
                let user = messages
                    .iter()
                    .rfind(|(role, _)| *role == Role::User)
                    .cloned();
                messages.push((Role::Assistant, blank_parts));
                messages.extend(user);
            }
        }
    }
    messages
}

/// A conversation, and the request for its context.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) material: Material,
    pub(crate) ask: Ask,
}

prop_compose! {
    /// Any conversation, in any format, under any pressure, without a budget.
    pub(crate) fn case()(
        steps in vec((step(), prop::bool::weighted(0.05)), 0..25),
        prompt in select(vec!["", " ", "Answer briefly."]),
        separator_id in 0..4_i64,
        separated in any::<bool>(),
        summary in option::weighted(0.4, select(vec!["They spoke of the sea.", "海。"])),
        input in vec(vec(user_part(), 1..3), 0..3),
        format in select(Format::ALL.to_vec()),
        pressure in select(vec![Pressure::None, Pressure::None, Pressure::TruncateToolResults, Pressure::Compact]),
        withdrawals in vec(prop::bool::weighted(0.1), 0..25),
    ) -> Case {
        let swaps: Vec<bool> = steps.iter().map(|(_, swap)| *swap).collect();
        let history = messages_of(steps.into_iter().map(|(step, _)| step).collect());
        let swaps = swaps.into_iter().chain(std::iter::repeat(false));
        let separator = separated.then_some(MessageId(separator_id)).filter(|id| id.0 > 0);
        let summarized_messages = if summary.is_some() { 2 } else { 0 };
        let boundary = separator.map_or(0, |id| id.0) + summarized_messages;
        let last_message_id = MessageId(boundary + history.len() as i64);
        let withdrawals = withdrawals.into_iter().chain(std::iter::repeat(false));
        let (tail, withdrawn) = tail(history, swaps, withdrawals, boundary);
        let checkpoint = summary.map(|text| CheckpointSummary {
            last: MessageId(boundary),
            text: text.into(),
            tokens: ENCODING.counter().count(text),
            saved: Tokens::ZERO,
            origin: SummaryOrigin::Stored,
        });
        let current_input = input.into_iter().map(|parts| Message { role: Role::User, parts, metadata: BTreeMap::default() });
        let material = Material {
            last_message_id,
            last_role: tail.last().map(|message| message.role),
            turn: tail.last().map_or(0, |message| message.turn),
            encoding: ENCODING,
            policy: Policy::default(),
            system_prompt: prompt.into(),
            system_prompt_tokens: ENCODING.counter().count(prompt),
            separator,
            checkpoint,
            tail,
            prefix: None,
            omitted: Vec::new(),
            withdrawn,
            idle_seconds: None,
            tokens_ratio: None,
            learnt_window: None,
            change_id: 0,
        };
        Case { material, ask: Ask { current_input: current_input.collect(), format, pressure, ..Ask::default() } }
    }
}

/// The messages that are not withdrawn, and the ids of the others.
fn tail(
    history: Vec<(Role, Vec<Part>)>,
    swaps: impl Iterator<Item = bool>,
    withdrawals: impl Iterator<Item = bool>,
    boundary: i64,
) -> (Vec<TailMessage>, Vec<MessageId>) {
    let (mut turn, mut previous_role) = (0, None);
    let (mut tail, mut withdrawn) = (Vec::new(), Vec::new());
    let mut id = MessageId(boundary);
    for (((role, parts), swapped), is_withdrawn) in history.into_iter().zip(swaps).zip(withdrawals)
    {
        id = id.next();
        if is_withdrawn {
            withdrawn.push(id);
            continue;
        }
        turn += i32::from(turn::starts(role, previous_role));
        previous_role = Some(role);
        tail.push(TailMessage {
            id,
            role,
            turn,
            tokens: count_parts(ENCODING, &parts),
            estimated: false,
            body: body(parts, swapped),
            ready_summary: None,
        });
    }
    (tail, withdrawn)
}

fn body(parts: Vec<Part>, swapped: bool) -> Body {
    if !swapped {
        return Body::Original(parts);
    }
    let outline: Vec<ToolMark> = outline(&parts);
    let text = "In short.".to_owned();
    Body::Summary {
        tokens: ENCODING.counter().count(&text),
        text,
        original_bytes: plain_text_bytes(&parts) as u64,
        outline,
    }
}

impl Case {
    pub(crate) fn with_budget(&self, budget: u64) -> Self {
        let mut case = self.clone();
        case.ask.budget = Some(Tokens::new(budget));
        case
    }

    /// The same conversation if the withdrawn messages had never been appended.
    pub(crate) fn without_withdrawn(&self) -> Self {
        let mut case = self.clone();
        let messages = case.material.tail.len() + case.material.withdrawn.len();
        let mut id = MessageId(case.material.last_message_id.0 - messages as i64);
        case.material.withdrawn.clear();
        for message in &mut case.material.tail {
            id = id.next();
            message.id = id;
        }
        case.material.last_message_id = id;
        case
    }

    /// The newest user message with sendable content: its parts, and its id if it is stored.
    pub(crate) fn newest_user(&self) -> Option<(&[Part], Option<MessageId>)> {
        let input = self
            .ask
            .current_input
            .iter()
            .map(|message| (message.parts.as_slice(), None));
        let users = self
            .material
            .tail
            .iter()
            .filter(|message| message.role == Role::User);
        let stored = users.map(|message| match &message.body {
            Body::Original(parts) => (parts.as_slice(), Some(message.id)),
            Body::Summary { .. } => (SWAPPED, Some(message.id)),
        });
        stored
            .chain(input)
            .rfind(|(parts, _)| parts.iter().any(|part| self.is_sendable(part)))
    }

    fn is_sendable(&self, part: &Part) -> bool {
        let refuses_blank = matches!(
            self.ask.format,
            Format::AnthropicMessages | Format::GeminiContents
        );
        match part {
            Part::Text { text } => !if refuses_blank { text.trim() } else { text }.is_empty(),
            _ => true,
        }
    }
}

/// Stands for the parts of a message that is sent as its summary: one part that counts as sendable
/// and has no text to look for.
const SWAPPED: &[Part] = &[Part::Media(Media {
    uri: String::new(),
    media_type: String::new(),
    bytes: 0,
    tokens: 0,
})];
