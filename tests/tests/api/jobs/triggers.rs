//! Checkpoints: when one is written, where it cuts, and what it records about itself.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    TestApp, TestConversation, assert_refused, assistant, call, pb, prose, result, sentence, user,
};
use pb::{CheckpointTrigger, Representation, Role};
use tonic::Code;

/// Appends `count` messages, numbered from `from`, at most a hundred per append, and runs all jobs.
/// Messages with even numbers are the user's, the others are the assistant's.
async fn append_messages(conversation: &TestConversation<'_>, from: usize, count: usize) {
    let messages: Vec<_> = (from..from + count)
        .map(|n| {
            if n % 2 == 0 {
                user(&sentence(n))
            } else {
                assistant(&sentence(n))
            }
        })
        .collect();
    for batch in messages.chunks(100) {
        conversation.append_all(batch.to_vec()).await;
    }
    conversation.app.run_jobs_until_idle().await;
}

/// A policy whose only trigger is a token threshold.
fn tokens_only(threshold: u64) -> pb::Policy {
    pb::Policy {
        token_threshold: Some(threshold),
        max_message_count: Some(0),
        ..Default::default()
    }
}

#[tokio::test]
async fn row_D2_a_checkpoint_is_written_at_the_token_threshold_but_not_one_token_below() {
    let app = TestApp::start().await;
    let counted = app.conversation().await;
    append_messages(&counted, 0, 30).await;
    let total: u64 = counted
        .messages()
        .await
        .iter()
        .map(|message| message.tokens.expect("counted").tokens)
        .sum();
    assert_eq!(counted.usage().await.tail_tokens, total);
    let below_threshold = app.conversation_with_policy(tokens_only(total + 1)).await;
    append_messages(&below_threshold, 0, 30).await;
    assert!(
        below_threshold.checkpoints().await.is_empty(),
        "the tail is one token below the threshold"
    );
    let at_threshold = app.conversation_with_policy(tokens_only(total)).await;
    append_messages(&at_threshold, 0, 30).await;
    let checkpoints = at_threshold.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].trigger(), CheckpointTrigger::Tokens);
    assert_eq!(checkpoints[0].tokens_before, total);
    let usage = at_threshold.usage().await;
    assert!(
        usage.tail_tokens <= total / 2,
        "the tail is within half of the threshold: {usage:?}"
    );
    assert_eq!(usage.tail_messages, 10, "the last five turns are kept");
    at_threshold.verify().await;
}

#[tokio::test]
async fn row_D2_a_checkpoint_is_written_at_the_fiftieth_message_but_not_at_the_forty_ninth() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_messages(&conversation, 0, 49).await;
    assert!(conversation.checkpoints().await.is_empty() && conversation.jobs().await.is_empty());
    append_messages(&conversation, 49, 1).await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(
        (checkpoints[0].last_message_id, checkpoints[0].trigger()),
        (40, CheckpointTrigger::Messages)
    );
    append_messages(&conversation, 50, 39).await;
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "the tail holds 49 messages again"
    );
    append_messages(&conversation, 89, 1).await;
    assert_eq!(conversation.checkpoints().await.len(), 2);
    conversation.context().await.assert_covers(90);
    conversation.verify().await;
}

#[tokio::test]
async fn separators_are_not_counted_as_messages() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.insert_separator().await;
    append_messages(&conversation, 0, 49).await;
    assert_eq!(conversation.usage().await.tail_messages, 49);
    assert!(conversation.checkpoints().await.is_empty());
    conversation.delete_separator(0).await;
    app.run_jobs_until_idle().await;
    assert!(
        conversation.checkpoints().await.is_empty(),
        "49 messages; the deleted separator does not count"
    );
    append_messages(&conversation, 49, 1).await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_message_swapped_for_its_summary_counts_with_the_summarys_size() {
    let app = TestApp::start().await;
    let append_turns = async |conversation: &TestConversation<'_>| {
        conversation.turn(&prose(0, 120), "read").await;
        app.run_jobs_until_idle().await;
        for turn in 0..6 {
            conversation.turn(&sentence(turn), "noted").await;
            app.run_jobs_until_idle().await;
        }
    };
    let plain = app.conversation_with_policy(tokens_only(1_000_000)).await;
    append_turns(&plain).await;
    let all_tokens = plain.usage().await.tail_tokens;
    let last_turn_tokens: u64 = plain.messages().await[12..]
        .iter()
        .map(|message| message.tokens.expect("counted").tokens)
        .sum();
    let threshold = all_tokens - last_turn_tokens + 1;
    let without_swap = app.conversation_with_policy(tokens_only(threshold)).await;
    append_turns(&without_swap).await;
    assert_eq!(
        without_swap.checkpoints().await.len(),
        1,
        "without a swap the seventh turn exceeds the threshold"
    );
    let swapping = pb::Policy {
        large_message_threshold: Some(500),
        ..tokens_only(threshold)
    };
    let conversation = app.conversation_with_policy(swapping).await;
    append_turns(&conversation).await;
    assert!(
        conversation.checkpoints().await.is_empty(),
        "with the swap the threshold is not reached"
    );
    let usage = conversation.usage().await;
    let saved = {
        let large = conversation.message(1).await;
        large.tokens.expect("counted").tokens - large.summary.expect("summarized").tokens
    };
    assert_eq!((usage.swapped_messages, usage.saved_tokens), (1, saved));
    assert_eq!(usage.tail_tokens, all_tokens - saved);
}

#[tokio::test]
async fn a_checkpoint_that_cannot_cut_is_not_retried_until_a_message_arrives() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(tokens_only(500)).await;
    conversation.append(&prose(0, 300)).await;
    app.run_jobs_until_idle().await;
    assert!(
        conversation.checkpoints().await.is_empty(),
        "one message cannot be cut off"
    );
    assert!(
        conversation.jobs().await.is_empty(),
        "no job waits for a cut that is not possible: {:?}",
        conversation.jobs().await
    );
    assert_eq!(app.run_jobs_until_idle().await, 0);
    let built = conversation.context().await;
    assert_eq!(built.texts_by_role()[0].1, prose(0, 300));
    conversation
        .append_all(vec![
            assistant("That is long."),
            user("Is it?"),
            assistant("Yes."),
        ])
        .await;
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].last_message_id, 2, "the last turn is kept");
    conversation.context().await.assert_covers(4);
    conversation.verify().await;
}

/// One user message, then `count` tool calls with their results.
fn long_turn(question: &str, count: usize) -> Vec<pb::NewMessage> {
    let exchanges = (0..count).flat_map(|n| {
        let id = format!("call-{n}");
        [
            call(&id, &format!("{{\"day\": {n}}}")),
            result(&id, &prose(n, 2)),
        ]
    });
    std::iter::once(user(question)).chain(exchanges).collect()
}

#[tokio::test]
async fn a_turn_longer_than_every_threshold_is_cut_between_a_result_and_the_next_call() {
    let app = TestApp::start().await;
    let question = "Find out which team filed report 4711-B, and do not stop before you know.";
    // The turn exceeds a threshold of each pair. A threshold of 0 messages is none.
    for (threshold, max_messages) in [(800, 20), (740, 0), (690, 0), (4_000, 23)] {
        let policy = pb::Policy {
            max_message_count: Some(max_messages),
            ..tokens_only(threshold)
        };
        let conversation = app.conversation_with_policy(policy).await;
        conversation.append_all(long_turn(question, 40)).await;
        app.run_jobs_until_idle().await;
        let newest = conversation.checkpoints().await.remove(0);
        assert!(
            newest.summary.contains(question),
            "the turn's question is quoted: {}",
            newest.summary
        );
        assert_eq!(newest.last_message_id % 2, 1, "the cut follows a result");
        let built = conversation.context().await;
        built.assert_covers(81);
        built.assert_tools_paired();
        assert!(built.0.repairs.is_empty(), "{:?}", built.0.repairs);
        assert_eq!(
            built.0.messages[1].role(),
            Role::Assistant,
            "the tail starts with a call"
        );
        let usage = conversation.usage().await;
        assert!(usage.tail_tokens <= threshold / 2, "{usage:?}");
        assert!(
            max_messages == 0 || usage.tail_messages <= i64::from(max_messages / 2),
            "{usage:?}"
        );
        conversation.verify().await;
    }
}

#[tokio::test]
async fn several_calls_of_one_message_stay_with_all_their_results() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(6),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let calls = ["a", "b", "c", "d"].map(|id| {
        let part = pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: "{}".into(),
        };
        pb::Part {
            part: Some(pb::part::Part::ToolUse(part)),
        }
    });
    let with_calls = pb::NewMessage {
        role: Role::Assistant.into(),
        parts: calls.into(),
        ..Default::default()
    };
    conversation
        .append_all(vec![
            user(&prose(0, 6)),
            assistant(&prose(6, 6)),
            user("Look four times."),
            with_calls,
        ])
        .await;
    for (n, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        conversation
            .append_all(vec![result(id, &prose(n * 10, 6))])
            .await;
        app.run_jobs_until_idle().await;
        let built = conversation.context().await;
        built.assert_covers(5 + n as i64);
        let dropped = built
            .0
            .repairs
            .iter()
            .any(|repair| repair.kind() == pb::RepairKind::ResultDropped);
        assert!(!dropped, "result {id} lost its call: {:?}", built.0.repairs);
    }
    assert_eq!(
        conversation.context().await.representation(4).0,
        Representation::Original,
        "the calls stay with their results"
    );
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn each_summary_includes_the_facts_of_the_previous_one() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(20),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation
        .turn(
            "My booking reference is QX7719 and my name is Ida Marlowe.",
            "Noted: QX7719 for Ida Marlowe.",
        )
        .await;
    for from in (0..50).step_by(10) {
        append_messages(&conversation, from, 10).await;
    }
    let checkpoints = conversation.checkpoints().await;
    assert!(checkpoints.len() >= 2, "{}", checkpoints.len());
    for (index, checkpoint) in checkpoints.iter().rev().enumerate() {
        assert_eq!(checkpoint.generation as usize, index + 1);
        assert_eq!(checkpoint.first_message_id, 1);
        let previous_last = if index == 0 {
            0
        } else {
            checkpoints[checkpoints.len() - index].last_message_id
        };
        assert_eq!(
            checkpoint.source_first_message_id,
            previous_last + 1,
            "each checkpoint starts where the previous one ended"
        );
        assert!(
            checkpoint.summary.contains("QX7719"),
            "generation {}: {}",
            index + 1,
            checkpoint.summary
        );
        assert!(checkpoint.valid);
    }
    conversation.verify().await;
}

#[tokio::test]
async fn a_checkpoint_records_its_provenance() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_messages(&conversation, 0, 50).await;
    let checkpoint = conversation.checkpoints().await.remove(0);
    assert_eq!(
        (
            checkpoint.conversation_id.as_str(),
            checkpoint.first_message_id,
            checkpoint.last_message_id
        ),
        (conversation.id.as_str(), 1, 40)
    );
    assert_eq!(
        (
            checkpoint.kind(),
            checkpoint.generation,
            checkpoint.source_first_message_id
        ),
        (pb::SummaryKind::Extractive, 1, 1)
    );
    assert!(!checkpoint.model.is_empty() && checkpoint.prompt_version > 0);
    assert_eq!(checkpoint.source_digest.len(), 32);
    assert!(checkpoint.focus.is_empty() && checkpoint.created_time.is_some() && checkpoint.valid);
    assert!(
        checkpoint.tokens_after < checkpoint.tokens_before,
        "{} tokens became {}",
        checkpoint.tokens_before,
        checkpoint.tokens_after
    );
    let usage = conversation.usage().await;
    assert_eq!(
        checkpoint.tokens_after,
        checkpoint.token_usage + usage.tail_tokens
    );

    let other = app.conversation().await;
    other.append(&checkpoint.summary).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        other.message(1).await.tokens.expect("counted").tokens,
        checkpoint.token_usage,
        "the size of the summary is counted, not estimated"
    );
}

#[tokio::test]
async fn conversations_of_up_to_five_messages_stay_complete_at_the_lowest_thresholds() {
    let app = TestApp::start().await;
    // The context stands for every message: as it was said, or in a checkpoint. 0 as the large
    // message threshold makes every message large.
    let lowest = pb::Policy {
        token_threshold: Some(1),
        max_message_count: Some(1),
        keep_recent_turns: Some(1),
        large_message_threshold: Some(0),
        hot_zone_radius: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(lowest.clone()).await;
    for count in 0..=5_usize {
        if count > 0 {
            append_messages(&conversation, count - 1, 1).await;
        }
        assert!(
            conversation.jobs().await.is_empty(),
            "after {count} messages: {:?}",
            conversation.jobs().await
        );
        let built = conversation.context().await;
        built.assert_covers(count as i64);
        assert_eq!(
            built.0.messages.is_empty(),
            count == 0,
            "a context is empty only if there are no messages"
        );
        conversation.verify().await;
        if count > 0 {
            assert_eq!(
                built.representation(count as i64).0,
                Representation::Original,
                "the newest of {count} messages is kept"
            );
            let at_once = app.conversation_with_policy(lowest.clone()).await;
            append_messages(&at_once, 0, count).await;
            at_once.context().await.assert_covers(count as i64);
            at_once.verify().await;
        }
    }
}

#[tokio::test]
async fn a_grown_system_prompt_does_not_make_a_checkpoint_at_every_call() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(4_500),
        max_message_count: Some(0),
        keep_recent_tokens: Some(1_000),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let longer = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.id.clone(),
            system_prompt: "Be brief.".into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["system_prompt".into()],
        }),
        ..Default::default()
    };
    assert_refused(
        app.conversations().update_conversation(longer).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation.system_prompt",
    );
    // As an older version has stored it.
    sqlx::query("update ai_conversation set system_prompt = 'long', system_prompt_tokens = 20000")
        .execute(&mut app.db().await)
        .await
        .expect("changes");
    assert_eq!(
        conversation.usage().await.token_threshold,
        (20_000 + 1_000) * 3 / 2 - 20_000,
        "1.5 times what a checkpoint leaves, less the system prompt"
    );
    let mut from = 0;
    while conversation.usage().await.tail_tokens < 5_000 {
        append_messages(&conversation, from, 50).await;
        from += 50;
    }
    assert!(
        conversation.checkpoints().await.is_empty(),
        "4,500 tokens are no longer enough"
    );
}
