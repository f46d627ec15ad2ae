//! Turns that several models may answer: when the next one is tried, and what remains of the ones
//! that did not answer.

use anneal_core::{
    admission::{AdmissionRefusal, BreakerSettings, CallLimits, CallPurpose},
    caller::{Caller, ConversationId, TenantId},
    model::Models,
    tokens::Tokens,
};
use anneal_llm::{ModelAccess, provider::Providers};
use anneal_store::{CallAsk, StoreError};
use anneal_testkit::{
    Gate, ReportedUsage, Say, Script, ScriptedModel, TestApp, TurnOutcome, assert_refused,
    eventually, pb,
};
use serde_json::json;
use tonic::Code;

/// Settings of the models `a` and `b`, which two providers serve. Of `a` one call may run at a
/// time.
fn settings(a: &ScriptedModel, b: &ScriptedModel) -> (Providers, Models) {
    let providers = json!({
        "one": {"api": "openai", "url": a.url()},
        "two": {"api": "anthropic", "url": b.url()},
    });
    let models = json!({
        "a": {"provider": "one", "window_tokens": 8_192, "concurrent_calls": 1},
        "b": {"provider": "two", "window_tokens": 16_384},
    });
    (
        serde_json::from_value(providers).expect("settings"),
        serde_json::from_value(models).expect("settings"),
    )
}

/// The fallbacks of a turn: model and reason.
fn fallbacks(outcome: &TurnOutcome) -> Vec<(&str, &str)> {
    let fallbacks = outcome.done().fallbacks.iter();
    fallbacks
        .map(|fallback| (fallback.model.as_str(), fallback.reason.as_str()))
        .collect()
}

/// The calls of each model that are recorded with their cost.
async fn recorded_calls(app: &TestApp) -> Vec<(String, i32)> {
    sqlx::query_as("select model, calls::integer from ai_model_spend order by model")
        .fetch_all(&mut app.db().await)
        .await
        .expect("reads")
}

#[tokio::test]
async fn a_model_that_is_down_or_overloaded_is_replaced_by_the_next_one() {
    const FAILURES: [u16; 4] = [500, 529, 503, 429];
    let a = ScriptedModel::start(|request| Script::status(FAILURES[request.nth], &[], "{}")).await;
    let b = ScriptedModel::saying("From b.").await;
    let app = TestApp::with_models(settings(&a, &b), "a").await;
    for status in FAILURES {
        let conversation = app.conversation().await;
        let turn = conversation.chat("Anybody?").with_model("a");
        let outcome = turn.with_fallbacks(&["b"]).await;
        assert_eq!(outcome.text(), "From b.", "{status}");
        let done = outcome.done();
        assert_eq!((done.model.as_str(), done.attempts), ("b", 2), "{status}");
        assert_eq!(
            fallbacks(&outcome),
            [("a", "MODEL_UNAVAILABLE")],
            "{status}"
        );
        let started = outcome
            .events
            .iter()
            .filter(|event| matches!(event, pb::chat_response::Event::Started(_)));
        assert_eq!(started.count(), 1, "{status}");
        assert_eq!(conversation.messages().await.len(), 2, "{status}");
    }
    // The second provider speaks another protocol: its context was built anew.
    assert!(b.requests()[0].body["max_tokens"].is_number());
    eventually("the calls of both are recorded", async || {
        recorded_calls(&app).await == [("a".to_owned(), 4), ("b".to_owned(), 4)]
    })
    .await;
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_replaced_by_the_next_one_of_the_settings() {
    let (a, b) = (
        ScriptedModel::saying("never").await,
        ScriptedModel::saying("From b.").await,
    );
    let settings = settings(&a, &b);
    drop(a);
    let app = TestApp::with_models_in_order(settings, &["a", "b"]).await;
    let conversation = app.conversation().await;
    let outcome = conversation.chat("Anybody?").await;
    assert_eq!(outcome.text(), "From b.");
    assert_eq!(fallbacks(&outcome), [("a", "MODEL_UNAVAILABLE")]);
    let status = conversation.chat("Anybody?").with_model("a").await.end;
    assert_refused(status, Code::Unavailable, "MODEL_UNAVAILABLE", "");
}

#[tokio::test]
async fn a_request_that_a_model_refuses_or_answers_badly_is_not_sent_to_the_next_one() {
    const OVERFLOW: &str = r#"{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 10 tokens."}}"#;
    let scripts: [fn() -> Script; 5] = [
        || Script::status(400, &[], "{}"),
        || Script::status(401, &[], "{}"),
        || Script::status(404, &[], "{}"),
        || Script::openai(&[], ReportedUsage::default()),
        || Script::openai(&["half"], ReportedUsage::default()).cut_after(2),
    ];
    let a = ScriptedModel::start(move |request| match scripts.get(request.nth) {
        Some(script) => script(),
        None => Script::status(400, &[], OVERFLOW),
    })
    .await;
    let b = ScriptedModel::saying("never").await;
    let app = TestApp::with_models(settings(&a, &b), "a").await;
    for nth in 0..=scripts.len() {
        let conversation = app.conversation().await;
        let turn = conversation.chat("Anybody?").with_model("a");
        let outcome = turn.with_fallbacks(&["b"]).await;
        assert!(outcome.end.is_err(), "{nth}: {outcome:?}");
    }
    assert!(b.requests().is_empty());
}

#[tokio::test]
async fn a_model_that_may_not_be_called_is_replaced_and_if_none_may_nothing_is_stored() {
    let gate = Gate::default();
    let a = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("From a.")]).after(&gate)
    })
    .await;
    let b = ScriptedModel::start(|_| Script::status(503, &[], "{}")).await;
    let limits = ModelAccess {
        breaker: BreakerSettings {
            model_failures: 2,
            ..BreakerSettings::default()
        },
        ..ModelAccess::default()
    };
    let app = TestApp::with_models_and_call_limits(settings(&a, &b), "a", limits).await;
    let (one, two) = (app.conversation().await, app.conversation().await);
    let running = one
        .chat("one")
        .with_model("a")
        .open()
        .await
        .expect("begins");
    a.wait_for_calls(1).await;
    for stored in 1..=2 {
        let turn = two.chat("two").with_model("a").with_fallbacks(&["b"]);
        // The call of `b` was made, so the question is stored; the first model's failure is
        // answered.
        let ended = turn.await.end;
        assert_refused(ended, Code::ResourceExhausted, "MODEL_BUSY", "");
        assert_eq!(two.messages().await.len(), stored);
    }
    // Now the breaker of `b` is open: neither model is called.
    let three = app.conversation().await;
    let turn = three.chat("three").with_model("a").with_fallbacks(&["b"]);
    assert_refused(turn.await.end, Code::ResourceExhausted, "MODEL_BUSY", "");
    assert!(three.messages().await.is_empty());
    assert_eq!(b.requests().len(), 2);
    gate.open_for_ever();
    TurnOutcome::read(running).await.done();
    let turn = three.chat("three").with_model("b").with_fallbacks(&["a"]);
    let outcome = turn.await;
    assert_eq!(outcome.text(), "From a.");
    assert_eq!(fallbacks(&outcome), [("b", "MODEL_UNAVAILABLE")]);
}

#[tokio::test]
async fn no_second_turn_begins_while_a_call_takes_over_the_lease_of_another() {
    let app = TestApp::start().await;
    let conversation = ConversationId(app.conversation().await.uuid());
    let caller = Caller::of(TenantId::DEFAULT);
    let ask = |request_id, replaces| CallAsk {
        model: "m",
        conversation,
        is_stored: true,
        purpose: CallPurpose::Turn,
        tokens: Tokens::new(1),
        limits: CallLimits::default(),
        request_id: Some(request_id),
        replaces,
    };
    let admit = async |ask: CallAsk<'_>| app.store.admit_call(caller, &ask).await;
    let first = admit(ask("r", None))
        .await
        .expect("is decided")
        .expect("is admitted");
    let second = admit(ask("r", Some(&first))).await;
    let second = second.expect("is decided").expect("takes the lease over");
    let other = admit(ask("other", None)).await.expect("is decided");
    assert_eq!(
        other.expect_err("a turn is under way"),
        AdmissionRefusal::Turn
    );
    let again = admit(ask("r", Some(&first))).await;
    assert!(matches!(again, Err(StoreError::LeaseLost)), "{again:?}");
    assert!(app.store.renew_call(&second).await.expect("renews"));
    assert!(!app.store.renew_call(&first).await.expect("answers"));
}

#[tokio::test]
async fn a_takeover_and_a_deletion_do_not_wait_for_each_other() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let caller = Caller::of(TenantId::DEFAULT);
    let ask = |replaces| CallAsk {
        model: "m",
        conversation: ConversationId(conversation.uuid()),
        is_stored: true,
        purpose: CallPurpose::Turn,
        tokens: Tokens::new(1),
        limits: CallLimits::default(),
        request_id: Some("r"),
        replaces,
    };
    let first = app.store.admit_call(caller, &ask(None)).await;
    let first = first.expect("is decided").expect("is admitted");
    let lock = "select from ai_conversation where conversation_id = $1 for update";
    let mut deletion = app.hold_lock(lock, conversation.uuid()).await;
    let takeover = ask(Some(&first));
    let (second, ()) = tokio::join!(app.store.admit_call(caller, &takeover), async {
        app.wait_for_lock_waiters(1).await;
        // Deletes the lease, too.
        let delete = "delete from ai_conversation where conversation_id = $1";
        assert_eq!(deletion.run(delete, conversation.uuid()).await, 1);
        deletion.commit().await;
    });
    assert!(matches!(second, Err(StoreError::NotFound(_))), "{second:?}");
}
