//! Stepped cooling and lazy summaries. Cool messages are not swapped for their summaries one by
//! one, because each swap breaks the provider's cache. They wait until sending the originals has
//! cost half of what swapping costs. Then all of them are swapped together (a step) and stay
//! swapped.

use anneal_testkit::{Built, TestApp, TestConversation, call, pb, prose, result, user};
use pb::{BreakReason, Reason, Representation};

/// The profile `agents`. Messages above 200 tokens are large. No checkpoint is triggered.
fn agents_policy() -> pb::Policy {
    pb::Policy {
        profile: "agents".into(),
        large_message_threshold: Some(200),
        token_threshold: Some(10_000_000),
        ..Default::default()
    }
}

/// Creates a conversation of one turn: a question, then `calls` tool calls with large results.
async fn conversation_with_tool_run(
    app: &TestApp,
    policy: pb::Policy,
    calls: usize,
) -> TestConversation<'_> {
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append("What was inspected, and where?").await;
    for n in 0..calls {
        append_exchange(&conversation, n).await;
    }
    conversation
}

/// Appends a tool call and its result of about 1,100 tokens.
async fn append_exchange(conversation: &TestConversation<'_>, n: usize) {
    let id = format!("call_{n}");
    conversation
        .append_all(vec![call(&id, "{}"), result(&id, &prose(n * 50, 50))])
        .await;
    conversation.app.run_jobs_until_idle().await;
}

/// Ids of the messages that are sent as their summaries.
fn swapped_ids(built: &Built) -> Vec<i64> {
    let summaries = built
        .0
        .manifest
        .iter()
        .filter(|entry| entry.representation() == Representation::Summary);
    summaries.map(|entry| entry.first_message_id).collect()
}

/// Builds a context as a dry run.
async fn preview(conversation: &TestConversation<'_>) -> Built {
    conversation
        .build(pb::BuildContextRequest {
            dry_run: true,
            ..Default::default()
        })
        .await
        .expect("builds")
}

/// Counts the recorded versions of the conversation's beginning.
async fn count_prefix_versions(app: &TestApp) -> i64 {
    let mut db = app.db().await;
    sqlx::query_scalar("select count(*) from ai_context_prefix")
        .fetch_one(&mut db)
        .await
        .expect("counts")
}

#[tokio::test]
async fn a_step_swaps_all_cool_messages_together_and_they_stay_swapped() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 1).await;
    let mut before = conversation.context().await;
    let mut steps = 0;
    for n in 1..40 {
        append_exchange(&conversation, n).await;
        let built = conversation.context().await;
        let (now, then) = (swapped_ids(&built), swapped_ids(&before));
        assert!(
            then.iter().all(|id| now.contains(id)),
            "swapped messages stay swapped"
        );
        let Some(broken) = &built.0.cache_break else {
            assert_eq!((now, &built.0.prefix_hash), (then, &before.0.prefix_hash));
            assert_eq!(
                built.0.messages[..before.0.messages.len()],
                before.0.messages[..],
                "only the tail has grown"
            );
            // All but the two messages of the newest exchange were in the previous context.
            assert_eq!(built.0.prefix_stable_until, built.0.last_message_id - 2);
            before = built;
            continue;
        };
        steps += 1;
        assert_ne!(built.0.prefix_hash, before.0.prefix_hash);
        assert_eq!(broken.reason(), BreakReason::Swap);
        assert!(
            now.len() >= then.len() + 2,
            "at least 2,000 tokens are saved at once: {now:?} after {then:?}"
        );
        assert_eq!(
            broken.at_message_id,
            now[then.len()],
            "the cache breaks at the oldest message that is newly swapped"
        );
        assert_eq!(built.0.prefix_stable_until, broken.at_message_id - 1);
        assert!(broken.saved_tokens_per_call >= 2_000 && broken.rewritten_tokens > 0);
        // In uncached input tokens, a rewritten token costs 1.25 (written to the cache) instead of
        // 0.1 (read from it). A saved token saves 0.1 per call. (1.25 - 0.1) / 0.1 = 11.5.
        let calls = (11.5 * broken.rewritten_tokens as f64 / broken.saved_tokens_per_call as f64)
            .ceil() as u64;
        assert_eq!(broken.pays_back_after_calls, calls);
        before = built;
    }
    assert!((2..8).contains(&steps), "{steps} steps in 40 calls");
    assert_eq!(
        count_prefix_versions(&app).await,
        steps + 1,
        "the first version, and one for each step"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn cool_messages_waiting_for_a_step_are_marked_and_a_preview_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 2).await;
    conversation.context().await;
    for n in 2..13 {
        append_exchange(&conversation, n).await;
    }
    // Of the 13 results, messages 3 and 5 are cool: more than ten calls have followed each.
    let previewed = preview(&conversation).await;
    assert_eq!(
        previewed.representation(3),
        (Representation::Original, Reason::StepPending)
    );
    assert!(previewed.entry(3).cool);
    assert_eq!(
        previewed.representation(7),
        (Representation::Original, Reason::Hot)
    );
    assert_eq!(preview(&conversation).await, previewed);
    assert_eq!(count_prefix_versions(&app).await, 1);
    let other = pb::BuildContextRequest {
        system_prompt: Some("Be brief.".into()),
        dry_run: true,
        ..Default::default()
    };
    let with_other_prompt = conversation.build(other.clone()).await.expect("builds");
    assert_eq!(
        swapped_ids(&with_other_prompt),
        [3, 5],
        "another system prompt breaks the cache in any case"
    );
    assert_eq!(
        with_other_prompt
            .0
            .cache_break
            .as_ref()
            .map(pb::CacheBreak::reason),
        Some(BreakReason::SystemPrompt)
    );
    assert_eq!(
        count_prefix_versions(&app).await,
        1,
        "a preview records nothing"
    );
    conversation
        .build(pb::BuildContextRequest {
            dry_run: false,
            ..other
        })
        .await
        .expect("builds");
    assert_eq!(
        (
            count_prefix_versions(&app).await,
            swapped_ids(&conversation.context().await)
        ),
        (2, vec![3, 5]),
        "swapped messages stay swapped"
    );
}

#[tokio::test]
async fn a_step_is_taken_when_the_providers_cache_is_cold() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 2).await;
    conversation.context().await;
    for n in 2..13 {
        append_exchange(&conversation, n).await;
    }
    assert_eq!(
        swapped_ids(&preview(&conversation).await),
        Vec::<i64>::new()
    );
    let mut db = app.db().await;
    // A provider keeps its cache for 300 seconds after the last call.
    let age_messages = "update ai_message set created_ts = created_ts - interval '301 seconds'";
    sqlx::query(age_messages)
        .execute(&mut db)
        .await
        .expect("the cache grows cold");
    let cold = conversation.context().await;
    assert_eq!(swapped_ids(&cold), [3, 5]);
    let broken = cold
        .0
        .cache_break
        .as_ref()
        .expect("the provider's cache is cold");
    assert_eq!(
        (broken.reason(), cold.0.expected_cached_tokens),
        (BreakReason::Idle, 0)
    );
}

#[tokio::test]
async fn the_age_of_the_providers_cache_counts_from_the_beginning_of_the_last_call() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 2).await;
    conversation.context().await;
    let mut db = app.db().await;
    // Message 4 is the answer of the last call, message 3 completed the call's input.
    let mut reason_after_aging = async |message: i64| {
        sqlx::query(
            "update ai_message set created_ts = created_ts - interval '301 seconds' where message_id = $1",
        )
        .bind(message)
        .execute(&mut db)
        .await
        .expect("a message grows old");
        let built = conversation.context().await;
        built.0.cache_break.map(|broken| broken.reason())
    };
    assert_eq!(reason_after_aging(4).await, None);
    assert_eq!(reason_after_aging(3).await, Some(BreakReason::Idle));
}

#[tokio::test]
async fn cool_messages_are_swapped_for_a_budget_before_anything_is_clipped() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 2).await;
    conversation.context().await;
    for n in 2..13 {
        append_exchange(&conversation, n).await;
    }
    let whole = preview(&conversation).await.0.total_tokens;
    let built = conversation.context_within(whole - 1).await.expect("fits");
    assert_eq!(swapped_ids(&built), [3, 5]);
    assert!(built.0.total_tokens < whole);
    let shortened = [Representation::Clipped, Representation::Dropped];
    assert!(
        built
            .0
            .manifest
            .iter()
            .all(|entry| !shortened.contains(&entry.representation()))
    );
}

#[tokio::test]
async fn concurrent_callers_agree_on_one_step() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 2).await;
    conversation.context().await;
    for n in 2..13 {
        append_exchange(&conversation, n).await;
    }
    let ask = pb::BuildContextRequest {
        system_prompt: Some("Be brief.".into()),
        ..Default::default()
    };
    let all = futures::future::join_all((0..16).map(|_| conversation.build(ask.clone()))).await;
    let all: Vec<Built> = all
        .into_iter()
        .map(|built| built.expect("builds"))
        .collect();
    assert!(
        all.iter()
            .all(|built| *built == all[0] && swapped_ids(built) == [3, 5])
    );
    assert_eq!(
        count_prefix_versions(&app).await,
        2,
        "one caller has recorded the step"
    );
}

#[tokio::test]
async fn a_late_summary_waits_for_the_next_step() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 16).await;
    let mut db = app.db().await;
    // Of the 16 results, messages 3, 5, 7, 9 and 11 are cool. Message 5 loses its summary.
    let remove_summary =
        "update ai_message set summary_cache = null, summary_tokens = null, summary_kind = null, summary_ts = null
                where message_id = 5";
    sqlx::query(remove_summary)
        .execute(&mut db)
        .await
        .expect("removes the summary");
    let first = conversation.context().await;
    assert_eq!(
        swapped_ids(&first),
        [3, 7, 9, 11],
        "the first context has no cache to break, so messages with summaries are swapped"
    );
    append_exchange(&conversation, 16).await;
    let later = conversation.context().await;
    assert_eq!(
        later.representation(5),
        (Representation::Original, Reason::StepPending),
        "it is older than swapped messages and still waits for the next step"
    );
    assert_eq!(later.0.prefix_hash, first.0.prefix_hash);
}

#[tokio::test]
async fn lazy_summaries_are_written_when_a_message_is_nearly_cool() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 8).await;
    let count_summaries = async || {
        conversation
            .messages()
            .await
            .iter()
            .filter(|message| message.summary.is_some())
            .count()
    };
    assert_eq!(
        count_summaries().await,
        0,
        "a message is hot for ten calls, and only seven have followed the first result"
    );
    append_exchange(&conversation, 8).await;
    assert_eq!(count_summaries().await, 0);
    append_exchange(&conversation, 9).await;
    assert_eq!(
        count_summaries().await,
        1,
        "nine calls have followed the first result"
    );
    let eager = pb::Policy {
        large_summaries: pb::LargeSummaries::Eager.into(),
        ..agents_policy()
    };
    let conversation = conversation_with_tool_run(&app, eager, 3).await;
    assert_eq!(
        conversation
            .messages()
            .await
            .iter()
            .filter(|message| message.summary.is_some())
            .count(),
        3
    );
}

#[tokio::test]
async fn lazy_summaries_are_written_when_the_tail_is_half_full() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(6_000),
        keep_recent_tokens: Some(1_000),
        ..agents_policy()
    };
    let conversation = conversation_with_tool_run(&app, policy, 2).await;
    assert!(
        conversation
            .messages()
            .await
            .iter()
            .all(|message| message.summary.is_none())
    );
    append_exchange(&conversation, 2).await;
    assert!(
        conversation
            .messages()
            .await
            .iter()
            .any(|message| message.summary.is_some()),
        "the tail has 3,300 tokens of the threshold's 6,000"
    );
}

#[tokio::test]
async fn strict_cooling_reports_its_cache_breaks() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turn(&prose(0, 50), "I have read it.").await;
    conversation.turns(5).await;
    app.run_jobs_until_idle().await;
    let hot = conversation.context().await;
    assert!(hot.0.cache_break.is_none());
    let cool = conversation.context_with(vec![user("and now?")]).await;
    let broken = cool
        .0
        .cache_break
        .as_ref()
        .expect("the first message is now sent as its summary");
    assert_eq!(
        (broken.reason(), broken.at_message_id),
        (BreakReason::Swap, 1)
    );
    assert_eq!(
        broken.saved_tokens_per_call,
        cool.entry(1).original_tokens - cool.entry(1).tokens
    );
}

#[tokio::test]
async fn checkpoints_and_separators_are_reported_as_cache_breaks() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            max_message_count: Some(20),
            ..Default::default()
        })
        .await;
    conversation.turns(9).await;
    app.run_jobs_until_idle().await;
    conversation.context().await;
    conversation.turn(&prose(0, 20), &prose(20, 20)).await;
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    assert_eq!(built.0.boundary_kind(), pb::BoundaryKind::Checkpoint);
    assert_eq!(
        built.0.cache_break.as_ref().map(pb::CacheBreak::reason),
        Some(BreakReason::Checkpoint)
    );
    assert!(
        conversation.context().await.0.cache_break.is_none(),
        "a break is reported once"
    );
    conversation.insert_separator().await;
    let separated = conversation.context().await;
    assert_eq!(
        separated.0.cache_break.as_ref().map(pb::CacheBreak::reason),
        Some(BreakReason::Separator)
    );
    let after = conversation.conversation().await.message_count;
    conversation.delete_separator(after).await;
    let without_separator = conversation.context().await;
    assert_eq!(
        without_separator
            .0
            .cache_break
            .as_ref()
            .map(pb::CacheBreak::reason),
        Some(BreakReason::Separator)
    );
    // The comparison of contexts ignores their cache breaks.
    assert_eq!(
        without_separator, built,
        "the older checkpoint is valid again"
    );
}

#[tokio::test]
async fn pressure_and_budgets_keep_swapped_messages_swapped() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tool_run(&app, agents_policy(), 16).await;
    let plain = conversation.context().await;
    assert_eq!(swapped_ids(&plain), [3, 5, 7, 9, 11], "the cool messages");
    let under_pressure = pb::BuildContextRequest {
        pressure: pb::Pressure::TruncateToolResults.into(),
        ..Default::default()
    };
    conversation.build(under_pressure).await.expect("builds");
    assert_eq!(
        conversation.context().await,
        plain,
        "swapped messages stay swapped"
    );
    conversation.context_within(3_000).await.expect("fits");
    let after = conversation.context().await;
    // The comparison of contexts ignores their cache breaks.
    assert_eq!(after, plain);
    let broken = after
        .0
        .cache_break
        .as_ref()
        .expect("the context differs from the one within the budget");
    assert_eq!(
        (broken.reason(), after.0.prefix_stable_until),
        (BreakReason::Budget, 0)
    );
}
