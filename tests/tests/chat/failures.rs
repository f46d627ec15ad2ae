//! Chat when the model does not answer: each situation has its reason, and what was said is never lost.

use std::time::Duration;

use anneal_core::{admission::BreakerSettings, model::Models, tokens::Tokens};
use anneal_llm::ModelAccess;
use anneal_tests::{
    Counted, Gate, House, MODEL, Say, Script, ScriptedModel, ToldTurn, assert_refused, eventually, pb, refusal,
};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;

#[tokio::test]
async fn every_failure_of_a_model_has_its_reason_and_leaves_the_question() {
    type Fails = fn() -> Script;
    let unavailable = (Code::Unavailable, "MODEL_UNAVAILABLE", true);
    let refused = (Code::FailedPrecondition, "MODEL_REFUSED", false);
    let failures: [(&str, Fails, (Code, &str, bool)); 12] = [
        ("rate limit", || Script::status(429, &[("retry-after", "7")], "{}"), unavailable),
        ("overloaded", || Script::status(529, &[], "{}"), unavailable),
        ("down", || Script::status(503, &[], "{}"), unavailable),
        ("broken", || Script::status(500, &[], "a page"), unavailable),
        ("wrong request", || Script::status(400, &[], r#"{"error":{"message":"no"}}"#), refused),
        ("wrong key", || Script::status(401, &[], "{}"), refused),
        ("wrong name", || Script::status(404, &[], "{}"), refused),
        ("no protocol", || Script::raw(b"hello\r\n"), unavailable),
        ("nothing said", || Script::openai(&[], Counted::default()), unavailable),
        ("blank", || Script::openai(&[" \n"], Counted::default()), unavailable),
        ("cut off", || Script::openai(&["half"], Counted::default()).cut_after(2), unavailable),
        ("no end", || Script::events(["data: {\"choices\":[]}\n\n"]), unavailable),
    ];
    let model = ScriptedModel::start(move |asked| failures[asked.nth].1()).await;
    let house = House::chatting(&model).await;
    for (what, _, expected) in failures {
        let talk = house.conversation().await;
        let status = talk.chat("Anybody?").await.end.expect_err(what);
        let said = refusal(&status);
        assert_eq!((said.code, said.reason.as_str(), said.retry), expected, "{what}: {status}");
        assert_eq!(talk.messages().await.len(), 1, "{what}");
        let wait = status.get_error_details().retry_info().and_then(|retry| retry.retry_delay);
        assert_eq!(what == "rate limit", wait == Some(Duration::from_secs(7)), "{what}: {wait:?}");
    }
    assert_eq!(model.asked().len(), failures.len(), "none is tried twice by itself");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unavailable() {
    let model = ScriptedModel::saying("never").await;
    let settings = model.settings(&[MODEL]);
    drop(model);
    let house = House::calling(settings, MODEL).await;
    let talk = house.conversation().await;
    assert_refused(talk.chat("Anybody?").await.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    assert_eq!(talk.messages().await.len(), 1);
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_named_and_nothing_is_stored() {
    let model = ScriptedModel::saying("never").await;
    let named = |told: ToldTurn, name: &str| {
        let status = told.end.expect_err("it cannot be called");
        assert_refused(Err::<(), _>(status.clone()), Code::FailedPrecondition, "MODEL_NOT_CONFIGURED", "");
        assert_eq!(status.get_error_details().error_info().expect("facts").metadata["model"], name);
    };
    let house = House::start().await;
    let talk = house.conversation().await;
    named(talk.chat("hello").await, "");
    let policy = pb::Policy { model: "gpt-4o".into(), ..Default::default() };
    named(house.conversation_under(policy).await.chat("hello").await, "gpt-4o");
    assert!(talk.messages().await.is_empty());
    let calling = House::chatting(&model).await;
    let talk = calling.conversation().await;
    named(talk.chat("hello").of("another").await, "another");
    assert!(talk.messages().await.is_empty() && model.asked().is_empty());
}

#[tokio::test]
async fn a_tenants_open_breaker_refuses_turns_until_it_closes_and_stores_nothing() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 | 1 => Script::status(503, &[], "{}"),
        _ => Script::says(asked, [Say::text("back")]),
    })
    .await;
    let breaker = BreakerSettings { model_failures: 2, cooldown_seconds: 90, ..BreakerSettings::default() };
    let limits = ModelAccess { breaker, ..ModelAccess::default() };
    let house = House::calling_within(model.settings(&[MODEL]), MODEL, limits).await;
    let talk = house.conversation().await;
    for _ in 0..2 {
        assert!(talk.chat("Anybody?").request_id("r").await.end.is_err());
    }
    let other = house.conversation().await;
    let status = other.chat("You?").request_id("r").await.end.expect_err("the breaker is open");
    assert_refused(Err::<(), _>(status.clone()), Code::Unavailable, "MODEL_UNAVAILABLE", "");
    let wait = status.get_error_details().retry_info().and_then(|retry| retry.retry_delay).expect("a time");
    assert!((60..=90).contains(&wait.as_secs()), "{wait:?}");
    assert!(other.messages().await.is_empty());
    assert_eq!(model.asked().len(), 2);
    let mut db = house.db().await;
    sqlx::query("update ai_tenant_breaker set open_until_ts = now()").execute(&mut db).await.expect("time passes");
    assert_eq!(talk.chat("Anybody?").request_id("r").await.text(), "back");
    other.chat("You?").request_id("r").await.done();
}

#[tokio::test]
async fn answers_that_cannot_be_used_do_not_close_a_model_for_others() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0..=5 => Script::openai(&[], Counted::default()),
        _ => Script::says(asked, [Say::text("fine")]),
    })
    .await;
    let breaker = BreakerSettings { failures: 2, model_failures: 2, ..BreakerSettings::default() };
    let house =
        House::calling_within(model.settings(&[MODEL]), MODEL, ModelAccess { breaker, ..ModelAccess::default() }).await;
    let talk = house.conversation().await;
    for _ in 0..6 {
        assert_refused(talk.chat("go").await.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    }
    assert_eq!(talk.chat("go").await.text(), "fine", "a conversation's breaker stops its summaries, not its turns");
}

#[tokio::test]
async fn a_model_with_all_its_calls_under_way_is_busy() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let (providers, _) = model.settings(&[MODEL]);
    let models: Models =
        serde_json::from_value(json!({MODEL: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 1}}))
            .expect("settings");
    let house = House::calling((providers, models), MODEL).await;
    let (one, two) = (house.conversation().await, house.conversation().await);
    let first = one.chat("one").open().await.expect("begins");
    model.arrived(1).await;
    let status = two.chat("two").await.end.expect_err("its only call is under way");
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::ResourceExhausted, "MODEL_BUSY", true));
    assert!(two.messages().await.is_empty());
    gate.open_for_ever();
    ToldTurn::of(first).await.done();
    two.chat("two").await.done();
}

#[tokio::test]
async fn a_tenant_that_has_spent_its_tokens_of_the_day_is_told_when_there_are_new_ones() {
    let counted = Counted { input: 4_000, output: 900, ..Counted::default() };
    let model = ScriptedModel::start(move |_| Script::openai(&["Dear."], counted)).await;
    let limits = ModelAccess { tokens_per_day: Some(Tokens::new(5_000)), ..ModelAccess::default() };
    let house = House::calling_within(model.settings(&[MODEL]), MODEL, limits).await;
    let talk = house.conversation().await;
    talk.chat("one").request_id("r").await.done();
    let status = talk.chat("two").await.end.expect_err("4,900 of 5,000 tokens are spent");
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::ResourceExhausted, "TENANT_BUDGET_SPENT", true));
    assert_eq!((talk.messages().await.len(), model.asked().len()), (2, 1));
    assert!(talk.chat("one").request_id("r").await.done().replayed, "what was answered is told again for nothing");
}

#[tokio::test]
async fn no_connection_to_the_database_is_held_while_a_model_thinks() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let house = House::chatting(&model).await;
    let mut turns = Vec::new();
    for _ in 0..24 {
        turns.push(house.conversation().await.chat("think").open().await.expect("begins"));
        model.arrived(turns.len()).await;
    }
    eventually("every open connection is idle", async || {
        house.store.pools().iter().all(|(_, pool)| pool.idle == pool.open && pool.waiting == 0)
    })
    .await;
    gate.open_for_ever();
    for turn in turns {
        ToldTurn::of(turn).await.done();
    }
}
