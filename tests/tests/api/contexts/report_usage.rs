//! ReportUsage: callers report the tokens that a provider has billed. The reports calibrate the
//! token counts of their model, show cold caches, and are summed per conversation.

use anneal_testkit::{TestApp, TestConversation, assert_refused, pb, prose};
use tonic::{Code, Status};

/// A model that anneal does not know.
const MODEL: &str = "made-up-1";

/// Reports the usage of a call in this conversation.
async fn report(
    conversation: &TestConversation<'_>,
    ask: pb::ReportUsageRequest,
) -> Result<pb::ReportUsageResponse, Status> {
    let ask = pb::ReportUsageRequest {
        conversation_id: conversation.id.clone(),
        ..ask
    };
    Ok(conversation
        .app
        .contexts()
        .report_usage(ask)
        .await?
        .into_inner())
}

/// The report of a call with this many input tokens, `cached` of them from the provider's cache.
fn usage_report(input: u64, cached: u64) -> pb::ReportUsageRequest {
    pb::ReportUsageRequest {
        model: MODEL.into(),
        input_tokens: input,
        cached_tokens: cached,
        ..Default::default()
    }
}

#[tokio::test]
async fn usage_reports_calibrate_the_tokens_of_their_model_and_its_budgets() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..10 {
        conversation
            .turn(&prose(n * 40, 20), &prose(n * 40 + 20, 20))
            .await;
    }
    app.run_jobs_until_idle().await;
    let ask = pb::BuildContextRequest {
        model: MODEL.into(),
        ..Default::default()
    };
    let before = conversation.build(ask.clone()).await.expect("builds").0;
    assert_eq!(before.model_tokens, 0, "no usage was reported");
    let counted = before.total_tokens;
    let first = pb::ReportUsageRequest {
        context_tokens: counted,
        ..usage_report(counted * 3 / 2, 0)
    };
    let calibrated = report(&conversation, first)
        .await
        .expect("accepts the report");
    assert_eq!(calibrated.reports, 1);
    assert!(
        (calibrated.tokens_ratio - 1.5).abs() < 0.01,
        "{calibrated:?}"
    );
    let second = pb::ReportUsageRequest {
        context_tokens: counted,
        ..usage_report(counted, 0)
    };
    let calibrated = report(&conversation, second)
        .await
        .expect("accepts the report");
    assert!(
        (calibrated.tokens_ratio - 1.4).abs() < 0.01,
        "the ratio is a moving average, to which a report contributes a fifth: {calibrated:?}"
    );
    let after = conversation.build(ask.clone()).await.expect("builds").0;
    assert_eq!(after.total_tokens, counted);
    assert!(after.model_tokens.abs_diff(counted * 14 / 10) <= counted / 100);
    let within_budget = pb::BuildContextRequest {
        budget_tokens: Some(counted),
        ..ask
    };
    let fitted = conversation.build(within_budget).await.expect("fits").0;
    assert!(
        fitted.model_tokens <= counted,
        "the budget counts the model's tokens: {}",
        fitted.model_tokens
    );
    assert!(fitted.total_tokens < counted);
    let other = pb::BuildContextRequest {
        model: "another".into(),
        ..Default::default()
    };
    assert_eq!(
        conversation
            .build(other)
            .await
            .expect("builds")
            .0
            .model_tokens,
        0
    );
}

#[tokio::test]
async fn a_cold_cache_that_no_change_of_the_context_explains_is_reported() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..6 {
        conversation
            .turn(&prose(n * 40, 20), &prose(n * 40 + 20, 20))
            .await;
    }
    app.run_jobs_until_idle().await;
    conversation.context().await;
    let expected = conversation.context().await.0.expected_cached_tokens;
    assert!(expected > 2_000, "{expected}");
    let ask = |cached| pb::ReportUsageRequest {
        expected_cached_tokens: expected,
        ..usage_report(expected + 500, cached)
    };
    let report_and_read_state = async |cached| {
        report(&conversation, ask(cached))
            .await
            .expect("accepts the report")
            .cache_state()
    };
    assert_eq!(report_and_read_state(expected).await, pb::CacheState::Warm);
    // Less than half of what was expected.
    assert_eq!(
        report_and_read_state(expected / 2 - 1).await,
        pb::CacheState::Cold
    );
    let nothing = pb::ReportUsageRequest {
        expected_cached_tokens: 0,
        ..usage_report(5_000, 0)
    };
    assert_eq!(
        report(&conversation, nothing)
            .await
            .expect("accepts the report")
            .cache_state(),
        pb::CacheState::NothingExpected
    );
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let economics = app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("answers")
        .into_inner()
        .economics;
    let reported = economics.expect("asked for").reported.expect("some");
    assert_eq!((reported.calls, reported.cold_calls), (3, 1));
    assert_eq!(reported.input_tokens, 2 * (expected + 500) + 5_000);
}

#[tokio::test]
async fn a_repeated_usage_report_counts_once() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let ask = pb::ReportUsageRequest {
        request_id: "r1".into(),
        context_tokens: 1_000,
        ..usage_report(1_500, 0)
    };
    let first = report(&conversation, ask.clone())
        .await
        .expect("accepts the report");
    assert_eq!(
        report(&conversation, ask.clone()).await.expect("repeats"),
        first
    );
    let other = pb::ReportUsageRequest {
        output_tokens: 1,
        ..ask
    };
    assert_refused(
        report(&conversation, other).await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
}

#[tokio::test]
async fn invalid_usage_reports_are_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let cases = [
        (
            pb::ReportUsageRequest {
                model: String::new(),
                ..usage_report(1, 0)
            },
            "INVALID_FIELD",
            "model",
        ),
        (usage_report(0, 0), "INVALID_FIELD", "input_tokens"),
        (usage_report(10, 11), "INVALID_FIELD", "input_tokens"),
        (usage_report(u64::MAX, 0), "LIMIT_EXCEEDED", "input_tokens"),
        (
            pb::ReportUsageRequest {
                written_tokens: u64::MAX,
                ..usage_report(5, 0)
            },
            "LIMIT_EXCEEDED",
            "written_tokens",
        ),
    ];
    for (ask, reason, field) in cases {
        assert_refused(
            report(&conversation, ask).await,
            Code::InvalidArgument,
            reason,
            field,
        );
    }
    let missing = TestConversation {
        id: uuid::Uuid::new_v4().to_string(),
        ..conversation.clone()
    };
    assert_refused(
        report(&missing, usage_report(5, 0)).await,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
}

#[tokio::test]
async fn a_window_named_by_a_provider_bounds_the_thresholds_of_its_model() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "openclaw".into(),
        model: MODEL.into(),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turns(2).await;
    app.run_jobs_until_idle().await;
    let before = conversation.usage().await;
    assert_eq!(
        (before.model_window_tokens, before.token_threshold),
        (0, 128_000 - 16_384),
        "an unknown window is assumed to be 128,000 tokens"
    );
    let body = r#"{"error":{"message":"This model's maximum context length is 40000 tokens. However, your messages resulted in 50000 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    let ask = pb::ClassifyErrorRequest {
        status: 400,
        body: body.into(),
        model: MODEL.into(),
        ..Default::default()
    };
    let classified = app
        .contexts()
        .classify_error(ask)
        .await
        .expect("classifies")
        .into_inner();
    assert_eq!(
        (classified.is_overflow, classified.limit_tokens),
        (true, Some(40_000))
    );
    let after = conversation.usage().await;
    assert_eq!(
        (after.model_window_tokens, after.token_threshold),
        (40_000, 40_000 - 16_384)
    );
}

#[tokio::test]
async fn an_implausible_window_is_not_learned_but_its_error_is_classified() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "openclaw".into(),
        model: MODEL.into(),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for window in [0, 1] {
        let error = format!(
            r#"{{"error":{{"code":"context_length_exceeded","message":"too long","n_ctx":{window}}}}}"#
        );
        let ask = pb::ClassifyErrorRequest {
            status: 400,
            body: error.into(),
            model: MODEL.into(),
            ..Default::default()
        };
        assert!(
            app.contexts()
                .classify_error(ask)
                .await
                .expect("classifies")
                .into_inner()
                .is_overflow
        );
    }
    assert_eq!(conversation.usage().await.model_window_tokens, 0);
}
