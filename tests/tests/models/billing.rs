//! What calls are booked at that have no answer: once a request was sent its input counts, unless the provider refused it.

use anneal_core::admission::BreakerSettings;
use anneal_llm::ModelAccess;
use anneal_tests::{Asked, Counted, House, MODEL, Say, Script, ScriptedModel, Writing, eventually, pb, prose};
use serde_json::json;

use crate::trouble::ripe;

/// Tokens that what is said in these tests has at least.
const SAID: u64 = 500;

/// What the caller's calls of today have come to: calls, failed ones, tokens read and written.
async fn booked(house: &House) -> (i64, i64, u64, u64) {
    let stats = house.operators().get_model_stats(pb::GetModelStatsRequest {}).await.expect("answers").into_inner();
    let model = stats.models.first().expect("it was called");
    assert_eq!(model.calls_under_way, 0, "{stats:?}");
    (model.calls_today, model.failed_calls_today, model.input_tokens_today, model.output_tokens_today)
}

async fn no_lease_is_left(house: &House) {
    eventually("no call has a lease", async || {
        let leases = "select count(*) from ai_model_lease";
        sqlx::query_scalar::<_, i64>(leases).fetch_one(&mut house.db().await).await.expect("counts") == 0
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_is_given_up_before_its_first_piece_has_cost_its_input() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let house = House::chatting(&model).await;
    let turn = house.conversation().await.chat(&prose(1, 60)).open().await.expect("begins");
    model.arrived(1).await;
    drop(turn);
    no_lease_is_left(&house).await;
    let (calls, failed, input, output) = booked(&house).await;
    assert!((calls, failed, output) == (1, 1, 0) && input >= SAID, "{calls} calls, {input} tokens read");
}

#[tokio::test]
async fn a_turn_that_is_given_up_has_cost_what_was_written_until_then_thoughts_included() {
    let thoughts = "hm ".repeat(1_000);
    let delta = json!({"choices": [{"index": 0, "delta": {"reasoning_content": thoughts}}]});
    let event = format!("data: {delta}\n\n");
    let model = ScriptedModel::start(move |_| Script::events([event.clone(), event.clone()]).hanging_after(2)).await;
    let house = House::chatting(&model).await;
    let mut turn = house.conversation().await.chat(&prose(1, 60)).open().await.expect("begins");
    let mut heard = 0;
    while heard < 6_000 {
        let event = turn.message().await.expect("goes on").and_then(|response| response.event);
        if let Some(pb::chat_response::Event::ReasoningDelta(text)) = event {
            heard += text.len();
        }
    }
    drop(turn);
    no_lease_is_left(&house).await;
    let (_, _, input, output) = booked(&house).await;
    assert!(input >= SAID && output >= 1_500, "{input} tokens read, {output} written");
}

#[tokio::test]
async fn a_turn_whose_provider_takes_too_long_has_cost_its_input() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        provider.first_byte_timeout_ms = 300;
    }
    let house = House::calling((providers, models), MODEL).await;
    house.conversation().await.chat(&prose(1, 60)).await.end.expect_err("it never begins");
    let (calls, failed, input, output) = booked(&house).await;
    assert!((calls, failed, output) == (1, 1, 0) && input >= SAID, "{calls} calls, {input} tokens read");
}

type Says = fn(&Asked) -> Script;

#[tokio::test]
async fn what_a_provider_refuses_costs_nothing_and_what_it_breaks_off_does() {
    let rows: [(&str, Says, bool); 9] = [
        ("refused", |_| Script::status(400, &[], r#"{"error":{"message":"no"}}"#), false),
        ("wrong key", |_| Script::status(401, &[], "{}"), false),
        ("limited", |_| Script::status(429, &[], "{}"), false),
        ("overloaded", |_| Script::status(529, &[], "{}"), false),
        ("unavailable", |_| Script::status(503, &[], "{}"), false),
        ("failed while it worked", |_| Script::status(500, &[], "{}"), true),
        ("a gateway that gave up", |_| Script::status(504, &[], "{}"), true),
        ("no answer", |_| Script::raw(b""), true),
        ("cut off", |asked| Script::says(asked, Say::texts(&["half", "half"])).cut_after(1), true),
    ];
    for (what, says, costs) in rows {
        let model = ScriptedModel::start(says).await;
        let house = House::chatting(&model).await;
        house.conversation().await.chat(&prose(1, 60)).await.end.expect_err(what);
        let (calls, failed, input, _) = booked(&house).await;
        assert_eq!((calls, failed), (1, 1), "{what}");
        assert!(if costs { input >= SAID } else { input == 0 }, "{what}: {input} tokens read");
    }
}

#[tokio::test]
async fn what_was_never_sent_costs_nothing() {
    let model = ScriptedModel::saying("never").await;
    let settings = model.settings(&[MODEL]);
    drop(model);
    let house = House::calling(settings, MODEL).await;
    house.conversation().await.chat(&prose(1, 60)).await.end.expect_err("nobody is there");
    assert_eq!(booked(&house).await, (1, 1, 0, 0));
}

#[tokio::test]
async fn a_providers_own_count_of_a_turn_that_is_given_up_is_believed() {
    let counted = Counted { input: 7_777, output: 900, ..Counted::default() };
    let model = ScriptedModel::start(move |_| Script::anthropic(&["one", "two"], counted).hanging_after(5)).await;
    let house = House::calling(model.settings_of(anneal_llm::provider::Api::Anthropic, &[MODEL]), MODEL).await;
    let mut turn = house.conversation().await.chat(&prose(1, 60)).open().await.expect("begins");
    loop {
        let event = turn.message().await.expect("goes on").and_then(|response| response.event);
        if matches!(event, Some(pb::chat_response::Event::TextDelta(_))) {
            break;
        }
    }
    drop(turn);
    no_lease_is_left(&house).await;
    let (_, _, input, _) = booked(&house).await;
    assert_eq!(input, 7_777);
}

type Writes = Box<dyn Fn(&Asked) -> Script + Send + Sync>;

#[tokio::test]
async fn a_summary_whose_provider_takes_too_long_or_breaks_off_has_cost_what_was_sent_and_written() {
    let written = "It was asked about the capitals of countries, and how many people live there. ".repeat(20);
    let rows: [(&str, Writes, u64); 3] = [
        ("says nothing", Box::new(|_| Script::hang()), 0),
        (
            "stops in the middle",
            {
                let written = written.clone();
                Box::new(move |asked| Script::says(asked, [Say::text(&written), Say::text(&written)]).hanging_after(2))
            },
            300,
        ),
        (
            "breaks off",
            Box::new(move |asked| Script::says(asked, [Say::text(&written), Say::text(&written)]).cut_after(2)),
            300,
        ),
    ];
    for (what, says, least) in rows {
        let model = ScriptedModel::start(says).await;
        let house = House::start().await;
        house.failed_jobs_wait().await;
        ripe(&house).await;
        let mut writing = Writing::by(&model);
        writing.access = ModelAccess { breaker: BreakerSettings::default(), ..ModelAccess::default() };
        for provider in writing.providers.values_mut() {
            provider.first_byte_timeout_ms = 300;
        }
        house.worker_writing(&writing).run_until_idle().await;
        let (calls, failed, input, output) = booked(&house).await;
        assert_eq!((calls, failed), (1, 1), "{what}");
        assert!(input > SAID && output >= least, "{what}: {input} tokens read, {output} written");
    }
}
