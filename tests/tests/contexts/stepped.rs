//! Stepped cooling: swaps wait until waiting has cost half of what they cost, then all go together and stay; lazy summaries.

use anneal_tests::{Built, House, Talk, call, pb, prose, result, user};
use pb::{BreakReason, Reason, Representation};

/// The profile for agents; large is more than 200 tokens, and no checkpoint comes in between.
fn agents() -> pb::Policy {
    pb::Policy {
        profile: "agents".into(),
        large_message_threshold: Some(200),
        token_threshold: Some(10_000_000),
        ..Default::default()
    }
}

/// One question, then `calls` tool calls whose results are large: one turn.
async fn tool_run(house: &House, policy: pb::Policy, calls: usize) -> Talk<'_> {
    let talk = house.conversation_under(policy).await;
    talk.append("What was inspected, and where?").await;
    for n in 0..calls {
        exchange(&talk, n).await;
    }
    talk
}

/// A call, and its result of about 1,100 tokens.
async fn exchange(talk: &Talk<'_>, n: usize) {
    let id = format!("call_{n}");
    talk.append_all(vec![call(&id, "{}"), result(&id, &prose(n * 50, 50))]).await;
    talk.house.run_jobs_until_idle().await;
}

fn swapped(built: &Built) -> Vec<i64> {
    let summaries = built.0.manifest.iter().filter(|entry| entry.representation() == Representation::Summary);
    summaries.map(|entry| entry.first_message_id).collect()
}

async fn look(talk: &Talk<'_>) -> Built {
    talk.build(pb::BuildContextRequest { dry_run: true, ..Default::default() }).await.expect("builds")
}

async fn versions(house: &House) -> i64 {
    let mut db = house.db().await;
    sqlx::query_scalar("select count(*) from ai_context_prefix").fetch_one(&mut db).await.expect("counts")
}

#[tokio::test]
async fn a_step_swaps_all_cool_messages_together_and_they_stay_swapped() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 1).await;
    let mut before = talk.context().await;
    let mut steps = 0;
    for n in 1..40 {
        exchange(&talk, n).await;
        let built = talk.context().await;
        let (now, then) = (swapped(&built), swapped(&before));
        assert!(then.iter().all(|id| now.contains(id)), "what is swapped stays so");
        let Some(broken) = &built.0.cache_break else {
            assert_eq!((now, &built.0.prefix_hash), (then, &before.0.prefix_hash));
            assert_eq!(
                built.0.messages[..before.0.messages.len()],
                before.0.messages[..],
                "a longer tail, nothing else"
            );
            assert_eq!(built.0.prefix_stable_until, built.0.last_message_id - 2);
            before = built;
            continue;
        };
        steps += 1;
        assert_ne!(built.0.prefix_hash, before.0.prefix_hash);
        assert_eq!(broken.reason(), BreakReason::Swap);
        assert!(now.len() >= then.len() + 3, "at least 3,000 tokens are saved at once: {now:?} after {then:?}");
        assert_eq!(broken.at_message_id, now[then.len()], "the oldest that is new");
        assert_eq!(built.0.prefix_stable_until, broken.at_message_id - 1);
        assert!(broken.saved_tokens_per_call >= 3_000 && broken.rewritten_tokens > 0);
        let paid = (11.5 * broken.rewritten_tokens as f64 / broken.saved_tokens_per_call as f64).ceil() as u64;
        assert_eq!(broken.pays_back_after_calls, paid);
        before = built;
    }
    assert!((2..8).contains(&steps), "{steps} steps in 40 calls");
    assert_eq!(versions(&house).await, steps + 1, "the first version, and one for each step");
    talk.verify().await;
}

#[tokio::test]
async fn cool_messages_that_wait_for_a_step_say_so_and_a_look_moves_nothing() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 2).await;
    talk.context().await;
    for n in 2..13 {
        exchange(&talk, n).await;
    }
    let looked = look(&talk).await;
    assert_eq!(looked.fate(3), (Representation::Original, Reason::StepPending));
    assert!(looked.entry(3).cool);
    assert_eq!(looked.fate(7), (Representation::Original, Reason::Hot));
    assert_eq!(look(&talk).await, looked);
    assert_eq!(versions(&house).await, 1);
    let other =
        pb::BuildContextRequest { system_prompt: Some("Be brief.".into()), dry_run: true, ..Default::default() };
    let free = talk.build(other.clone()).await.expect("builds");
    assert_eq!(swapped(&free), [3, 5], "another system prompt breaks the cache anyway");
    assert_eq!(free.0.cache_break.as_ref().map(pb::CacheBreak::reason), Some(BreakReason::SystemPrompt));
    assert_eq!(versions(&house).await, 1, "a look records nothing");
    talk.build(pb::BuildContextRequest { dry_run: false, ..other }).await.expect("builds");
    assert_eq!((versions(&house).await, swapped(&talk.context().await)), (2, vec![3, 5]), "what was swapped stays so");
}

#[tokio::test]
async fn an_idle_cache_is_a_free_step() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 2).await;
    talk.context().await;
    for n in 2..13 {
        exchange(&talk, n).await;
    }
    assert_eq!(swapped(&look(&talk).await), Vec::<i64>::new());
    let mut db = house.db().await;
    let older = "update ai_message set created_ts = created_ts - interval '301 seconds'";
    sqlx::query(older).execute(&mut db).await.expect("time passes");
    let cold = talk.context().await;
    assert_eq!(swapped(&cold), [3, 5]);
    let broken = cold.0.cache_break.as_ref().expect("the provider has forgotten");
    assert_eq!((broken.reason(), cold.0.expected_cached_tokens), (BreakReason::Idle, 0));
}

#[tokio::test]
async fn a_budget_forces_the_swap_before_it_cuts() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 2).await;
    talk.context().await;
    for n in 2..13 {
        exchange(&talk, n).await;
    }
    let whole = look(&talk).await.0.total_tokens;
    let built = talk.context_within(whole - 1).await.expect("fits");
    assert_eq!(swapped(&built), [3, 5]);
    assert!(built.0.total_tokens < whole);
    let cut = [Representation::Clipped, Representation::Dropped];
    assert!(built.0.manifest.iter().all(|entry| !cut.contains(&entry.representation())));
}

#[tokio::test]
async fn callers_at_the_same_time_agree_on_one_step() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 2).await;
    talk.context().await;
    for n in 2..13 {
        exchange(&talk, n).await;
    }
    let ask = pb::BuildContextRequest { system_prompt: Some("Be brief.".into()), ..Default::default() };
    let all = futures::future::join_all((0..16).map(|_| talk.build(ask.clone()))).await;
    let all: Vec<Built> = all.into_iter().map(|built| built.expect("builds")).collect();
    assert!(all.iter().all(|built| *built == all[0] && swapped(built) == [3, 5]));
    assert_eq!(versions(&house).await, 2, "one of them has recorded the step");
}

#[tokio::test]
async fn a_summary_that_comes_late_waits_for_the_next_step() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 16).await;
    let mut db = house.db().await;
    let lost =
        "update ai_message set summary_cache = null, summary_tokens = null, summary_kind = null, summary_ts = null
                where message_id = 5 returning content::text";
    sqlx::query(lost).execute(&mut db).await.expect("one has no summary yet");
    let first = talk.context().await;
    assert_eq!(swapped(&first), [3, 7, 9, 11], "the first context is free, what is summarised goes");
    exchange(&talk, 16).await;
    let later = talk.context().await;
    assert_eq!(later.fate(5), (Representation::Original, Reason::StepPending), "below the watermark, and not swapped");
    assert_eq!(later.0.prefix_hash, first.0.prefix_hash);
}

#[tokio::test]
async fn lazy_summaries_are_made_when_a_message_nears_cool() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 8).await;
    let made = async || talk.messages().await.iter().filter(|message| message.summary.is_some()).count();
    assert_eq!(made().await, 0, "eight calls old is not near ten");
    exchange(&talk, 8).await;
    assert_eq!(made().await, 0);
    exchange(&talk, 9).await;
    assert_eq!(made().await, 1, "nine calls have followed the first result");
    let eager = pb::Policy { large_summaries: pb::LargeSummaries::Eager.into(), ..agents() };
    let talk = tool_run(&house, eager, 3).await;
    assert_eq!(talk.messages().await.iter().filter(|message| message.summary.is_some()).count(), 3);
}

#[tokio::test]
async fn lazy_summaries_are_made_when_the_tail_is_half_full() {
    let house = House::start().await;
    let policy = pb::Policy { token_threshold: Some(6_000), keep_recent_tokens: Some(1_000), ..agents() };
    let talk = tool_run(&house, policy, 2).await;
    assert!(talk.messages().await.iter().all(|message| message.summary.is_none()));
    exchange(&talk, 2).await;
    assert!(talk.messages().await.iter().any(|message| message.summary.is_some()), "3,300 of 6,000");
}

#[tokio::test]
async fn strict_cooling_reports_its_breaks_too() {
    let house = House::start().await;
    let policy = pb::Policy { large_message_threshold: Some(200), max_message_count: Some(0), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    talk.turn(&prose(0, 50), "I have read it.").await;
    talk.turns(5).await;
    house.run_jobs_until_idle().await;
    let hot = talk.context().await;
    assert!(hot.0.cache_break.is_none());
    let cool = talk.context_with(vec![user("and now?")]).await;
    let broken = cool.0.cache_break.as_ref().expect("the first message is sent otherwise");
    assert_eq!((broken.reason(), broken.at_message_id), (BreakReason::Swap, 1));
    assert_eq!(broken.saved_tokens_per_call, cool.entry(1).original_tokens - cool.entry(1).tokens);
}

#[tokio::test]
async fn checkpoints_and_separators_break_the_prefix_and_say_so() {
    let house = House::start().await;
    let talk = house.conversation_under(pb::Policy { max_message_count: Some(20), ..Default::default() }).await;
    talk.turns(9).await;
    house.run_jobs_until_idle().await;
    talk.context().await;
    talk.turn(&prose(0, 20), &prose(20, 20)).await;
    house.run_jobs_until_idle().await;
    let built = talk.context().await;
    assert_eq!(built.0.boundary_kind(), pb::BoundaryKind::Checkpoint);
    assert_eq!(built.0.cache_break.as_ref().map(pb::CacheBreak::reason), Some(BreakReason::Checkpoint));
    assert!(talk.context().await.0.cache_break.is_none(), "said once");
    talk.separate().await;
    let separated = talk.context().await;
    assert_eq!(separated.0.cache_break.as_ref().map(pb::CacheBreak::reason), Some(BreakReason::Separator));
    let after = talk.conversation().await.message_count;
    talk.join(after).await;
    let joined = talk.context().await;
    assert_eq!(joined.0.cache_break.as_ref().map(pb::CacheBreak::reason), Some(BreakReason::Separator));
    assert_eq!(joined, built, "the older checkpoint holds again");
}

#[tokio::test]
async fn pressure_and_budgets_leave_what_is_swapped_swapped() {
    let house = House::start().await;
    let talk = tool_run(&house, agents(), 16).await;
    let free = talk.context().await;
    assert_eq!(swapped(&free), [3, 5, 7, 9, 11]);
    let pressed = pb::BuildContextRequest { pressure: pb::Pressure::TruncateToolResults.into(), ..Default::default() };
    talk.build(pressed).await.expect("builds");
    assert_eq!(talk.context().await, free, "nothing came back");
    talk.context_within(3_000).await.expect("fits");
    let after = talk.context().await;
    assert_eq!(after, free);
    let broken = after.0.cache_break.as_ref().expect("other messages are sent than with the budget");
    assert_eq!((broken.reason(), after.0.prefix_stable_until), (BreakReason::Budget, 0));
}
