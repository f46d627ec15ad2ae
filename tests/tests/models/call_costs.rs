//! The recorded costs of calls without a complete answer. The input of a request that was sent
//! counts unless the provider refused the request.

use std::time::Duration;

use anneal_core::{
    admission::{BreakerSettings, CallPurpose},
    caller::{Caller, ConversationId, TenantId},
    chat_options::ChatOptions,
    tokens::Tokens,
};
use anneal_gateway::ModelGateway;
use anneal_llm::{
    ModelAccess,
    provider::{Call, CallableModels},
};
use anneal_testkit::{
    MODEL, ModelRequest, ModelWorkerSettings, ReportedUsage, Say, Script, ScriptedModel, TestApp,
    eventually, pb, prose,
};
use serde_json::json;

use crate::{CONTEXT, due_checkpoints::create_conversation_due_for_checkpoint};

/// Lower bound of the input tokens of a call in these tests.
const MIN_INPUT: u64 = 500;

/// Today's figures of the caller's tenant: calls, failed calls, input tokens, output tokens.
async fn recorded_costs(app: &TestApp) -> (i64, i64, u64, u64) {
    let stats = app
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner();
    let model = stats.models.first().expect("it was called");
    assert_eq!(model.calls_under_way, 0, "{stats:?}");
    (
        model.calls_today,
        model.failed_calls_today,
        model.input_tokens_today,
        model.output_tokens_today,
    )
}

async fn wait_for_no_leases(app: &TestApp) {
    eventually("no call has a lease", async || {
        let leases = "select count(*) from ai_model_lease";
        sqlx::query_scalar::<_, i64>(leases)
            .fetch_one(&mut app.db().await)
            .await
            .expect("counts")
            == 0
    })
    .await;
}

#[tokio::test]
async fn a_turn_cancelled_before_its_first_chunk_costs_its_input_and_is_no_failure() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let app = TestApp::with_scripted_model(&model).await;
    let turn = app
        .conversation()
        .await
        .chat(&prose(1, 60))
        .open()
        .await
        .expect("begins");
    model.wait_for_calls(1).await;
    drop(turn);
    wait_for_no_leases(&app).await;
    let (calls, failed, input, output) = recorded_costs(&app).await;
    assert!(
        (calls, failed, output) == (1, 0, 0) && input >= MIN_INPUT,
        "{calls} calls, {failed} failed, {input} tokens read"
    );
}

#[tokio::test]
async fn a_cancelled_turn_costs_its_input_and_the_output_so_far_with_reasoning() {
    let reasoning = "hm ".repeat(1_000);
    let delta = json!({"choices": [{"index": 0, "delta": {"reasoning_content": reasoning}}]});
    let event = format!("data: {delta}\n\n");
    let model = ScriptedModel::start(move |_| {
        Script::events([event.clone(), event.clone()]).hanging_after(2)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut turn = app
        .conversation()
        .await
        .chat(&prose(1, 60))
        .open()
        .await
        .expect("begins");
    let mut reasoning_bytes = 0;
    while reasoning_bytes < 6_000 {
        let event = turn
            .message()
            .await
            .expect("goes on")
            .and_then(|response| response.event);
        if let Some(pb::chat_response::Event::ReasoningDelta(text)) = event {
            reasoning_bytes += text.len();
        }
    }
    drop(turn);
    wait_for_no_leases(&app).await;
    // 6,000 bytes of this reasoning are about 2,000 tokens.
    let (_, _, input, output) = recorded_costs(&app).await;
    assert!(
        input >= MIN_INPUT && output >= 1_500,
        "{input} tokens read, {output} written"
    );
}

#[tokio::test]
async fn a_turn_that_times_out_costs_its_input() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        provider.first_byte_timeout_ms = 300;
    }
    let app = TestApp::with_models((providers, models), MODEL).await;
    app.conversation()
        .await
        .chat(&prose(1, 60))
        .await
        .end
        .expect_err("the answer never begins");
    let (calls, failed, input, output) = recorded_costs(&app).await;
    assert!(
        (calls, failed, output) == (1, 1, 0) && input >= MIN_INPUT,
        "{calls} calls, {input} tokens read"
    );
}

/// The model's answer to a request.
type Answer = fn(&ModelRequest) -> Script;

#[tokio::test]
async fn a_refused_call_costs_nothing_and_a_call_that_breaks_off_costs_its_input() {
    // A name, the model's answer, and whether the call costs its input.
    let cases: [(&str, Answer, bool); 9] = [
        (
            "refused",
            |_| Script::status(400, &[], r#"{"error":{"message":"no"}}"#),
            false,
        ),
        ("wrong key", |_| Script::status(401, &[], "{}"), false),
        ("limited", |_| Script::status(429, &[], "{}"), false),
        ("overloaded", |_| Script::status(529, &[], "{}"), false),
        ("unavailable", |_| Script::status(503, &[], "{}"), false),
        (
            "failed while it worked",
            |_| Script::status(500, &[], "{}"),
            true,
        ),
        (
            "a gateway that gave up",
            |_| Script::status(504, &[], "{}"),
            true,
        ),
        ("no answer", |_| Script::raw(b""), true),
        (
            "cut off",
            |request| Script::says(request, Say::texts(&["half", "half"])).cut_after(1),
            true,
        ),
    ];
    for (name, answer, costs_input) in cases {
        let model = ScriptedModel::start(answer).await;
        let app = TestApp::with_scripted_model(&model).await;
        app.conversation()
            .await
            .chat(&prose(1, 60))
            .await
            .end
            .expect_err(name);
        let (calls, failed, input, _) = recorded_costs(&app).await;
        assert_eq!((calls, failed), (1, 1), "{name}");
        assert!(
            if costs_input {
                input >= MIN_INPUT
            } else {
                input == 0
            },
            "{name}: {input} tokens read"
        );
    }
}

#[tokio::test]
async fn a_call_whose_owner_is_dropped_costs_its_input() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (app, (providers, models)) = (TestApp::start().await, model.settings(&[MODEL]));
    let access = ModelAccess {
        models: CallableModels::new(&providers, &models).expect("valid settings"),
        ..ModelAccess::default()
    };
    let conversation = app.conversation().await.id.parse().expect("an id");
    let gateway = ModelGateway::new(
        &app.store,
        &access,
        CallPurpose::Summary,
        Duration::from_secs(5),
    );
    let mut call = gateway
        .admit(
            Caller::of(TenantId::DEFAULT),
            ConversationId(conversation),
            access.models.find(MODEL).expect("is configured"),
            Tokens::new(1_000),
            None,
        )
        .await
        .expect("the store answers")
        .expect("is admitted");
    let options = ChatOptions::default();
    let ask = Call {
        context: CONTEXT,
        options: &options,
        output: Tokens::new(100),
        mark_tools: None,
        cache_key: None,
        long_retention: false,
        input: Tokens::new(MIN_INPUT),
        least_sent_tokens: None,
        window: None,
    };
    tokio::select! {
        _ = call.answer(&ask) => panic!("the model does not answer"),
        () = model.wait_for_calls(1) => {}
    }
    drop(call);
    wait_for_no_leases(&app).await;
    assert_eq!(recorded_costs(&app).await, (1, 0, MIN_INPUT, 0));
}

#[tokio::test]
async fn a_request_that_was_never_sent_costs_nothing() {
    let model = ScriptedModel::saying("never").await;
    let settings = model.settings(&[MODEL]);
    drop(model);
    let app = TestApp::with_models(settings, MODEL).await;
    app.conversation()
        .await
        .chat(&prose(1, 60))
        .await
        .end
        .expect_err("no server listens");
    assert_eq!(recorded_costs(&app).await, (1, 1, 0, 0));
}

#[tokio::test]
async fn a_cancelled_turn_costs_the_usage_that_its_provider_reported() {
    let reported = ReportedUsage {
        input: 7_777,
        output: 900,
        ..ReportedUsage::default()
    };
    // The answer hangs after its second text, the fifth event.
    let model = ScriptedModel::start(move |_| {
        Script::anthropic(&["one", "two"], reported).hanging_after(5)
    })
    .await;
    let app = TestApp::with_models(
        model.settings_of(anneal_llm::provider::Api::Anthropic, &[MODEL]),
        MODEL,
    )
    .await;
    let mut turn = app
        .conversation()
        .await
        .chat(&prose(1, 60))
        .open()
        .await
        .expect("begins");
    // The provider has reported the input before the first text.
    loop {
        let event = turn
            .message()
            .await
            .expect("goes on")
            .and_then(|response| response.event);
        if matches!(event, Some(pb::chat_response::Event::TextDelta(_))) {
            break;
        }
    }
    drop(turn);
    wait_for_no_leases(&app).await;
    let (_, _, input, output) = recorded_costs(&app).await;
    // The provider has reported one token of output until then, not yet the 900 of the end. By
    // their 6 bytes, both texts are two tokens.
    assert!(
        input == 7_777 && (1..=2).contains(&output),
        "{input} tokens read, {output} written"
    );
}

/// An [`Answer`] that captures values.
type BoxedAnswer = Box<dyn Fn(&ModelRequest) -> Script + Send + Sync>;

#[tokio::test]
async fn a_summary_that_times_out_or_breaks_off_costs_its_input_and_output() {
    let written =
        "It was asked about the capitals of countries, and how many people live there. ".repeat(20);
    // A name, the model's answer, and the minimum of output tokens that must be recorded.
    let cases: [(&str, BoxedAnswer, u64); 3] = [
        ("says nothing", Box::new(|_| Script::hang()), 0),
        (
            "stops in the middle",
            {
                let written = written.clone();
                Box::new(move |request| {
                    Script::says(request, [Say::text(&written), Say::text(&written)])
                        .hanging_after(2)
                })
            },
            300,
        ),
        (
            "breaks off",
            Box::new(move |request| {
                Script::says(request, [Say::text(&written), Say::text(&written)]).cut_after(2)
            }),
            300,
        ),
    ];
    for (name, answer, min_output) in cases {
        let model = ScriptedModel::start(answer).await;
        let app = TestApp::start().await;
        app.postpone_failed_jobs().await;
        create_conversation_due_for_checkpoint(&app).await;
        let mut worker_settings = ModelWorkerSettings::for_model(&model);
        worker_settings.access = ModelAccess {
            breaker: BreakerSettings::default(),
            ..ModelAccess::default()
        };
        for provider in worker_settings.providers.values_mut() {
            provider.first_byte_timeout_ms = 300;
        }
        app.worker_with_model(&worker_settings)
            .run_until_idle()
            .await;
        let (calls, failed, input, output) = recorded_costs(&app).await;
        assert_eq!((calls, failed), (1, 1), "{name}");
        assert!(
            input > MIN_INPUT && output >= min_output,
            "{name}: {input} tokens read, {output} written"
        );
    }
}
