//! When a checkpoint is made, where it cuts, and what it says of itself.

#![expect(non_snake_case, reason = "rows are named as docs/rows.md names them")]

use anneal_tests::{House, Talk, assistant, call, pb, prose, result, sentence, user};
use pb::{CheckpointTrigger, Representation, Role};

/// `count` messages that say something, alternating, in one append per hundred.
async fn say(talk: &Talk<'_>, from: usize, count: usize) {
    let messages: Vec<_> =
        (from..from + count).map(|n| if n % 2 == 0 { user(&sentence(n)) } else { assistant(&sentence(n)) }).collect();
    for some in messages.chunks(100) {
        talk.append_all(some.to_vec()).await;
    }
    talk.house.run_jobs_until_idle().await;
}

fn tokens_only(threshold: u64) -> pb::Policy {
    pb::Policy { token_threshold: Some(threshold), max_message_count: Some(0), ..Default::default() }
}

#[tokio::test]
async fn row_D2_tokens_at_the_threshold_make_a_checkpoint_and_one_below_do_not() {
    let house = House::start().await;
    let counted = house.conversation().await;
    say(&counted, 0, 30).await;
    let total: u64 = counted.messages().await.iter().map(|message| message.tokens.expect("counted").tokens).sum();
    assert_eq!(counted.usage().await.tail_tokens, total);
    let below = house.conversation_under(tokens_only(total + 1)).await;
    say(&below, 0, 30).await;
    assert!(below.checkpoints().await.is_empty(), "the tail is one token below");
    let at = house.conversation_under(tokens_only(total)).await;
    say(&at, 0, 30).await;
    let checkpoints = at.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].trigger(), CheckpointTrigger::Tokens);
    assert_eq!(checkpoints[0].tokens_before, total);
    let kept = at.usage().await;
    assert!(kept.tail_tokens <= total / 2, "the tail is within half of the threshold: {kept:?}");
    assert_eq!(kept.tail_messages, 10, "the last five turns");
    at.verify().await;
}

#[tokio::test]
async fn row_D2_the_fiftieth_message_makes_a_checkpoint_and_the_forty_ninth_does_not() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 49).await;
    assert!(talk.checkpoints().await.is_empty() && talk.jobs().await.is_empty());
    say(&talk, 49, 1).await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!((checkpoints[0].last_message_id, checkpoints[0].trigger()), (40, CheckpointTrigger::Messages));
    say(&talk, 50, 39).await;
    assert_eq!(talk.checkpoints().await.len(), 1, "the tail holds 49 messages again");
    say(&talk, 89, 1).await;
    assert_eq!(talk.checkpoints().await.len(), 2);
    talk.context().await.assert_covers(90);
    talk.verify().await;
}

#[tokio::test]
async fn separators_are_not_counted_as_messages() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.separate().await;
    say(&talk, 0, 49).await;
    assert_eq!(talk.usage().await.tail_messages, 49);
    assert!(talk.checkpoints().await.is_empty());
    talk.join(0).await;
    house.run_jobs_until_idle().await;
    assert!(talk.checkpoints().await.is_empty(), "49 messages, and one separator that was");
    say(&talk, 49, 1).await;
    assert_eq!(talk.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_swapped_message_counts_with_the_size_of_its_summary() {
    let house = House::start().await;
    let said = async |talk: &Talk<'_>| {
        talk.turn(&prose(0, 120), "read").await;
        house.run_jobs_until_idle().await;
        for turn in 0..6 {
            talk.turn(&sentence(turn), "noted").await;
            house.run_jobs_until_idle().await;
        }
    };
    let plain = house.conversation_under(tokens_only(1_000_000)).await;
    said(&plain).await;
    let all = plain.usage().await.tail_tokens;
    let last_turn: u64 =
        plain.messages().await[12..].iter().map(|message| message.tokens.expect("counted").tokens).sum();
    let small = house.conversation_under(tokens_only(all - last_turn + 1)).await;
    said(&small).await;
    assert_eq!(small.checkpoints().await.len(), 1, "without a swap the seventh turn is too much");
    let swapping = pb::Policy { large_message_threshold: Some(500), ..tokens_only(all - last_turn + 1) };
    let talk = house.conversation_under(swapping).await;
    said(&talk).await;
    assert!(talk.checkpoints().await.is_empty(), "with the swap it is not");
    let usage = talk.usage().await;
    let saved = {
        let large = talk.message(1).await;
        large.tokens.expect("counted").tokens - large.summary.expect("summarised").tokens
    };
    assert_eq!((usage.swapped_messages, usage.saved_tokens), (1, saved));
    assert_eq!(usage.tail_tokens, all - saved);
}

#[tokio::test]
async fn no_progress_is_not_tried_again_until_a_message_arrives() {
    let house = House::start().await;
    let talk = house.conversation_under(tokens_only(500)).await;
    talk.append(&prose(0, 300)).await;
    house.run_jobs_until_idle().await;
    assert!(talk.checkpoints().await.is_empty(), "one message cannot be cut off");
    assert!(talk.jobs().await.is_empty(), "nothing waits for what cannot be done: {:?}", talk.jobs().await);
    assert_eq!(house.run_jobs_until_idle().await, 0);
    let built = talk.context().await;
    assert_eq!(built.said()[0].1, prose(0, 300));
    talk.append_all(vec![assistant("That is long."), user("Is it?"), assistant("Yes.")]).await;
    house.run_jobs_until_idle().await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].last_message_id, 2, "the last turn stays");
    talk.context().await.assert_covers(4);
    talk.verify().await;
}

/// One user message, then `count` exchanges of a call and its result.
fn long_turn(asked: &str, count: usize) -> Vec<pb::NewMessage> {
    let exchanges = (0..count).flat_map(|n| {
        let id = format!("call-{n}");
        [call(&id, &format!("{{\"day\": {n}}}")), result(&id, &prose(n, 2))]
    });
    std::iter::once(user(asked)).chain(exchanges).collect()
}

#[tokio::test]
async fn a_turn_longer_than_every_threshold_is_split_between_complete_exchanges() {
    let house = House::start().await;
    let asked = "Find out which team filed report 4711-B, and do not stop before you know.";
    for (threshold, count) in [(800, 20), (740, 0), (690, 0), (4_000, 23)] {
        let policy = pb::Policy { max_message_count: Some(count), ..tokens_only(threshold) };
        let talk = house.conversation_under(policy).await;
        talk.append_all(long_turn(asked, 40)).await;
        house.run_jobs_until_idle().await;
        let newest = talk.checkpoints().await.remove(0);
        assert!(newest.summary.contains(asked), "the turn's question is quoted: {}", newest.summary);
        assert_eq!(newest.last_message_id % 2, 1, "cut after a result");
        let built = talk.context().await;
        built.assert_covers(81);
        built.assert_tools_paired();
        assert!(built.0.repairs.is_empty(), "{:?}", built.0.repairs);
        assert_eq!(built.0.messages[1].role(), Role::Assistant, "the tail starts with a call");
        let usage = talk.usage().await;
        assert!(usage.tail_tokens <= threshold / 2, "{usage:?}");
        assert!(count == 0 || usage.tail_messages <= i64::from(count / 2), "{usage:?}");
        talk.verify().await;
    }
}

#[tokio::test]
async fn several_calls_of_one_message_stay_with_all_their_results() {
    let house = House::start().await;
    let policy = pb::Policy { max_message_count: Some(6), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    let calls = ["a", "b", "c", "d"].map(|id| {
        let part = pb::ToolUsePart { id: id.into(), name: "look".into(), input: "{}".into() };
        pb::Part { part: Some(pb::part::Part::ToolUse(part)) }
    });
    let caller = pb::NewMessage { role: Role::Assistant.into(), parts: calls.into(), ..Default::default() };
    talk.append_all(vec![user(&prose(0, 6)), assistant(&prose(6, 6)), user("Look four times."), caller]).await;
    for (n, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        talk.append_all(vec![result(id, &prose(n * 10, 6))]).await;
        house.run_jobs_until_idle().await;
        let built = talk.context().await;
        built.assert_covers(5 + n as i64);
        let dropped = built.0.repairs.iter().any(|repair| repair.kind() == pb::RepairKind::ResultDropped);
        assert!(!dropped, "result {id} lost its call: {:?}", built.0.repairs);
    }
    assert_eq!(talk.context().await.fate(4).0, Representation::Original, "the calls stay with their results");
    assert_eq!(talk.checkpoints().await.len(), 1);
    talk.verify().await;
}

#[tokio::test]
async fn summaries_are_fed_forward_and_keep_the_facts_of_the_first() {
    let house = House::start().await;
    let policy = pb::Policy { max_message_count: Some(20), keep_recent_turns: Some(2), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    talk.turn("My booking reference is QX7719 and my name is Ida Marlowe.", "Noted: QX7719 for Ida Marlowe.").await;
    for from in (0..50).step_by(10) {
        say(&talk, from, 10).await;
    }
    let checkpoints = talk.checkpoints().await;
    assert!(checkpoints.len() >= 2, "{}", checkpoints.len());
    for (index, checkpoint) in checkpoints.iter().rev().enumerate() {
        assert_eq!(checkpoint.generation as usize, index + 1);
        assert_eq!(checkpoint.first_message_id, 1);
        let before = if index == 0 { 0 } else { checkpoints[checkpoints.len() - index].last_message_id };
        assert_eq!(checkpoint.source_first_message_id, before + 1, "each reads on where the last one ended");
        assert!(checkpoint.summary.contains("QX7719"), "generation {}: {}", index + 1, checkpoint.summary);
        assert!(checkpoint.valid);
    }
    talk.verify().await;
}

#[tokio::test]
async fn a_checkpoint_says_where_it_comes_from() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 50).await;
    let made = talk.checkpoints().await.remove(0);
    assert_eq!((made.conversation_id.as_str(), made.first_message_id, made.last_message_id), (talk.id.as_str(), 1, 40));
    assert_eq!((made.kind(), made.generation, made.source_first_message_id), (pb::SummaryKind::Extractive, 1, 1));
    assert!(!made.model.is_empty() && made.prompt_version > 0);
    assert_eq!(made.source_digest.len(), 32);
    assert!(made.focus.is_empty() && made.created_time.is_some() && made.valid);
    assert!(made.tokens_after < made.tokens_before, "{} tokens became {}", made.tokens_before, made.tokens_after);
    let usage = talk.usage().await;
    assert_eq!(made.tokens_after, made.token_usage + usage.tail_tokens);

    let other = house.conversation().await;
    other.append(&made.summary).await;
    house.run_jobs_until_idle().await;
    assert_eq!(other.message(1).await.tokens.expect("counted").tokens, made.token_usage, "counted, not guessed");
}

#[tokio::test]
async fn nought_to_five_messages_survive_the_lowest_thresholds() {
    let house = House::start().await;
    let lowest = pb::Policy {
        token_threshold: Some(1),
        max_message_count: Some(1),
        keep_recent_turns: Some(1),
        large_message_threshold: Some(0),
        hot_zone_radius: Some(0),
        ..Default::default()
    };
    let talk = house.conversation_under(lowest.clone()).await;
    for count in 0..=5_usize {
        if count > 0 {
            say(&talk, count - 1, 1).await;
        }
        assert!(talk.jobs().await.is_empty(), "after {count} messages: {:?}", talk.jobs().await);
        let built = talk.context().await;
        built.assert_covers(count as i64);
        assert_eq!(built.0.messages.is_empty(), count == 0, "a context is empty only when nothing was said");
        talk.verify().await;
        if count > 0 {
            assert_eq!(built.fate(count as i64).0, Representation::Original, "the newest message stays, of {count}");
            let talk = house.conversation_under(lowest.clone()).await;
            say(&talk, 0, count).await;
            talk.context().await.assert_covers(count as i64);
            talk.verify().await;
        }
    }
}
