//! Chat turns whose model call fails or is not admitted: which reason the error has, whether the
//! client may retry, and whether the prompt is stored.

use std::time::Duration;

use anneal_core::{admission::BreakerSettings, model::Models, tokens::Tokens};
use anneal_llm::ModelAccess;
use anneal_testkit::{
    Gate, MODEL, ReportedUsage, Say, Script, ScriptedModel, TestApp, TurnOutcome, assert_refused,
    eventually, pb, status_details,
};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;

#[tokio::test]
async fn each_failure_of_a_model_has_its_reason_and_the_prompt_stays_stored() {
    type WriteScript = fn() -> Script;
    // The error's code and reason, and whether the client may retry.
    let unavailable = (Code::Unavailable, "MODEL_UNAVAILABLE", true);
    let refused = (Code::FailedPrecondition, "MODEL_REFUSED", false);
    let failures: [(&str, WriteScript, (Code, &str, bool)); 12] = [
        (
            "rate limit",
            || Script::status(429, &[("retry-after", "7")], "{}"),
            unavailable,
        ),
        ("overloaded", || Script::status(529, &[], "{}"), unavailable),
        ("down", || Script::status(503, &[], "{}"), unavailable),
        ("broken", || Script::status(500, &[], "a page"), unavailable),
        (
            "wrong request",
            || Script::status(400, &[], r#"{"error":{"message":"no"}}"#),
            refused,
        ),
        ("wrong key", || Script::status(401, &[], "{}"), refused),
        ("wrong name", || Script::status(404, &[], "{}"), refused),
        ("no protocol", || Script::raw(b"hello\r\n"), unavailable),
        (
            "nothing said",
            || Script::openai(&[], ReportedUsage::default()),
            unavailable,
        ),
        (
            "blank",
            || Script::openai(&[" \n"], ReportedUsage::default()),
            unavailable,
        ),
        (
            "cut off",
            // Cut after two events: the role, which is OpenAI's first event, and the text.
            || Script::openai(&["half"], ReportedUsage::default()).cut_after(2),
            unavailable,
        ),
        (
            "no end",
            || Script::events(["data: {\"choices\":[]}\n\n"]),
            unavailable,
        ),
    ];
    let model = ScriptedModel::start(move |request| failures[request.nth].1()).await;
    let app = TestApp::with_scripted_model(&model).await;
    for (what, _, expected) in failures {
        let conversation = app.conversation().await;
        let status = conversation.chat("Anybody?").await.end.expect_err(what);
        let details = status_details(&status);
        assert_eq!(
            (details.code, details.reason.as_str(), details.retry),
            expected,
            "{what}: {status}"
        );
        assert_eq!(conversation.messages().await.len(), 1, "{what}");
        let wait = status
            .get_error_details()
            .retry_info()
            .and_then(|retry| retry.retry_delay);
        // Only the provider's answer to the first call says how long to wait.
        assert_eq!(
            what == "rate limit",
            wait == Some(Duration::from_secs(7)),
            "{what}: {wait:?}"
        );
    }
    assert_eq!(
        model.requests().len(),
        failures.len(),
        "no failed call is retried"
    );
}

#[tokio::test]
async fn an_unreachable_provider_is_reported_as_unavailable() {
    let model = ScriptedModel::saying("never").await;
    let settings = model.settings(&[MODEL]);
    drop(model);
    let app = TestApp::with_models(settings, MODEL).await;
    let conversation = app.conversation().await;
    assert_refused(
        conversation.chat("Anybody?").await.end,
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn an_unconfigured_model_is_named_in_the_error_and_nothing_is_stored() {
    let model = ScriptedModel::saying("never").await;
    let assert_not_configured = |outcome: TurnOutcome, name: &str| {
        let status = outcome.end.expect_err("the model is not configured");
        assert_refused(
            Err::<(), _>(status.clone()),
            Code::FailedPrecondition,
            "MODEL_NOT_CONFIGURED",
            "",
        );
        assert_eq!(
            status
                .get_error_details()
                .error_info()
                .expect("facts")
                .metadata["model"],
            name
        );
    };
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    assert_not_configured(conversation.chat("hello").await, "");
    let policy = pb::Policy {
        model: "gpt-4o".into(),
        ..Default::default()
    };
    assert_not_configured(
        app.conversation_with_policy(policy)
            .await
            .chat("hello")
            .await,
        "gpt-4o",
    );
    assert!(conversation.messages().await.is_empty());
    let app_with_model = TestApp::with_scripted_model(&model).await;
    let conversation = app_with_model.conversation().await;
    assert_not_configured(
        conversation.chat("hello").with_model("another").await,
        "another",
    );
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
}

#[tokio::test]
async fn an_open_tenant_breaker_refuses_turns_and_stores_nothing() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 | 1 => Script::status(503, &[], "{}"),
        _ => Script::says(request, [Say::text("back")]),
    })
    .await;
    let breaker = BreakerSettings {
        model_failures: 2,
        cooldown_seconds: 90,
        ..BreakerSettings::default()
    };
    let limits = ModelAccess {
        breaker,
        ..ModelAccess::default()
    };
    let app = TestApp::with_models_and_call_limits(model.settings(&[MODEL]), MODEL, limits).await;
    let conversation = app.conversation().await;
    for _ in 0..2 {
        assert!(
            conversation
                .chat("Anybody?")
                .request_id("r")
                .await
                .end
                .is_err()
        );
    }
    let other = app.conversation().await;
    let status = other
        .chat("You?")
        .request_id("r")
        .await
        .end
        .expect_err("the breaker is open");
    assert_refused(
        Err::<(), _>(status.clone()),
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    let wait = status
        .get_error_details()
        .retry_info()
        .and_then(|retry| retry.retry_delay)
        .expect("a time");
    // The cooldown of 90 seconds began at the second failure.
    assert!((60..=90).contains(&wait.as_secs()), "{wait:?}");
    assert!(other.messages().await.is_empty());
    assert_eq!(model.requests().len(), 2);
    let mut db = app.db().await;
    sqlx::query("update ai_tenant_breaker set open_until_ts = now()")
        .execute(&mut db)
        .await
        .expect("the cooldown ends");
    assert_eq!(
        conversation.chat("Anybody?").request_id("r").await.text(),
        "back"
    );
    other.chat("You?").request_id("r").await.done();
}

#[tokio::test]
async fn turns_are_still_tried_after_many_unusable_answers() {
    let model = ScriptedModel::start(|request| match request.nth {
        0..=5 => Script::openai(&[], ReportedUsage::default()),
        _ => Script::says(request, [Say::text("fine")]),
    })
    .await;
    // Two failures open a conversation's breaker, or a tenant's breaker for a model. An unusable
    // answer counts against its conversation only, and only if the call was for a summary.
    let breaker = BreakerSettings {
        failures: 2,
        model_failures: 2,
        ..BreakerSettings::default()
    };
    let app = TestApp::with_models_and_call_limits(
        model.settings(&[MODEL]),
        MODEL,
        ModelAccess {
            breaker,
            ..ModelAccess::default()
        },
    )
    .await;
    let conversation = app.conversation().await;
    for _ in 0..6 {
        assert_refused(
            conversation.chat("go").await.end,
            Code::Unavailable,
            "MODEL_UNAVAILABLE",
            "",
        );
    }
    assert_eq!(
        conversation.chat("go").await.text(),
        "fine",
        "unusable answers to turns open no breaker"
    );
}

#[tokio::test]
async fn a_model_at_its_call_limit_is_busy() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let (providers, _) = model.settings(&[MODEL]);
    let models: Models = serde_json::from_value(
        json!({MODEL: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 1}}),
    )
    .expect("settings");
    let app = TestApp::with_models((providers, models), MODEL).await;
    let (one, two) = (app.conversation().await, app.conversation().await);
    let first = one.chat("one").open().await.expect("begins");
    model.wait_for_calls(1).await;
    let status = two
        .chat("two")
        .await
        .end
        .expect_err("the model's only call is in flight");
    let details = status_details(&status);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (Code::ResourceExhausted, "MODEL_BUSY", true)
    );
    assert!(two.messages().await.is_empty());
    gate.open_for_ever();
    TurnOutcome::read(first).await.done();
    two.chat("two").await.done();
}

#[tokio::test]
async fn a_tenant_that_has_spent_its_daily_tokens_is_refused_and_may_retry_later() {
    let reported = ReportedUsage {
        input: 4_000,
        output: 900,
        ..ReportedUsage::default()
    };
    let model = ScriptedModel::start(move |_| Script::openai(&["Dear."], reported)).await;
    let limits = ModelAccess {
        tokens_per_day: Some(Tokens::new(5_000)),
        ..ModelAccess::default()
    };
    let app = TestApp::with_models_and_call_limits(model.settings(&[MODEL]), MODEL, limits).await;
    let conversation = app.conversation().await;
    conversation.chat("one").request_id("r").await.done();
    let status = conversation
        .chat("two")
        .await
        .end
        .expect_err("4,900 of 5,000 tokens are spent");
    let details = status_details(&status);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (Code::ResourceExhausted, "TENANT_BUDGET_SPENT", true)
    );
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (2, 1)
    );
    assert!(
        conversation
            .chat("one")
            .request_id("r")
            .await
            .done()
            .replayed,
        "a replay costs no tokens"
    );
}

#[tokio::test]
async fn no_database_connection_is_held_during_a_model_call() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut turns = Vec::new();
    // More turns than a pool has connections: by default the largest pools have 16.
    for _ in 0..24 {
        turns.push(
            app.conversation()
                .await
                .chat("think")
                .open()
                .await
                .expect("begins"),
        );
        model.wait_for_calls(turns.len()).await;
    }
    eventually("every open connection is idle", async || {
        app.store
            .pool_figures()
            .iter()
            .all(|(_, pool)| pool.idle == pool.open && pool.waiting == 0)
    })
    .await;
    gate.open_for_ever();
    for turn in turns {
        TurnOutcome::read(turn).await.done();
    }
}
