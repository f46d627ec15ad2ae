//! Fuzzes the contexts of arbitrary conversations in the formats of the providers. A context must
//! be complete and within the budget, its calls and results must be paired, and no text of a user,
//! model or tool may appear as the system's.

#[path = "../../../core/tests/suite/contexts/checks.rs"]
#[expect(dead_code, reason = "core's tests use the other checks")]
mod checks;

use std::collections::HashSet;

use anneal_core::{
    context::{
        Ask, Body, CheckpointSummary, Context, Material, Pressure, SummaryOrigin, TailMessage,
        build,
    },
    message::{Message, MessageId, Part, Role, outline, plain_text_bytes},
    policy::Policy,
    render::{Format, render},
    tokens::{Tokens, count_parts},
    turn,
};
use arbitrary::Unstructured;
use serde_json::Value;

use self::checks::{
    ENCODING, check_message_ids, context_is_paired, count_rendered, covers_every_id, refusals,
    rendered_is_paired,
};
use crate::messages;

/// Maximum number of messages of a conversation.
const MAX_MESSAGES: usize = 12;

/// A conversation and the parameters of its context.
struct Case {
    material: Material,
    ask: Ask,
}

fn arbitrary_case(from: &mut Unstructured<'_>) -> arbitrary::Result<Case> {
    let format = *from.choose(&Format::ALL)?;
    let pressure = *from.choose(&[
        Pressure::None,
        Pressure::None,
        Pressure::TruncateToolResults,
        Pressure::Compact,
    ])?;
    let budget = if from.ratio(1, 2)? {
        Some(Tokens::new(from.int_in_range(1..=4_000)?))
    } else {
        None
    };
    let system_prompt = if from.ratio(1, 3)? {
        messages::text(from)?
    } else {
        String::new()
    };
    let separator = from.int_in_range(0..=3)?;
    let summary = if from.ratio(1, 3)? {
        Some(messages::text(from)?)
    } else {
        None
    };
    // The checkpoint covers the two messages after the separator.
    let boundary = separator + if summary.is_some() { 2 } else { 0 };
    let tail = arbitrary_tail(from, boundary)?;
    let mut current_input = Vec::new();
    for _ in 0..from.int_in_range(0..=2)? {
        current_input.extend(messages::user_message(from)?);
    }
    let count = |text: &str| ENCODING.counter().count(text);
    let checkpoint = summary.map(|text| CheckpointSummary {
        last: MessageId(boundary),
        tokens: count(&text),
        text,
        saved: Tokens::ZERO,
        origin: SummaryOrigin::Stored,
    });
    let material = Material {
        last_message_id: tail
            .last()
            .map_or(MessageId(boundary), |message| message.id),
        last_role: tail.last().map(|message| message.role),
        turn: tail.last().map_or(0, |message| message.turn),
        encoding: ENCODING,
        policy: Policy::default(),
        system_prompt_tokens: count(&system_prompt),
        system_prompt,
        separator: (separator > 0).then_some(MessageId(separator)),
        checkpoint,
        tail,
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        prefix: None,
        idle_seconds: None,
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    };
    Ok(Case {
        material,
        ask: Ask {
            current_input,
            budget,
            format,
            pressure,
            ..Ask::default()
        },
    })
}

fn arbitrary_tail(
    from: &mut Unstructured<'_>,
    boundary: i64,
) -> arbitrary::Result<Vec<TailMessage>> {
    let mut tail = Vec::new();
    let (mut turn, mut previous_role) = (0, None);
    for Message { role, parts, .. } in messages::messages(from, MAX_MESSAGES)? {
        turn += i32::from(turn::starts(role, previous_role));
        previous_role = Some(role);
        let tokens = count_parts(ENCODING, &parts);
        let body = if from.ratio(1, 16)? {
            summary_body(messages::text(from)?, &parts)
        } else {
            Body::Original(parts)
        };
        let id = MessageId(boundary + 1 + tail.len() as i64);
        tail.push(TailMessage {
            id,
            role,
            turn,
            tokens,
            estimated: false,
            body,
            ready_summary: None,
        });
    }
    Ok(tail)
}

/// The body of a message with these parts that is sent as this summary.
fn summary_body(text: String, parts: &[Part]) -> Body {
    let tokens = ENCODING.counter().count(&text);
    Body::Summary {
        tokens,
        text,
        original_bytes: plain_text_bytes(parts) as u64,
        outline: outline(parts),
    }
}

fn assert_invariants(case: &Case, context: &Context, rendered: &Value) {
    let format = case.ask.format;
    assert!(
        covers_every_id(context, case.material.last_message_id),
        "{:?}",
        context.manifest
    );
    assert!(context_is_paired(context), "{:#?}", context.messages);
    assert_eq!(check_message_ids(context), Ok(()));
    assert!(rendered_is_paired(rendered, format), "{rendered:#}");
    let refused = refusals(rendered, format);
    assert!(refused.is_empty(), "{refused:#?} in {rendered:#}");
    let counted = count_rendered(rendered, context, format);
    assert!(
        counted <= context.total,
        "the context states {} tokens, but the request has {counted}: {rendered:#}",
        context.total
    );
    assert!(
        case.ask.budget.is_none_or(|budget| context.total <= budget),
        "{} tokens exceed the budget {:?}",
        context.total,
        case.ask.budget
    );
    assert_system_texts(case, rendered);
    assert_texts_present(context, rendered);
}

/// Checks that every text with the system's role in a request is or contains the system prompt, or
/// a text of a message with the role `system`. Checks nothing with a budget, or if a system message
/// is sent as its summary.
fn assert_system_texts(case: &Case, rendered: &Value) {
    let mut allowed: HashSet<&str> = HashSet::from([case.material.system_prompt.as_str()]);
    for message in case
        .material
        .tail
        .iter()
        .filter(|message| message.role == Role::System)
    {
        if let Body::Original(parts) = &message.body {
            allowed.extend(parts.iter().filter_map(|part| {
                if let Part::Text { text } = part {
                    Some(text.as_str())
                } else {
                    None
                }
            }));
        }
    }
    let has_system_summary = case.material.tail.iter().any(|message| {
        message.role == Role::System && matches!(message.body, Body::Summary { .. })
    });
    if has_system_summary || case.ask.budget.is_some() {
        // Summaries are preceded by a marker, and clipping removes the middle of a text.
        return;
    }
    let messages = rendered["messages"].as_array().into_iter().flatten();
    let system_messages =
        messages.filter(|message| message["role"] == "system" || message["role"] == "developer");
    let mut found = Vec::new();
    system_messages.for_each(|message| collect_strings(&message["content"], &mut found));
    collect_strings(&rendered["system"], &mut found);
    collect_strings(&rendered["systemInstruction"], &mut found);
    for text in found {
        let known = allowed.contains(text)
            || allowed
                .iter()
                .any(|allowed| !allowed.is_empty() && text.contains(allowed));
        // `text` and `ephemeral` are types in the blocks of a system prompt for Anthropic.
        assert!(
            known || text == "text" || text == "ephemeral",
            "{text:?} appears as the system's text: {rendered:#}"
        );
    }
}

/// Checks that every text of the context occurs unchanged in a string of the request, possibly with
/// other text around it. The comparison is made on parsed JSON, so a text cannot end its own string
/// early.
fn assert_texts_present(context: &Context, rendered: &Value) {
    let mut found = Vec::new();
    collect_strings(rendered, &mut found);
    let found: HashSet<&str> = found.into_iter().collect();
    for part in context.messages.iter().flat_map(|message| &message.parts) {
        if let Part::Text { text } = part {
            let is_present = text.is_empty()
                || found.contains(text.as_str())
                || found.iter().any(|found| found.contains(text.as_str()));
            assert!(is_present, "{text:?} is missing: {rendered:#}");
        }
    }
}

/// Collects every string in a JSON value, except keys.
fn collect_strings<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Array(values) => values.iter().for_each(|value| collect_strings(value, into)),
        Value::Object(entries) => entries
            .values()
            .for_each(|value| collect_strings(value, into)),
        _ => {}
    }
}

/// The bytes select a conversation, a current input, a format, a budget and a pressure.
pub fn check(data: &[u8]) {
    let Ok(case) = arbitrary_case(&mut Unstructured::new(data)) else {
        return;
    };
    let Ok(context) = build(case.material.clone(), case.ask.clone()) else {
        assert!(
            case.ask.budget.is_some(),
            "the context is refused, although there is no budget"
        );
        return;
    };
    let rendered = render(&context, case.ask.format);
    let rebuilt = build(case.material.clone(), case.ask.clone()).expect("it was built before");
    assert_eq!(
        render(&rebuilt, case.ask.format),
        rendered,
        "two contexts of one conversation differ"
    );
    assert_invariants(
        &case,
        &context,
        &serde_json::from_str(&rendered.json).expect("a request is JSON"),
    );
}
