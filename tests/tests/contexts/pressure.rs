//! A model has refused a context as too long: what BuildContext does about it, at once and for good.

use anneal_tests::{House, Talk, assert_refused, pb};
use pb::{Pressure, Reason, Representation};
use tonic::Code;

async fn under(talk: &Talk<'_>, pressure: Pressure) -> anneal_tests::Built {
    let ask = pb::BuildContextRequest { pressure: pressure.into(), ..Default::default() };
    talk.build(ask).await.expect("builds")
}

#[tokio::test]
async fn truncating_clips_every_oversized_tool_result_without_a_budget() {
    let house = House::start().await;
    let talk = house.conversation_with_tools().await;
    let plain = talk.context().await;
    let clipped = under(&talk, Pressure::TruncateToolResults).await;
    for n in 0..12 {
        let id = 4 * n + 3;
        assert_eq!(clipped.fate(id), (Representation::Clipped, Reason::Pressure), "message {id}");
        assert!(clipped.entry(id).tokens <= 400 && !clipped.entry(id).clipped.is_empty());
        let range = clipped.entry(id).clipped[0];
        assert!(!talk.range(id, range.offset, range.length).await.0.is_empty(), "what was left out can be fetched");
    }
    assert!(clipped.0.total_tokens < plain.0.total_tokens / 2);
    clipped.assert_covers(48);
    clipped.assert_tools_paired();
    assert_eq!(talk.context().await, plain, "only where it is asked for");
}

#[tokio::test]
async fn compacting_puts_a_summary_in_the_place_of_the_older_half_at_once_and_a_checkpoint_follows() {
    let house = House::start().await;
    let talk = house.conversation_with_tools().await;
    let compacted = under(&talk, Pressure::Compact).await;
    assert_eq!(compacted.0.boundary_message_id, 24, "the newest half stays");
    assert_eq!(compacted.fate(24), (Representation::Checkpoint, Reason::Pressure));
    assert!(compacted.said()[0].1.starts_with("[Summary of the conversation up to message 24]"));
    compacted.assert_covers(48);
    compacted.assert_tools_paired();
    let again = under(&talk, Pressure::Compact).await;
    assert_eq!(again, compacted, "the same until something changes");
    assert_eq!(talk.jobs().await.len(), 1, "one compaction, however often it is felt");
    house.run_jobs_until_idle().await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!((checkpoints.len(), checkpoints[0].last_message_id), (1, 24));
    let after = talk.context().await;
    assert_eq!(after.0.boundary_kind(), pb::BoundaryKind::Checkpoint);
    assert_eq!(after.said()[0], compacted.said()[0], "the checkpoint says what was said at once");
    talk.verify().await;
}

#[tokio::test]
async fn a_look_under_pressure_queues_nothing() {
    let house = House::start().await;
    let talk = house.conversation_with_tools().await;
    let ask = pb::BuildContextRequest { pressure: Pressure::Compact.into(), dry_run: true, ..Default::default() };
    assert_eq!(talk.build(ask).await.expect("builds").0.boundary_message_id, 24);
    assert!(talk.jobs().await.is_empty());
}

#[tokio::test]
async fn short_and_empty_conversations_stand_pressure() {
    let house = House::start().await;
    for turns in 0..3 {
        let talk = house.conversation().await;
        talk.turns(turns).await;
        for pressure in [Pressure::TruncateToolResults, Pressure::Compact] {
            under(&talk, pressure).await.assert_covers(2 * turns as i64);
        }
        house.run_jobs_until_idle().await;
        assert!(talk.checkpoints().await.is_empty(), "nothing shorter can be said");
    }
}

#[tokio::test]
async fn unknown_formats_and_pressures_are_refused_by_field() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let refused = async |ask: pb::BuildContextRequest, field: &str| {
        assert_refused(talk.build(ask).await, Code::InvalidArgument, "INVALID_FIELD", field);
    };
    refused(pb::BuildContextRequest { format: 9, ..Default::default() }, "format").await;
    refused(pb::BuildContextRequest { pressure: -1, ..Default::default() }, "pressure").await;
    refused(pb::BuildContextRequest { budget_tokens: Some(0), ..Default::default() }, "budget_tokens").await;
    let profile = pb::Policy { profile: "none".into(), ..Default::default() };
    refused(pb::BuildContextRequest { dry_run: true, policy: Some(profile), ..Default::default() }, "policy.profile")
        .await;
    let negative = pb::Policy { hot_zone_radius: Some((-1_i32).cast_unsigned()), ..Default::default() };
    let ask = pb::BuildContextRequest { dry_run: true, policy: Some(negative), ..Default::default() };
    refused(ask, "policy.hot_zone_radius").await;
    let long = pb::BuildContextRequest { model: "m".repeat(129), ..Default::default() };
    assert_refused(talk.build(long).await, Code::InvalidArgument, "LIMIT_EXCEEDED", "model");
}

#[tokio::test]
async fn the_stored_checkpoint_after_pressure_is_a_break_that_rewrites_everything() {
    let house = House::start().await;
    let talk = house.conversation_with_tools().await;
    talk.context().await;
    let compacted = under(&talk, Pressure::Compact).await.0;
    house.run_jobs_until_idle().await;
    let after = talk.context().await.0;
    assert_eq!(after.boundary_message_id, compacted.boundary_message_id);
    assert_ne!(after.prefix_hash, compacted.prefix_hash, "a summariser that is a model says it otherwise");
    let broken = after.cache_break.expect("a break");
    assert_eq!((broken.reason(), broken.at_message_id), (pb::BreakReason::Checkpoint, 0));
    assert_eq!(after.expected_cached_tokens, 0);
    assert_eq!(talk.context().await.0.prefix_hash, after.prefix_hash);
}

#[tokio::test]
async fn pressure_does_not_displace_a_compaction_that_somebody_asked_for() {
    let house = House::start().await;
    let talk = house.conversation_with_tools().await;
    let ask = pb::CompactRequest {
        conversation_id: talk.id.clone(),
        request_id: "mine".into(),
        focus: "the turbines".into(),
        ..Default::default()
    };
    house.contexts().compact(ask).await.expect("queues");
    under(&talk, Pressure::Compact).await;
    house.run_jobs_until_idle().await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.iter().map(|made| made.focus.as_str()).collect::<Vec<_>>(), ["the turbines"]);
}
