//! Which contexts keep the beginning that a provider's prefix cache holds, and which break it.

use super::*;
use crate::{
    message::{Part, Role},
    policy::{Cooling, PolicyOverrides, Profile, SessionSettings},
    tokens::Encoding,
};

/// Tokens of each tool result.
const RESULT_TOKENS: u64 = 4_000;

/// A tool run in one turn: a question, then `calls` calls, each with a result of `RESULT_TOKENS`
/// that has a summary. The calls have the ids 2, 4, 6 …, their results 3, 5, 7 … All messages are
/// plain texts, and results have the role user, because the build would drop tool results without
/// ids of calls.
fn tool_run(calls: i64) -> Material {
    let overrides = PolicyOverrides {
        profile: Some(Profile::Agents),
        ..PolicyOverrides::default()
    };
    let mut tail = vec![message(1, Role::User, 10, None)];
    for n in 0..calls {
        tail.push(message(2 * n + 2, Role::Assistant, 20, None));
        tail.push(message(2 * n + 3, Role::User, RESULT_TOKENS, Some(400)));
    }
    Material {
        last_message_id: tail[tail.len() - 1].id,
        last_role: Some(Role::User),
        turn: 1,
        encoding: Encoding::O200kBase,
        policy: SessionSettings::default().policy(&overrides, None),
        system_prompt: "Answer briefly.".into(),
        system_prompt_tokens: Tokens::new(4),
        separator: None,
        checkpoint: None,
        tail,
        prefix: None,
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        idle_seconds: Some(1),
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    }
}

fn message(id: i64, role: Role, tokens: u64, summary_tokens: Option<u64>) -> TailMessage {
    TailMessage {
        id: MessageId(id),
        role,
        turn: 1,
        tokens: Tokens::new(tokens),
        estimated: false,
        body: Body::Original(vec![Part::Text {
            text: format!("message {id}"),
        }]),
        ready_summary: summary_tokens.map(|tokens| ReadySummary {
            text: format!("summary of {id}"),
            tokens: Tokens::new(tokens),
        }),
    }
}

fn build_without_budget(material: Material) -> Context {
    build(material, Ask::default()).expect("no budget")
}

fn swapped(context: &Context) -> Vec<i64> {
    let swapped = context
        .manifest
        .iter()
        .filter(|manifest_entry| manifest_entry.representation == Representation::Summary);
    swapped
        .map(|manifest_entry| manifest_entry.first.0)
        .collect()
}

/// The material of a later context of the same tool run, after a context that recorded `version`.
/// Messages that the version has swapped are read as their summaries.
fn tool_run_after(calls: i64, version: &PrefixVersion) -> Material {
    let mut material = tool_run(calls);
    material.prefix = Some(version.clone());
    for message in &mut material.tail {
        if version.swapped.contains(&message.id) {
            message.swap();
        }
    }
    material
}

fn first_version() -> PrefixVersion {
    build_without_budget(tool_run(2))
        .prefix
        .new_version
        .expect("the first version")
        .version
}

#[test]
fn the_first_context_records_a_version_and_breaks_nothing() {
    let prefix = build_without_budget(tool_run(2)).prefix;
    let new = prefix.new_version.expect("a version");
    let version = new.version;
    assert_eq!(
        (version.epoch, new.reason, prefix.cache_break),
        (1, BreakReason::First, None)
    );
    let again = build_without_budget(tool_run_after(2, &version)).prefix;
    assert_eq!(
        (again.new_version, again.cache_break, again.hash),
        (None, None, version.hash)
    );
    let later = build_without_budget(tool_run_after(5, &version)).prefix;
    assert_eq!(
        (later.hash, later.stable_until),
        (version.hash, MessageId(9)),
        "a longer tail breaks nothing; the last model call was sent messages up to 9, and 10 is its answer"
    );
}

#[test]
fn a_step_waits_until_it_pays_off_and_then_swaps_all_cool_messages() {
    let mut version = first_version();
    let mut steps = Vec::new();
    for calls in 3..60 {
        let context = build_without_budget(tool_run_after(calls, &version));
        if let Some(next) = context.prefix.new_version.clone().map(|new| new.version) {
            let broken = context
                .prefix
                .cache_break
                .expect("a new version is a break");
            assert_eq!(broken.reason, BreakReason::Swap);
            assert_eq!(
                next.swapped,
                swapped(&context)
                    .into_iter()
                    .map(MessageId)
                    .collect::<Vec<_>>()
            );
            assert!(
                next.swapped.len() > version.swapped.len() + 1,
                "a step swaps more than one message: {:?}",
                next.swapped
            );
            assert!(
                version.swapped.iter().all(|id| next.swapped.contains(id)),
                "a swapped message stays swapped"
            );
            assert_eq!(
                broken.at.0,
                version.swapped.last().map_or(3, |id| id.0 + 2),
                "the break is at the oldest newly swapped message"
            );
            // 11.5 is `rho` of the default prices.
            let calls_to_pay_back =
                (11.5 * broken.rewritten.get() as f64 / broken.saved.get() as f64).ceil() as u64;
            assert_eq!(broken.pays_back_after, Some(calls_to_pay_back));
            assert_eq!(context.prefix.stable_until.0, broken.at.0 - 1);
            steps.push(calls);
            version = next;
        }
    }
    assert!(
        (3..12).contains(&steps.len()),
        "few of the 57 contexts take a step: {steps:?}"
    );
    assert!(
        steps[0] > 11,
        "the first result is cool only when eleven calls have followed it: {steps:?}"
    );
}

#[test]
fn cool_messages_are_swapped_at_once_when_the_prefix_breaks_anyway() {
    let version = first_version();
    let swaps = |material: Material| swapped(&build_without_budget(material));
    assert_eq!(
        swaps(tool_run_after(13, &version)),
        Vec::<i64>::new(),
        "not worth a break yet"
    );
    // More than ten calls have followed the results 3 and 5, so these two are cool.
    assert_eq!(swaps(tool_run(13)), [3, 5], "nothing is known to be cached");
    let cold = Material {
        idle_seconds: Some(301),
        ..tool_run_after(13, &version)
    };
    assert_eq!(
        build_without_budget(cold.clone())
            .prefix
            .cache_break
            .map(|broken| broken.reason),
        Some(BreakReason::Idle)
    );
    assert_eq!(swaps(cold), [3, 5]);
    let warm = Material {
        idle_seconds: Some(300),
        ..tool_run_after(13, &version)
    };
    assert_eq!(
        swaps(warm),
        Vec::<i64>::new(),
        "at exactly its lifetime the cache is still warm"
    );
    let other_prompt = Ask {
        system_prompt: Some("Answer at length.".into()),
        ..Ask::default()
    };
    let context = build(tool_run_after(13, &version), other_prompt).expect("no budget");
    assert_eq!(
        context.prefix.cache_break.map(|broken| broken.reason),
        Some(BreakReason::SystemPrompt)
    );
    assert_eq!(swapped(&context), [3, 5]);
    let other_boundary = PrefixVersion {
        boundary: MessageId(9),
        ..version
    };
    assert_eq!(swaps(tool_run_after(13, &other_boundary)), [3, 5]);
}

#[test]
fn the_budget_forces_a_swap_before_it_drops_anything() {
    let version = first_version();
    let all = build_without_budget(tool_run_after(13, &version)).total;
    let ask = |budget| Ask {
        budget: Some(budget),
        ..Ask::default()
    };
    let fits = build(tool_run_after(13, &version), ask(all)).expect("fits");
    assert_eq!(swapped(&fits), Vec::<i64>::new());
    let tight = build(tool_run_after(13, &version), ask(all.less(Tokens::new(1)))).expect("fits");
    assert_eq!(swapped(&tight), [3, 5]);
    assert!(
        tight
            .manifest
            .iter()
            .all(|manifest_entry| manifest_entry.representation != Representation::Dropped)
    );
}

#[test]
fn with_strict_cooling_the_build_itself_swaps_nothing() {
    let mut material = tool_run(40);
    material.policy.cooling = Cooling::Strict;
    assert_eq!(swapped(&build_without_budget(material)), Vec::<i64>::new());
}

#[test]
fn a_checkpoint_is_reported_as_a_break_with_the_tokens_it_saves() {
    let version = first_version();
    let mut material = tool_run_after(4, &version);
    material.tail.drain(..4);
    material.checkpoint = Some(CheckpointSummary {
        last: MessageId(4),
        text: "…".into(),
        tokens: Tokens::new(5),
        saved: Tokens::new(8_000),
        origin: SummaryOrigin::Stored,
    });
    let prefix = build_without_budget(material).prefix;
    let broken = prefix.cache_break.expect("a break");
    assert_eq!(
        (broken.reason, broken.saved.get()),
        (BreakReason::Checkpoint, 8_000)
    );
    assert_eq!(prefix.stable_until, MessageId::NONE);
}

#[test]
fn a_summary_made_for_one_answer_records_no_new_version() {
    let version = first_version();
    let compacted = |origin| {
        let mut material = tool_run_after(4, &version);
        material.tail.drain(..4);
        let (text, tokens, saved) = ("…".into(), Tokens::new(5), Tokens::new(8_000));
        material.checkpoint = Some(CheckpointSummary {
            last: MessageId(4),
            text,
            tokens,
            saved,
            origin,
        });
        build_without_budget(material).prefix
    };
    let (once, stored) = (
        compacted(SummaryOrigin::ForThisCall),
        compacted(SummaryOrigin::Stored),
    );
    assert_eq!(once.new_version, None);
    assert!(
        once.hash != stored.hash,
        "the stored checkpoint has another summary"
    );
    assert!(stored.new_version.is_some());
}

/// The context of a question, a tool call and the messages `then`.
fn after_a_call(version: Option<&PrefixVersion>, then: &[(Role, Part)]) -> Context {
    let call = Part::ToolUse {
        id: "c1".into(),
        name: "look".into(),
        input: "{}".into(),
    };
    let opening = [
        (Role::User, Part::Text { text: "?".into() }),
        (Role::Assistant, call),
    ];
    let mut material = tool_run(0);
    material.tail = opening
        .iter()
        .chain(then)
        .cloned()
        .zip(1..)
        .map(tail_message)
        .collect();
    material.last_message_id = material.tail[material.tail.len() - 1].id;
    material.prefix = version.cloned();
    build_without_budget(material)
}

fn tail_message(((role, part), id): ((Role, Part), i64)) -> TailMessage {
    TailMessage {
        body: Body::Original(vec![part]),
        ..message(id, role, 10, None)
    }
}

fn version(context: &Context) -> PrefixVersion {
    context
        .prefix
        .new_version
        .clone()
        .expect("a version")
        .version
}

#[test]
fn an_unanswered_call_breaks_nothing_once_another_message_follows_but_its_late_result_does() {
    let user = (
        Role::User,
        Part::Text {
            text: "never mind".into(),
        },
    );
    let first = version(&build_without_budget(tool_run(0)));
    let unanswered = after_a_call(Some(&first), std::slice::from_ref(&user));
    assert_eq!(
        unanswered
            .repairs
            .iter()
            .map(|repair| repair.kind)
            .collect::<Vec<_>>(),
        [RepairKind::ResultAdded]
    );
    assert_eq!(unanswered.prefix.cache_break, None);
    let late_result = Part::ToolResult {
        id: "c1".into(),
        text: "late".into(),
        is_error: false,
        media: Vec::new(),
    };
    let moved = after_a_call(Some(&first), &[user, (Role::Tool, late_result)]);
    assert_eq!(
        moved
            .prefix
            .cache_break
            .expect("the late result replaces the synthetic one")
            .reason,
        BreakReason::Repair
    );
}

#[test]
fn a_result_that_replaces_a_synthetic_one_is_a_break() {
    let unanswered = after_a_call(None, &[]);
    let result = Part::ToolResult {
        id: "c1".into(),
        text: "found".into(),
        is_error: false,
        media: Vec::new(),
    };
    let answered = after_a_call(Some(&version(&unanswered)), &[(Role::Tool, result)]);
    assert_eq!(
        answered
            .prefix
            .cache_break
            .expect("the result replaces the synthetic one")
            .reason,
        BreakReason::Repair
    );
}

/// The mark of a change of message `at` after this version.
fn mark(version: &PrefixVersion, reason: BreakReason, at: i64) -> PrefixVersion {
    let epoch = version.epoch + 1;
    PrefixVersion {
        epoch,
        change_epoch: epoch,
        pending: Some(PendingChange {
            reason,
            at: MessageId(at),
        }),
        ..version.clone()
    }
}

/// The reason and place of a context's break.
fn broken(context: &Context) -> Option<(BreakReason, i64)> {
    let broken = context.prefix.cache_break?;
    Some((broken.reason, broken.at.0))
}

#[test]
fn a_change_is_a_break_at_the_first_changed_message_even_if_the_same_ids_are_sent() {
    let first = first_version();
    for reason in [
        BreakReason::Withdrawal,
        BreakReason::Edit,
        BreakReason::Erasure,
    ] {
        let context = build_without_budget(tool_run_after(5, &mark(&first, reason, 6)));
        assert_eq!(broken(&context), Some((reason, 6)));
        assert_eq!(context.prefix.stable_until, MessageId(5));
        // The last call, 10, has sent the messages up to 9. Framing has 4 tokens.
        let rewritten = context.prefix.cache_break.expect("a break").rewritten;
        assert_eq!(rewritten.get(), 2 * (20 + RESULT_TOKENS) + 4 * 4);
        let next = version(&context);
        assert_eq!((next.epoch, next.change_epoch, next.pending), (3, 2, None));
        assert_ne!(next.hash, first.hash);
        let later = build_without_budget(tool_run_after(6, &next));
        assert_eq!(
            (later.prefix.hash, later.prefix.cache_break),
            (next.hash, None),
            "the change is named once"
        );
    }
}

#[test]
fn a_change_that_moves_the_boundary_breaks_everything_and_one_before_any_version_nothing() {
    let first = first_version();
    let moved = mark(&first, BreakReason::Withdrawal, 0);
    let fallen_back = PrefixVersion {
        boundary: MessageId(4),
        ..moved.clone()
    };
    for before in [moved, fallen_back] {
        let context = build_without_budget(tool_run_after(5, &before));
        assert_eq!(broken(&context), Some((BreakReason::Withdrawal, 0)));
        assert_eq!(context.prefix.stable_until, MessageId::NONE);
    }
    let nothing_recorded = mark(&first, BreakReason::First, 0);
    let context = build_without_budget(tool_run_after(5, &nothing_recorded));
    assert_eq!(broken(&context), None);
    assert_eq!(context.prefix.cached, Tokens::ZERO);
    assert_eq!(version(&context).change_epoch, 2);
}

#[test]
fn an_earlier_break_is_named_instead_of_a_change() {
    let changed = mark(&first_version(), BreakReason::Edit, 6);
    let other_prompt = Ask {
        system_prompt: Some("Answer at length.".into()),
        ..Ask::default()
    };
    let context = build(tool_run_after(5, &changed), other_prompt).expect("no budget");
    assert_eq!(broken(&context), Some((BreakReason::SystemPrompt, 0)));
    let cold = Material {
        idle_seconds: Some(301),
        ..tool_run_after(5, &changed)
    };
    assert_eq!(
        broken(&build_without_budget(cold)),
        Some((BreakReason::Idle, 0))
    );
    let mut separated = tool_run_after(5, &changed);
    separated.separator = Some(MessageId(3));
    separated.tail.drain(..3);
    assert_eq!(
        broken(&build_without_budget(separated)),
        Some((BreakReason::Separator, 0))
    );
    let swapped_before = PrefixVersion {
        swapped: vec![MessageId(3)],
        ..changed
    };
    let no_longer_swapped = Material {
        prefix: Some(swapped_before),
        ..tool_run(5)
    };
    assert_eq!(
        broken(&build_without_budget(no_longer_swapped)),
        Some((BreakReason::Swap, 3))
    );
}

#[test]
fn a_step_is_taken_at_once_only_if_a_change_breaks_the_cache_before_its_messages() {
    let first = first_version();
    let after_change_of = |at| {
        let changed = mark(&first, BreakReason::Withdrawal, at);
        let context = build_without_budget(tool_run_after(13, &changed));
        (broken(&context), swapped(&context))
    };
    assert_eq!(
        after_change_of(3),
        (Some((BreakReason::Withdrawal, 3)), vec![3, 5]),
        "the cache is lost from the oldest candidate on"
    );
    assert_eq!(
        after_change_of(27),
        (Some((BreakReason::Withdrawal, 27)), vec![]),
        "the cache still holds the messages after the candidates"
    );
}

#[test]
fn conversations_without_a_change_keep_the_hashes_of_earlier_releases() {
    // SHA-256 of the digest of the system prompt, the kind of the boundary, the format, and the
    // boundary.
    let recorded = [
        0x33, 0x0e, 0xb3, 0xcd, 0xac, 0x9f, 0xcf, 0xbb, 0xfa, 0xca, 0x05, 0xbd, 0x2a, 0xab, 0x50,
        0x97, 0xbe, 0xd1, 0xcb, 0x66, 0xc9, 0x94, 0x03, 0xd6, 0xcf, 0xb0, 0x4b, 0x9f, 0x37, 0x1c,
        0x5b, 0x1f,
    ];
    assert_eq!(first_version().hash, recorded);
}
