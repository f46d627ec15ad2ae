//! Calls of models are admitted by what the whole fleet has under way, and nobody who dies takes room with him.

use std::time::Duration;

use anneal_core::{
    admission::{BreakerSettings, CallLimits, CallPurpose, Closed},
    caller::{Caller, ConversationId, TenantId},
    tokens::Tokens,
};
use anneal_store::{CallAsk, ModelLease, Settled, Store, StoreError, Verdict};
use anneal_tests::{House, pb};

const CALLER: Caller = Caller::of(TenantId::DEFAULT);
const MODEL: &str = "a model";

fn ask(conversation: ConversationId, limits: CallLimits) -> CallAsk<'static> {
    CallAsk { model: MODEL, conversation, purpose: CallPurpose::Summary, tokens: Tokens::new(100), limits }
}

fn settled(verdict: Verdict) -> Settled {
    Settled { input: Tokens::new(30), output: Tokens::new(12), calls: 1, verdict }
}

async fn conversation(house: &House) -> ConversationId {
    ConversationId(house.conversation().await.id.parse().expect("a conversation's id"))
}

async fn admitted(store: &Store, ask: &CallAsk<'_>) -> ModelLease {
    store.admit_call(CALLER, ask).await.expect("the store answers").expect("is admitted")
}

async fn refused(store: &Store, ask: &CallAsk<'_>) -> Closed {
    store.admit_call(CALLER, ask).await.expect("the store answers").expect_err("is refused")
}

/// Takes every lease past its time, as the death of its holder does after fifteen seconds.
async fn end_leases(house: &House) {
    let end = "update ai_model_lease set lease_until_ts = now() - interval '1 second'";
    sqlx::query(end).execute(&mut house.db().await).await.expect("ends");
}

async fn stats(house: &House) -> pb::GetModelStatsResponse {
    house.operators().get_model_stats(pb::GetModelStatsRequest {}).await.expect("answers").into_inner()
}

#[tokio::test]
async fn of_many_calls_at_once_as_many_are_admitted_as_are_allowed() {
    let house = House::start().await;
    let limits = CallLimits { concurrent: Some(3), ..CallLimits::default() };
    let mut asks = Vec::new();
    for _ in 0..12 {
        asks.push(ask(conversation(&house).await, limits));
    }
    let outcomes = futures::future::join_all(asks.iter().map(|ask| house.store.admit_call(CALLER, ask))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.expect("the store answers")).collect();
    let leases: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    assert_eq!(leases.len(), 3);
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|closed| *closed == Closed::Busy));
    assert_eq!(stats(&house).await.models[0].calls_under_way, 3);

    house.store.settle_call(leases[0], &settled(Verdict::Answers)).await.expect("settles");
    let again = admitted(&house.store, &asks[0]).await;
    assert_eq!(refused(&house.store, &asks[1]).await, Closed::Busy);
    end_leases(&house).await;
    for ask in &asks[..3] {
        admitted(&house.store, ask).await;
    }
    assert!(!house.store.renew_call(&again).await.expect("the store answers"), "its place is another's");
}

#[tokio::test]
async fn a_lease_that_is_renewed_lives_on() {
    let house = House::start().await;
    let limits = CallLimits { concurrent: Some(1), ..CallLimits::default() };
    let ask = ask(conversation(&house).await, limits);
    let lease = admitted(&house.store, &ask).await;
    end_leases(&house).await;
    assert!(house.store.renew_call(&lease).await.expect("the store answers"), "nobody has taken its place");
    assert_eq!(refused(&house.store, &ask).await, Closed::Busy);
}

#[tokio::test]
async fn a_tenants_day_holds_what_was_used_and_what_is_reserved() {
    let house = House::start().await;
    let limits = CallLimits { tokens_per_day: Some(Tokens::new(250)), ..CallLimits::default() };
    let ask = ask(conversation(&house).await, limits);
    let other = CallAsk { model: "another model", ..ask };
    let first = admitted(&house.store, &ask).await;
    admitted(&house.store, &other).await;
    let Closed::Budget { opens_in } = refused(&house.store, &other).await else { panic!("another reason") };
    assert!(opens_in <= Duration::from_hours(24));
    house.store.settle_call(&first, &settled(Verdict::Answers)).await.expect("settles");
    // 42 were used, 100 are reserved.
    admitted(&house.store, &ask).await;
    assert!(matches!(refused(&house.store, &ask).await, Closed::Budget { .. }));
    end_leases(&house).await;
    // What the dead had reserved is free; what was used is not.
    admitted(&house.store, &ask).await;
    admitted(&house.store, &other).await;
    assert!(matches!(refused(&house.store, &ask).await, Closed::Budget { .. }));
    let figures = stats(&house).await;
    assert_eq!((figures.models[0].calls_today, figures.models[0].input_tokens_today), (1, 30));
}

#[tokio::test]
async fn a_conversations_breaker_opens_for_it_alone_and_lets_one_call_try_afterwards() {
    let house = House::start().await;
    let breaker = BreakerSettings { failures: 2, ..BreakerSettings::default() };
    let limits = CallLimits { breaker, ..CallLimits::default() };
    let (poison, sound) = (ask(conversation(&house).await, limits), ask(conversation(&house).await, limits));
    for _ in 0..2 {
        let lease = admitted(&house.store, &poison).await;
        let failed = settled(Verdict::FailsConversation("an answer without an end".into()));
        house.store.settle_call(&lease, &failed).await.expect("settles");
    }
    assert!(matches!(refused(&house.store, &poison).await, Closed::Breaker { scope: "conversation", .. }));
    let turn = CallAsk { purpose: CallPurpose::Turn, ..poison };
    for other in [&sound, &turn] {
        let lease = admitted(&house.store, other).await;
        house.store.settle_call(&lease, &settled(Verdict::Answers)).await.expect("settles");
    }
    let shown = stats(&house).await;
    assert_eq!(shown.conversations.len(), 1, "{shown:?}");
    let shown = shown.conversations[0].breaker.as_ref().expect("is there");
    assert_eq!((shown.failures, shown.last_error.as_str()), (2, "an answer without an end"));
    assert!(shown.open_for.is_some());

    let pass = "update ai_conversation_breaker set open_until_ts = now() - interval '1 second'";
    sqlx::query(pass).execute(&mut house.db().await).await.expect("passes");
    let trying = admitted(&house.store, &poison).await;
    assert!(matches!(refused(&house.store, &poison).await, Closed::Breaker { .. }), "one tries, the others wait");
    house.store.settle_call(&trying, &settled(Verdict::Answers)).await.expect("settles");
    admitted(&house.store, &poison).await;
    admitted(&house.store, &poison).await;
    assert!(stats(&house).await.conversations.is_empty());
}

#[tokio::test]
async fn a_conversation_has_one_turn_at_a_time_whatever_the_model() {
    let house = House::start().await;
    let here = conversation(&house).await;
    let turn = CallAsk { purpose: CallPurpose::Turn, ..ask(here, CallLimits::default()) };
    let models: Vec<String> = (0..8).map(|number| format!("model {number}")).collect();
    let asks: Vec<_> = models.iter().map(|model| CallAsk { model, ..turn }).collect();
    let outcomes = futures::future::join_all(asks.iter().map(|ask| house.store.admit_call(CALLER, ask))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.expect("the store answers")).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|closed| *closed == Closed::Turn));
    admitted(&house.store, &CallAsk { conversation: conversation(&house).await, ..turn }).await;
    end_leases(&house).await;
    admitted(&house.store, &turn).await;
}

/// As after a process that stands still in the middle of an admission.
#[tokio::test]
async fn those_who_wait_for_a_models_row_leave_connections_to_the_jobs_of_others() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let call = ask(conversation(&house).await, CallLimits::default());
    admitted(&house.store, &call).await;
    let mut db = house.db().await;
    let hold = "begin; select from ai_model_breaker where model = 'a model' for update";
    sqlx::raw_sql(hold).execute(&mut db).await.expect("holds the model's row");
    let many = futures::future::join_all((0..32).map(|_| house.store.admit_call(CALLER, &call)));
    let others = async {
        house.waiting(1).await;
        talk.turn("Is somebody there?", "Yes.").await;
        assert_eq!(house.run_jobs_until_idle().await, 1, "it is counted meanwhile");
        sqlx::query("rollback").execute(&mut db).await.expect("lets go");
    };
    let (admissions, ()) = tokio::join!(many, others);
    assert!(admissions.iter().flatten().any(Result::is_ok), "{admissions:?}");
}

#[tokio::test]
async fn a_foreign_conversation_admits_nothing_and_a_deleted_one_leaves_nothing() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let here = ConversationId(talk.id.parse().expect("a conversation's id"));
    let call = ask(here, CallLimits::default());
    let stranger = Caller::of(TenantId(uuid::Uuid::now_v7()));
    let foreign = house.store.admit_call(stranger, &call).await;
    assert!(matches!(foreign, Err(StoreError::NotFound(_))), "{foreign:?}");
    let lease = admitted(&house.store, &call).await;
    let ask = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let late = settled(Verdict::FailsConversation("too late".into()));
    house.store.settle_call(&lease, &late).await.expect("settles");
    for table in ["ai_model_lease", "ai_conversation_breaker", "ai_summary_part"] {
        let count = format!("select count(*) from {table}");
        let left: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut house.db().await).await.expect("counts");
        assert_eq!(left, 0, "{table}");
    }
}
