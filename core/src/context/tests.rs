//! Builds of contexts: the manifest has every message, the budget is kept, and every call has its
//! result.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::{
    message::{Media, Message, PART_JOIN, Part, Role, ToolMark, part_text},
    policy::Policy,
    tokens::Encoding,
};

/// Material with a separator after message 2 and a checkpoint up to message 4. The tail begins with
/// message 5.
fn material(tail: Vec<TailMessage>) -> Material {
    Material {
        last_message_id: tail.last().map_or(MessageId(4), |message| message.id),
        last_role: tail.last().map(|message| message.role),
        turn: tail.last().map_or(0, |message| message.turn),
        encoding: Encoding::O200kBase,
        policy: Policy::default(),
        system_prompt: "Answer briefly.".into(),
        system_prompt_tokens: Encoding::O200kBase.counter().count("Answer briefly."),
        separator: Some(MessageId(2)),
        checkpoint: Some(CheckpointSummary {
            last: MessageId(4),
            text: "They spoke of the sea.".into(),
            tokens: Tokens::new(6),
            saved: Tokens::new(100),
            origin: SummaryOrigin::Stored,
        }),
        tail,
        prefix: None,
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        idle_seconds: None,
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    }
}

fn message(id: i64, role: Role, turn: i32, parts: Vec<Part>) -> TailMessage {
    let tokens = crate::tokens::count_parts(Encoding::O200kBase, &parts);
    TailMessage {
        id: MessageId(id),
        role,
        turn,
        tokens,
        estimated: false,
        body: Body::Original(parts),
        ready_summary: None,
    }
}

fn text(text: &str) -> Vec<Part> {
    vec![Part::Text { text: text.into() }]
}

fn call(id: &str) -> Part {
    Part::ToolUse {
        id: id.into(),
        name: "look".into(),
        input: "{\"at\":\"the sea\"}".into(),
    }
}

fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: false,
        media: Vec::new(),
    }
}

fn build_without_budget(tail: Vec<TailMessage>) -> Context {
    build(material(tail), Ask::default()).expect("without a budget no context is refused")
}

#[test]
fn many_user_messages_in_a_row_are_sent_as_one_and_equal_ones_only_once() {
    // With so many messages, quadratic work would take minutes.
    const COUNT: i64 = 200_000;
    let last = 4 + COUNT;
    let tail: Vec<TailMessage> = (5..=last)
        .map(|id| message(id, Role::User, 1, text("a")))
        .collect();
    let context = build_without_budget(tail);
    let ids: Vec<i64> = context
        .messages
        .iter()
        .flat_map(|message| &message.message_ids)
        .map(|id| id.0)
        .collect();
    assert!(ids.iter().copied().eq(5..=last), "{} ids", ids.len());
    assert_eq!(
        context.messages.last().map(|message| message.parts.clone()),
        Some(text("a"))
    );
    let picture = Media {
        uri: "https://a.example/a.png".into(),
        media_type: "image/png".into(),
        bytes: 0,
        tokens: 0,
    };
    // User messages that differ are merged into one message.
    let pictures = |id: i64| [text(&id.to_string()), vec![Part::Media(picture.clone())]].concat();
    let joined = build_without_budget(
        (5..=last)
            .map(|id| message(id, Role::User, 1, pictures(id)))
            .collect(),
    );
    assert_eq!(
        joined.messages.last().map(|message| message.parts.len()),
        Some(2 * COUNT as usize)
    );
}

fn covers_every_id(context: &Context, last: i64) -> bool {
    let mut next = MessageId(1);
    context.manifest.iter().all(|entry| {
        let fits = entry.first == next && entry.last >= entry.first;
        next = entry.last.next();
        fits
    }) && next == MessageId(last + 1)
}

#[test]
fn system_prompt_summary_tail_and_input_come_in_this_order() {
    let ask = Ask {
        current_input: vec![Message {
            role: Role::User,
            parts: text("And now?"),
            metadata: std::collections::BTreeMap::new(),
        }],
        ..Ask::default()
    };
    let tail = vec![
        message(5, Role::User, 1, text("Hello")),
        message(6, Role::Assistant, 1, text("Hi")),
    ];
    let context = build(material(tail), ask).expect("builds");
    let segments: Vec<Segment> = context
        .messages
        .iter()
        .map(|message| message.segment)
        .collect();
    assert_eq!(
        segments,
        [
            Segment::SystemPrompt,
            Segment::CheckpointSummary,
            Segment::Tail,
            Segment::Tail,
            Segment::CurrentInput
        ]
    );
    assert_eq!(
        context.messages[1].role,
        Role::User,
        "a summary is data, never an instruction"
    );
    assert_eq!(context.current_turn, 2);
    assert!(covers_every_id(&context, 6));
}

#[test]
fn adjacent_user_messages_are_merged_with_a_blank_line() {
    let context = build_without_budget(vec![
        message(5, Role::User, 1, text("first")),
        message(6, Role::User, 1, text("second")),
    ]);
    assert_eq!(
        context.messages[2].parts,
        text(&format!("first{PART_JOIN}second"))
    );
    assert_eq!(
        context.messages[2].message_ids,
        [MessageId(5), MessageId(6)]
    );
    assert_eq!(context.repairs.len(), 1);
}

#[test]
fn every_call_gets_one_result_and_results_without_a_call_are_dropped() {
    let context = build_without_budget(vec![
        message(5, Role::Tool, 0, vec![result("ghost", "nobody asked")]),
        message(6, Role::User, 1, text("look")),
        message(7, Role::Assistant, 1, vec![call("a"), call("b")]),
        message(8, Role::User, 2, text("hurry")),
        message(9, Role::Tool, 2, vec![result("a", "late")]),
        message(10, Role::Assistant, 2, Vec::new()),
    ]);
    let kinds: Vec<RepairKind> = context.repairs.iter().map(|repair| repair.kind).collect();
    assert_eq!(
        kinds,
        [
            RepairKind::EmptyDropped,
            RepairKind::ResultDropped,
            RepairKind::ResultMoved,
            RepairKind::ResultAdded
        ]
    );
    let order: Vec<Role> = context
        .messages
        .iter()
        .skip(2)
        .map(|message| message.role)
        .collect();
    assert_eq!(
        order,
        [
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Tool,
            Role::User
        ]
    );
    assert_eq!(
        context
            .manifest
            .iter()
            .find(|entry| entry.first == MessageId(5))
            .expect("message 5 has a manifest entry")
            .reason,
        Reason::ResultWithoutCall
    );
    assert!(covers_every_id(&context, 10));
}

#[test]
fn a_swapped_tool_result_keeps_its_place() {
    let outline = vec![ToolMark::Result {
        id: "a".into(),
        is_error: true,
    }];
    let body = Body::Summary {
        text: "a log".into(),
        tokens: Tokens::new(2),
        original_bytes: 9_000,
        outline,
    };
    let swapped = TailMessage {
        id: MessageId(6),
        role: Role::Tool,
        turn: 1,
        tokens: Tokens::new(2_000_000),
        estimated: false,
        body,
        ready_summary: None,
    };
    let context = build_without_budget(vec![
        message(5, Role::Assistant, 0, vec![call("a")]),
        swapped,
    ]);
    let Part::ToolResult {
        id, text, is_error, ..
    } = &context.messages[3].parts[0]
    else {
        panic!("a tool result")
    };
    assert!(
        id == "a" && *is_error && text.contains("Summary of message 6") && text.ends_with("a log"),
        "{text}"
    );
    assert!(context.repairs.is_empty());
}

#[test]
fn a_budget_below_the_system_prompt_is_refused_with_its_sizes() {
    let tail = vec![message(5, Role::User, 1, text("Hello"))];
    let refused = build(
        material(tail),
        Ask {
            budget: Some(Tokens::new(3)),
            ..Ask::default()
        },
    )
    .expect_err("too small");
    // The prompt has three tokens and a framing of four.
    assert_eq!(
        (refused.budget, refused.system_prompt),
        (Tokens::new(3), Tokens::new(7))
    );
}

#[test]
fn a_clipped_json_result_is_still_valid_json() {
    let json = format!("{{\"rows\":[{}]}}", vec!["{\"n\":1}"; 2_000].join(","));
    let context = build(
        material(vec![
            message(5, Role::Assistant, 1, vec![call("a")]),
            message(6, Role::Tool, 1, vec![result("a", &json)]),
            message(7, Role::User, 2, text("so?")),
        ]),
        Ask {
            budget: Some(Tokens::new(600)),
            ..Ask::default()
        },
    )
    .expect("fits");
    let Part::ToolResult { text, .. } = &context.messages[3].parts[0] else {
        panic!("a tool result")
    };
    let rows = serde_json::from_str::<serde_json::Value>(text)
        .expect("the clipped result is valid JSON")["rows"]
        .clone();
    let rows = rows.as_array().expect("`rows` is still an array");
    let left_out = rows
        .iter()
        .filter_map(serde_json::Value::as_str)
        .collect::<Vec<_>>();
    let manifest_entry = context
        .manifest
        .iter()
        .find(|manifest_entry| manifest_entry.first == MessageId(6))
        .expect("message 6 has a manifest entry");
    let [range] = manifest_entry.clipped.as_slice() else {
        panic!("{:?}", manifest_entry.clipped)
    };
    let mark = format!(
        "[{} bytes left out: bytes {} to {} of message 6]",
        range.len(),
        range.start,
        range.end
    );
    assert_eq!(left_out, [mark]);
    // The first rows are kept, and more than twenty entries in all.
    assert!(
        rows.len() > 20 && range.start > 60 && json[range.clone()].starts_with("{\"n\":1}"),
        "{text}"
    );
}

#[test]
fn without_a_user_message_the_newest_message_with_calls_is_clipped_and_keeps_its_result() {
    let parts = vec![
        Part::Text {
            text: "sea and sky; ".repeat(500),
        },
        call("a"),
    ];
    let ask = Ask {
        budget: Some(Tokens::new(300)),
        ..Ask::default()
    };
    let context = build(material(vec![message(5, Role::Assistant, 0, parts)]), ask).expect("fits");
    assert!(context.total <= Tokens::new(300));
    let roles: Vec<Role> = context
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::System, Role::User, Role::Assistant, Role::Tool]
    );
}

fn history() -> impl Strategy<Value = Vec<TailMessage>> {
    let step = (0..4_u8, 0..5_u8, prop::bool::weighted(0.1), 0..40_usize);
    prop::collection::vec(step, 0..40).prop_map(|steps| {
        let (mut turn, mut before) = (0, None);
        let mut tail = Vec::new();
        for (index, (role, id, large, words)) in steps.into_iter().enumerate() {
            let role = [Role::User, Role::Assistant, Role::Tool, Role::System][role as usize];
            turn += i32::from(crate::turn::starts(role, before));
            before = Some(role);
            let content = "sea, 海 and sky; ".repeat(if large { words * 40 } else { words });
            let parts = match role {
                Role::Tool => vec![result(&format!("c{id}"), &content)],
                Role::Assistant if id < 3 => {
                    vec![Part::Text { text: content }, call(&format!("c{id}"))]
                }
                _ => text(&content),
            };
            tail.push(message(index as i64 + 5, role, turn, parts));
        }
        tail
    })
}

/// Whether every call has exactly one result, directly after it, and there are no other results.
fn well_paired(context: &Context) -> bool {
    let mut unanswered: HashSet<&str> = HashSet::new();
    for message in &context.messages {
        if message.role != Role::Tool && !unanswered.is_empty() {
            return false;
        }
        for part in &message.parts {
            let fits = match part {
                Part::ToolUse { id, .. } => unanswered.insert(id),
                Part::ToolResult { id, .. } => unanswered.remove(id.as_str()),
                _ => true,
            };
            if !fits {
                return false;
            }
        }
    }
    unanswered.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_message_is_in_the_manifest_and_every_call_has_one_result(tail in history()) {
        let last = tail.last().map_or(4, |message| message.id.0);
        let context = build_without_budget(tail);
        prop_assert!(covers_every_id(&context, last));
        prop_assert!(well_paired(&context));
        let recounted: Tokens = context.messages.iter()
            .map(|message| crate::tokens::count_parts(Encoding::O200kBase, &message.parts) + FRAMING_PER_MESSAGE).sum();
        prop_assert!(recounted <= context.total, "reported {}, counted {recounted}", context.total);
    }

    #[test]
    fn a_context_never_exceeds_its_budget_and_keeps_the_newest_user_message(tail in history(), budget in 1..4_000_u64) {
        let last = tail.last().map_or(4, |message| message.id.0);
        let newest = tail.iter().rev().find(|message| message.role == Role::User).cloned();
        let empty = |message: &TailMessage| matches!(&message.body, Body::Original(parts) if parts.iter().all(|part| part_text(part).is_empty()));
        let ask = Ask { budget: Some(Tokens::new(budget)), ..Ask::default() };
        let Ok(context) = build(material(tail), ask) else {
            prop_assert!(budget < 400, "{budget} is enough for prompt, summary and a clipped message");
            return Ok(());
        };
        prop_assert!(context.total <= Tokens::new(budget));
        prop_assert!(covers_every_id(&context, last));
        prop_assert!(well_paired(&context));
        prop_assert_eq!(context.messages[0].segment, Segment::SystemPrompt);
        if let Some(newest) = newest.filter(|newest| !empty(newest)) {
            prop_assert!(context.messages.iter().any(|message| message.message_ids.contains(&newest.id)));
        }
        let recounted: Tokens = context.messages.iter()
            .map(|message| crate::tokens::count_parts(Encoding::O200kBase, &message.parts) + FRAMING_PER_MESSAGE).sum();
        prop_assert!(recounted <= Tokens::new(budget), "counted {recounted}, budget {budget}");
    }
}

#[test]
fn a_summary_that_begins_with_a_slash_is_counted_with_its_mark() {
    let counter = Encoding::O200kBase.counter();
    let summary = "/testbed/sympy/core/basic.py:3: DeprecationWarning";
    let mut tail = vec![message(5, Role::User, 1, text(summary))];
    let tokens = counter.count(summary);
    for (id, role, summary) in [
        (6, Role::Assistant, summary),
        (7, Role::User, "/MPL/\n+#\n+# Software"),
    ] {
        let tokens = counter.count(summary);
        let body = Body::Summary {
            text: summary.into(),
            tokens,
            original_bytes: 10_613,
            outline: Vec::new(),
        };
        tail.push(TailMessage {
            body,
            ..message(id, role, 1, Vec::new())
        });
    }
    let checkpoint = CheckpointSummary {
        last: MessageId(4),
        text: summary.into(),
        tokens,
        saved: tokens,
        origin: SummaryOrigin::Stored,
    };
    let context = build(
        Material {
            checkpoint: Some(checkpoint),
            ..material(tail)
        },
        Ask::default(),
    )
    .expect("without a budget no context is refused");
    for message in &context.messages {
        let whole =
            crate::tokens::count_parts(Encoding::O200kBase, &message.parts) + FRAMING_PER_MESSAGE;
        assert!(
            whole <= message.tokens,
            "{whole} tokens where {} are reported: {:?}",
            message.tokens,
            message.parts
        );
    }
    let wanted = checkpoint_overhead_tokens(MessageId(4), Encoding::O200kBase)
        + tokens
        + FRAMING_PER_MESSAGE;
    assert_eq!(context.messages[1].tokens, wanted);
}

#[test]
fn withdrawn_messages_are_runs_of_the_manifest_and_nothing_else() {
    let tail = vec![
        message(6, Role::User, 1, text("Hello")),
        message(10, Role::Assistant, 1, text("Hi")),
    ];
    let withdrawn = [2, 5, 7, 8, 9, 11].map(MessageId).to_vec();
    let told = build_without_budget(tail.clone());
    let context = build(
        Material {
            last_message_id: MessageId(11),
            withdrawn,
            ..material(tail)
        },
        Ask::default(),
    )
    .expect("without a budget no context is refused");
    assert!(covers_every_id(&context, 11));
    let runs: Vec<(i64, i64)> = context
        .manifest
        .iter()
        .filter(|entry| entry.representation == Representation::Withdrawn)
        .inspect(|entry| assert_eq!(entry.reason, Reason::Withdrawn))
        .map(|entry| (entry.first.0, entry.last.0))
        .collect();
    assert_eq!(
        runs,
        [(5, 5), (7, 9), (11, 11)],
        "message 2 is before the boundary, in the run of the separator"
    );
    assert_eq!(context.messages, told.messages);
    assert_eq!(context.total, told.total);
}

#[test]
fn the_messages_around_withdrawn_ones_can_still_be_clipped_and_dropped() {
    let tail = vec![
        message(6, Role::User, 1, text("What is there?")),
        message(8, Role::Assistant, 1, vec![call("a")]),
        message(9, Role::Tool, 1, vec![result("a", &"sea ".repeat(2_000))]),
        message(12, Role::User, 2, text("And now?")),
    ];
    let context = build(
        Material {
            withdrawn: [5, 7, 10, 11].map(MessageId).to_vec(),
            ..material(tail)
        },
        Ask {
            budget: Some(Tokens::new(600)),
            ..Ask::default()
        },
    )
    .expect("fits");
    assert!(covers_every_id(&context, 12));
    let clipped = context
        .manifest
        .iter()
        .find(|entry| entry.first == MessageId(9))
        .expect("message 9 has a manifest entry");
    assert_eq!(clipped.representation, Representation::Clipped);
}
