//! BuildContext under pressure. A caller asks for it when a model has refused a context as too
//! long: tool results are clipped, or the older messages are summarized at once and a checkpoint
//! follows.

use anneal_testkit::{TestApp, TestConversation, assert_refused, pb};
use pb::{Pressure, Reason, Representation};
use tonic::Code;

async fn build_under_pressure(
    conversation: &TestConversation<'_>,
    pressure: Pressure,
) -> anneal_testkit::Built {
    let ask = pb::BuildContextRequest {
        pressure: pressure.into(),
        ..Default::default()
    };
    conversation.build(ask).await.expect("builds")
}

#[tokio::test]
async fn truncating_clips_every_oversized_tool_result_without_a_budget() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_tools().await;
    let plain = conversation.context().await;
    let clipped = build_under_pressure(&conversation, Pressure::TruncateToolResults).await;
    for n in 0..12 {
        // Each of the 12 turns is a question, a call, its result and an answer.
        let id = 4 * n + 3;
        assert_eq!(
            clipped.representation(id),
            (Representation::Clipped, Reason::Pressure),
            "message {id}"
        );
        // Under this pressure a result keeps at most 400 tokens.
        assert!(clipped.entry(id).tokens <= 400 && !clipped.entry(id).clipped.is_empty());
        let range = clipped.entry(id).clipped[0];
        assert!(
            !conversation
                .range(id, range.offset, range.length)
                .await
                .0
                .is_empty(),
            "the clipped text can be fetched"
        );
    }
    assert!(clipped.0.total_tokens < plain.0.total_tokens / 2);
    clipped.assert_covers(48);
    clipped.assert_tools_paired();
    assert_eq!(
        conversation.context().await,
        plain,
        "without pressure nothing is clipped"
    );
}

#[tokio::test]
async fn compacting_summarizes_the_older_half_at_once_and_a_checkpoint_follows() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_tools().await;
    let compacted = build_under_pressure(&conversation, Pressure::Compact).await;
    assert_eq!(
        compacted.0.boundary_message_id, 24,
        "the newest half is kept"
    );
    assert_eq!(
        compacted.representation(24),
        (Representation::Checkpoint, Reason::Pressure)
    );
    assert!(
        compacted.texts_by_role()[0]
            .1
            .starts_with("[Summary of the conversation up to message 24]")
    );
    compacted.assert_covers(48);
    compacted.assert_tools_paired();
    let again = build_under_pressure(&conversation, Pressure::Compact).await;
    assert_eq!(
        again, compacted,
        "the context is the same until something changes"
    );
    assert_eq!(
        conversation.jobs().await.len(),
        1,
        "repeated pressure queues one compaction"
    );
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!((checkpoints.len(), checkpoints[0].last_message_id), (1, 24));
    let after = conversation.context().await;
    assert_eq!(after.0.boundary_kind(), pb::BoundaryKind::Checkpoint);
    assert_eq!(
        after.texts_by_role()[0],
        compacted.texts_by_role()[0],
        "the checkpoint has the summary that was sent at once"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_preview_under_pressure_queues_nothing() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_tools().await;
    let ask = pb::BuildContextRequest {
        pressure: Pressure::Compact.into(),
        dry_run: true,
        ..Default::default()
    };
    assert_eq!(
        conversation
            .build(ask)
            .await
            .expect("builds")
            .0
            .boundary_message_id,
        24
    );
    assert!(conversation.jobs().await.is_empty());
}

#[tokio::test]
async fn contexts_of_short_conversations_can_be_built_under_pressure() {
    let app = TestApp::start().await;
    for turns in 1..3 {
        let conversation = app.conversation().await;
        conversation.turns(turns).await;
        for pressure in [Pressure::TruncateToolResults, Pressure::Compact] {
            build_under_pressure(&conversation, pressure)
                .await
                .assert_covers(2 * turns as i64);
        }
        app.run_jobs_until_idle().await;
        assert!(
            conversation.checkpoints().await.is_empty(),
            "the context cannot be shortened"
        );
    }
}

#[tokio::test]
async fn invalid_fields_of_a_context_request_are_refused_by_name() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let assert_field_refused = async |ask: pb::BuildContextRequest, field: &str| {
        assert_refused(
            conversation.build(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            field,
        );
    };
    assert_field_refused(
        pb::BuildContextRequest {
            format: 9,
            ..Default::default()
        },
        "format",
    )
    .await;
    assert_field_refused(
        pb::BuildContextRequest {
            pressure: -1,
            ..Default::default()
        },
        "pressure",
    )
    .await;
    assert_field_refused(
        pb::BuildContextRequest {
            budget_tokens: Some(0),
            ..Default::default()
        },
        "budget_tokens",
    )
    .await;
    let profile = pb::Policy {
        profile: "none".into(),
        ..Default::default()
    };
    assert_field_refused(
        pb::BuildContextRequest {
            dry_run: true,
            policy: Some(profile),
            ..Default::default()
        },
        "policy.profile",
    )
    .await;
    let negative = pb::Policy {
        hot_zone_radius: Some((-1_i32).cast_unsigned()),
        ..Default::default()
    };
    let ask = pb::BuildContextRequest {
        dry_run: true,
        policy: Some(negative),
        ..Default::default()
    };
    assert_field_refused(ask, "policy.hot_zone_radius").await;
    let long = pb::BuildContextRequest {
        model: "m".repeat(129),
        ..Default::default()
    };
    assert_refused(
        conversation.build(long).await,
        Code::InvalidArgument,
        "LIMIT_EXCEEDED",
        "model",
    );
}

#[tokio::test]
async fn the_checkpoint_stored_after_pressure_breaks_the_whole_prefix() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_tools().await;
    conversation.context().await;
    let compacted = build_under_pressure(&conversation, Pressure::Compact)
        .await
        .0;
    app.run_jobs_until_idle().await;
    let after = conversation.context().await.0;
    assert_eq!(after.boundary_message_id, compacted.boundary_message_id);
    assert_ne!(
        after.prefix_hash, compacted.prefix_hash,
        "the hash tells the summary for one call from the stored checkpoint's summary"
    );
    let broken = after.cache_break.expect("a break");
    assert_eq!(
        (broken.reason(), broken.at_message_id),
        (pb::BreakReason::Checkpoint, 0)
    );
    assert_eq!(after.expected_cached_tokens, 0);
    assert_eq!(
        conversation.context().await.0.prefix_hash,
        after.prefix_hash
    );
}

#[tokio::test]
async fn pressure_does_not_replace_a_requested_compaction() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_tools().await;
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        request_id: "mine".into(),
        focus: "the turbines".into(),
        ..Default::default()
    };
    app.contexts().compact(ask).await.expect("queues");
    build_under_pressure(&conversation, Pressure::Compact).await;
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        checkpoints
            .iter()
            .map(|checkpoint| checkpoint.focus.as_str())
            .collect::<Vec<_>>(),
        ["the turbines"]
    );
}
