//! Triggers and cuts at their limits.

use proptest::prelude::*;

use super::*;

fn item(id: i64, role: Role, turn: i32, tokens: u64) -> TailItem {
    TailItem {
        id: MessageId(id),
        role,
        turn,
        tokens: Tokens::new(tokens),
        bytes: tokens * 4,
        outline: Vec::new(),
    }
}

fn calling(mut item: TailItem, id: &str) -> TailItem {
    item.outline.push(ToolMark::Call {
        id: id.into(),
        name: "look".into(),
    });
    item
}

fn answering(mut item: TailItem, id: &str) -> TailItem {
    item.outline.push(ToolMark::Result {
        id: id.into(),
        is_error: false,
    });
    item
}

/// `turns` turns of one question and one answer, `tokens` each.
fn chat(turns: i64, tokens: u64) -> Vec<TailItem> {
    (0..turns)
        .flat_map(|n| {
            let turn = i32::try_from(n + 1).expect("the number of turns is small");
            [
                item(2 * n + 1, Role::User, turn, tokens),
                item(2 * n + 2, Role::Assistant, turn, tokens),
            ]
        })
        .collect()
}

fn policy(tokens: u64, messages: u32) -> Policy {
    Policy {
        token_threshold: TokenThreshold::Tokens(Tokens::new(tokens)),
        max_message_count: messages,
        ..Policy::default()
    }
}

fn figures(tokens: u64, messages: u64) -> TailFigures {
    TailFigures {
        tail: Tokens::new(tokens),
        messages,
        ..TailFigures::default()
    }
}

fn plan(tail: &[TailItem], policy: &Policy, trigger: Trigger) -> Option<Cut> {
    super::plan(tail, policy, trigger, Tokens::ZERO)
}

fn policy_keeping(keep: KeepRecent, tokens: u64) -> Policy {
    Policy {
        keep_recent: keep,
        ..policy(tokens, 0)
    }
}

#[test]
fn a_checkpoint_is_due_at_the_token_threshold_and_not_one_token_below() {
    assert_eq!(due_trigger(&figures(7_999, 1), &policy(8_000, 50)), None);
    assert_eq!(
        due_trigger(&figures(8_000, 1), &policy(8_000, 50)),
        Some(Trigger::Tokens)
    );
}

#[test]
fn a_checkpoint_is_due_at_the_message_threshold_and_not_one_message_below() {
    assert_eq!(due_trigger(&figures(1, 49), &policy(8_000, 50)), None);
    assert_eq!(
        due_trigger(&figures(1, 50), &policy(8_000, 50)),
        Some(Trigger::Messages)
    );
    assert_eq!(
        due_trigger(&figures(1, 50), &policy(8_000, 0)),
        None,
        "0 switches the message threshold off"
    );
}

#[test]
fn five_turns_are_kept_when_they_fit_in_half_of_the_thresholds() {
    let cut = plan(&chat(25, 10), &policy(8_000, 50), Trigger::Messages).expect("a cut");
    assert_eq!(
        cut,
        Cut {
            last: MessageId(40),
            quoted: vec![],
            kept: Tokens::new(100)
        }
    );
}

#[test]
fn the_last_turn_is_kept_when_five_turns_do_not_fit() {
    let cut = plan(&chat(10, 1_000), &policy(8_000, 50), Trigger::Tokens).expect("a cut");
    assert_eq!(cut.last, MessageId(18));
}

#[test]
fn a_turn_longer_than_the_token_threshold_is_split_and_its_user_message_quoted() {
    let mut tail = vec![item(1, Role::User, 1, 100)];
    for n in 0..10_i64 {
        let call = format!("c{n}");
        tail.push(calling(item(2 + 2 * n, Role::Assistant, 1, 500), &call));
        tail.push(answering(item(3 + 2 * n, Role::Tool, 1, 500), &call));
    }
    let cut = plan(&tail, &policy(8_000, 50), Trigger::Tokens).expect("a cut");
    assert_eq!(cut.quoted, [MessageId(1)]);
    assert_eq!(
        cut.kept,
        Tokens::new(4_000),
        "half of the threshold: four calls with their results"
    );
    assert_eq!(
        cut.last.0 % 2,
        1,
        "the cut comes after a result, which has an odd id, never between a call and its result"
    );
}

#[test]
fn if_no_kept_tail_fits_as_little_as_possible_is_kept() {
    let tail = vec![
        item(1, Role::User, 1, 10),
        item(2, Role::Assistant, 1, 10),
        item(3, Role::User, 2, 90_000),
    ];
    let cut = plan(&tail, &policy(8_000, 50), Trigger::Tokens).expect("a cut");
    assert_eq!(cut.last, MessageId(2));
    assert!(
        plan(&tail[2..], &policy(8_000, 50), Trigger::Tokens).is_none(),
        "a single message leaves no place to cut"
    );
}

#[test]
fn zero_to_five_messages_never_panic_and_always_keep_one() {
    for n in 0..=5_usize {
        let tail: Vec<_> = chat(3, 10_000).into_iter().take(n).collect();
        for trigger in [Trigger::Tokens, Trigger::Messages, Trigger::Manual] {
            let cut = plan(&tail, &policy(8_000, 50), trigger);
            assert_eq!(cut.is_some(), n >= 2, "{n} messages, {trigger:?}");
            assert!(cut.is_none_or(|cut| cut.last < tail[n - 1].id));
        }
    }
}

#[test]
fn a_call_of_the_newest_turn_that_waits_for_its_result_stays_in_the_tail() {
    let tail = vec![
        item(1, Role::User, 1, 5_000),
        item(2, Role::Assistant, 1, 5_000),
        item(3, Role::User, 2, 5_000),
        calling(item(4, Role::Assistant, 2, 5_000), "open"),
        item(5, Role::Assistant, 2, 10),
    ];
    let cut = plan(&tail, &policy(8_000, 50), Trigger::Tokens).expect("a cut");
    assert_eq!(
        cut.last,
        MessageId(3),
        "the call stays in the tail, where its result may still come"
    );
}

#[test]
fn an_unanswered_call_of_an_older_turn_does_not_stop_compaction() {
    let mut tail = chat(10, 1_000);
    tail[1] = calling(tail[1].clone(), "orphan");
    assert_eq!(
        plan(&tail, &policy(8_000, 50), Trigger::Tokens)
            .expect("a cut")
            .last,
        MessageId(18)
    );
}

#[test]
fn a_manual_compaction_of_a_short_conversation_keeps_the_last_turn() {
    assert_eq!(
        plan(&chat(3, 10), &policy(8_000, 50), Trigger::Manual)
            .expect("a cut")
            .last,
        MessageId(4)
    );
}

#[test]
fn a_range_too_long_for_one_checkpoint_is_cut_where_the_checkpoint_stops_reading() {
    let mut tail = chat(10, 1_000);
    for item in &mut tail {
        item.bytes = CHECKPOINT_BYTES / 4;
    }
    assert_eq!(
        plan(&tail, &policy(8_000, 50), Trigger::Tokens)
            .expect("a cut")
            .last,
        MessageId(4)
    );
    tail[0].bytes = 2 * CHECKPOINT_BYTES;
    let cut = plan(&tail, &policy(8_000, 50), Trigger::Tokens).expect("a cut");
    assert_eq!(
        cut.last,
        MessageId(1),
        "one message that is too long by itself still moves the boundary"
    );
}

#[test]
fn a_call_and_result_too_long_for_any_checkpoint_are_not_cut_off() {
    let mut tail = chat(10, 1_000);
    tail[1] = calling(tail[1].clone(), "slow");
    tail[14] = answering(tail[14].clone(), "slow");
    let cut = |bytes, tail: &mut [TailItem]| {
        let long = tail
            .iter_mut()
            .find(|item| item.id == MessageId(9))
            .expect("message 9 is in the tail");
        long.bytes = bytes;
        plan(tail, &policy(8_000, 50), Trigger::Tokens).map(|cut| cut.last)
    };
    // The first message can be covered by itself.
    assert_eq!(cut(2 * CHECKPOINT_MAX_BYTES, &mut tail), Some(MessageId(1)));
    tail.remove(0);
    assert_eq!(
        cut(CHECKPOINT_MAX_BYTES / 2, &mut tail),
        Some(MessageId(15)),
        "a cut between the call and its result is not allowed"
    );
    assert_eq!(cut(CHECKPOINT_MAX_BYTES, &mut tail), None);
}

#[test]
fn a_share_keeps_the_newest_half_and_never_less_than_four_messages() {
    let halves = policy_keeping(KeepRecent::Share(50), 1_000);
    for (turns, tokens, last) in [(10, 50, Some(10)), (3, 170, Some(2)), (4, 125, Some(4))] {
        let cut = plan(&chat(turns, tokens), &halves, Trigger::Tokens);
        assert_eq!(cut.map(|cut| cut.last.0), last, "{turns} turns");
    }
    let mut tail = chat(10, 10);
    for item in &mut tail[10..16] {
        item.tokens = Tokens::new(200);
    }
    let cut = plan(&tail, &halves, Trigger::Tokens).expect("a cut");
    assert_eq!(
        (cut.last.0, cut.kept.get()),
        (13, 640),
        "more than half is summarized if the newer half exceeds 664 tokens: four thirds of the budget"
    );
}

#[test]
fn a_token_limit_keeps_whole_turns_if_that_keeps_at_least_half() {
    let cut = |tokens| {
        plan(
            &chat(20, 100),
            &policy_keeping(KeepRecent::Tokens(Tokens::new(tokens)), 4_000),
            Trigger::Tokens,
        )
    };
    assert_eq!(
        cut(1_000).map(|cut| (cut.last.0, cut.kept.get())),
        Some((30, 1_000))
    );
    assert_eq!(
        cut(1_100).map(|cut| (cut.last.0, cut.kept.get())),
        Some((30, 1_000)),
        "a turn is not split to keep 100 more tokens"
    );
    assert_eq!(
        cut(20_000).map(|cut| cut.kept.get()),
        Some(2_000),
        "half of the threshold at most"
    );
    let mut tail = chat(2, 10);
    for n in 0..20_i64 {
        tail.push(item(5 + n, Role::Assistant, 2, 100));
    }
    let cut = plan(
        &tail,
        &policy_keeping(KeepRecent::Tokens(Tokens::new(500)), 4_000),
        Trigger::Tokens,
    )
    .expect("a cut");
    assert_eq!(
        (cut.kept.get(), cut.quoted),
        (500, vec![MessageId(3)]),
        "a long turn is split, and its question quoted"
    );
}

#[test]
fn the_last_user_message_is_never_cut_off_from_what_follows() {
    let last_user = policy_keeping(KeepRecent::LastUserMessage, 1_000);
    let mut tail = chat(5, 10);
    tail.push(item(11, Role::User, 6, 10));
    tail.push(item(12, Role::User, 6, 10));
    for n in 0..20_i64 {
        tail.push(item(13 + n, Role::Assistant, 6, 1_000));
    }
    for trigger in [Trigger::Tokens, Trigger::Manual] {
        let cut = plan(&tail, &last_user, trigger).expect("a cut");
        assert_eq!(
            cut.last.0, 10,
            "before the last user messages, however long their turn is"
        );
    }
    assert!(
        plan(&tail[10..], &last_user, Trigger::Tokens).is_none(),
        "no message comes before the last user messages"
    );
    let without_user: Vec<_> = (1..9).map(|id| item(id, Role::Assistant, 0, 900)).collect();
    assert!(
        plan(&without_user, &last_user, Trigger::Tokens).is_none(),
        "there is no user message"
    );
}

#[test]
fn a_checkpoint_of_an_idle_conversation_keeps_what_keep_recent_says_or_is_not_made() {
    let idle = |tail: &[TailItem], keep, tokens| {
        plan(tail, &policy_keeping(keep, tokens), Trigger::Idle).map(|cut| cut.last.0)
    };
    let (tail, kept) = (chat(10, 100), KeepRecent::Tokens(Tokens::new(1_200)));
    assert_eq!(
        idle(&tail, kept, 4_000),
        Some(8),
        "not half of the tail, as a manual compaction keeps"
    );
    assert_eq!(idle(&tail, KeepRecent::Turns(2), 800), Some(16));
    assert_eq!(
        idle(&tail, KeepRecent::Turns(2), 799),
        None,
        "two turns exceed half of the threshold"
    );
    assert_eq!(
        idle(&tail, KeepRecent::Turns(10), 100_000),
        None,
        "the last turn alone is not kept without need"
    );
}

#[test]
fn a_prepared_cut_is_used_while_it_is_allowed_and_its_tail_fits() {
    let after = |tail: &[TailItem], tokens, last| {
        let policy = policy_keeping(KeepRecent::Turns(2), tokens);
        plan_after(
            tail,
            &policy,
            Trigger::Tokens,
            Tokens::ZERO,
            MessageId(last),
        )
        .map(|cut| (cut.last.0, cut.kept.get()))
    };
    let mut tail = chat(10, 100);
    assert_eq!(after(&tail, 1_200, 14), Some((14, 600)));
    assert_eq!(after(&tail, 1_199, 14), None, "the kept tail is too long");
    assert_eq!(after(&tail, 9_999, 20), None, "nothing would be kept");
    assert_eq!(after(&tail, 9_999, 21), None, "there is no such message");
    tail[13] = calling(tail[13].clone(), "c");
    tail[14] = answering(tail[14].clone(), "c");
    assert_eq!(
        after(&tail, 9_999, 14),
        None,
        "a late result is not separated from its call"
    );
}

fn arbitrary_keep() -> impl Strategy<Value = KeepRecent> {
    prop_oneof![
        (1..8_u32).prop_map(KeepRecent::Turns),
        (1..9_000_u64).prop_map(|tokens| KeepRecent::Tokens(Tokens::new(tokens))),
        (1..=90_u32).prop_map(KeepRecent::Share),
        Just(KeepRecent::LastUserMessage),
    ]
}

fn arbitrary_tail() -> impl Strategy<Value = Vec<TailItem>> {
    let step = (0..4_u8, 0..6_u8, 1..3_000_u64);
    prop::collection::vec(step, 0..60).prop_map(|steps| {
        let mut turn = 0;
        let mut before = None;
        let mut tail = Vec::new();
        for (index, (role, call, tokens)) in steps.into_iter().enumerate() {
            let role = [Role::User, Role::Assistant, Role::Tool, Role::System][role as usize];
            turn += i32::from(crate::turn::starts(role, before));
            before = Some(role);
            let item = item(index as i64 + 1, role, turn, tokens);
            let call = format!("c{call}");
            tail.push(match role {
                Role::Assistant => calling(item, &call),
                Role::Tool => answering(item, &call),
                Role::User | Role::System => item,
            });
        }
        tail
    })
}

proptest! {
    #[test]
    fn a_cut_never_separates_a_call_from_its_result_and_always_advances(
        tail in arbitrary_tail(), messages in 0..40_u32, keep in arbitrary_keep(),
    ) {
        let policy = Policy { keep_recent: keep, ..policy(8_000, messages) };
        for trigger in [Trigger::Tokens, Trigger::Messages, Trigger::Manual, Trigger::Idle] {
            let Some(cut) = plan(&tail, &policy, trigger) else { continue };
            prop_assert!(cut.last >= tail[0].id && cut.last < tail[tail.len() - 1].id);
            let mut calls = HashMap::new();
            for item in &tail {
                for mark in &item.outline {
                    match mark {
                        ToolMark::Call { id, .. } => { calls.insert(id.clone(), item.id); }
                        ToolMark::Result { id, .. } => if let Some(call) = calls.get(id) {
                            prop_assert_eq!(*call <= cut.last, item.id <= cut.last, "call {} is separated", id);
                        },
                    }
                }
            }
        }
    }
}
