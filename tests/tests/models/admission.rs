//! The admission of model calls by the store: limits of the calls in flight of all processes, daily
//! quotas, breakers, one turn per conversation, and leases that expire when their process crashes.

use std::time::Duration;

use anneal_core::{
    admission::{AdmissionRefusal, BreakerSettings, CallLimits, CallPurpose},
    caller::{Caller, ConversationId, TenantId},
    tokens::Tokens,
};
use anneal_store::{CallAsk, CallOutcome, ModelLease, Store, StoreError, Verdict};
use anneal_testkit::{TestApp, pb};

const CALLER: Caller = Caller::of(TenantId::DEFAULT);
const MODEL: &str = "a model";

fn ask(conversation: ConversationId, limits: CallLimits) -> CallAsk<'static> {
    CallAsk {
        model: MODEL,
        conversation,
        is_stored: true,
        purpose: CallPurpose::Summary,
        tokens: Tokens::new(100),
        limits,
        request_id: None,
        replaces: None,
    }
}

fn call_outcome(verdict: Verdict) -> CallOutcome {
    CallOutcome {
        input: Tokens::new(30),
        output: Tokens::new(12),
        calls: 1,
        failed_calls: i32::from(verdict != Verdict::Answers),
        verdict,
    }
}

async fn create_conversation(app: &TestApp) -> ConversationId {
    ConversationId(
        app.conversation()
            .await
            .id
            .parse()
            .expect("a conversation's id"),
    )
}

async fn admit(store: &Store, ask: &CallAsk<'_>) -> ModelLease {
    store
        .admit_call(CALLER, ask)
        .await
        .expect("the store answers")
        .expect("is admitted")
}

async fn assert_refused_admission(store: &Store, ask: &CallAsk<'_>) -> AdmissionRefusal {
    store
        .admit_call(CALLER, ask)
        .await
        .expect("the store answers")
        .expect_err("is refused")
}

/// Expires every lease, as happens 15 seconds after its holder crashed.
async fn expire_leases(app: &TestApp) {
    let end = "update ai_model_lease set lease_until_ts = now() - interval '1 second'";
    sqlx::query(end)
        .execute(&mut app.db().await)
        .await
        .expect("ends");
}

async fn model_stats(app: &TestApp) -> pb::GetModelStatsResponse {
    app.operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner()
}

#[tokio::test]
async fn concurrent_calls_are_admitted_up_to_the_limit() {
    let app = TestApp::start().await;
    let limits = CallLimits {
        concurrent: Some(3),
        ..CallLimits::default()
    };
    let mut asks = Vec::new();
    for _ in 0..12 {
        asks.push(ask(create_conversation(&app).await, limits));
    }
    let outcomes =
        futures::future::join_all(asks.iter().map(|ask| app.store.admit_call(CALLER, ask))).await;
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| outcome.expect("the store answers"))
        .collect();
    let leases: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().ok())
        .collect();
    assert_eq!(leases.len(), 3);
    assert!(
        outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().err())
            .all(|refusal| *refusal == AdmissionRefusal::Busy)
    );
    assert_eq!(model_stats(&app).await.models[0].calls_under_way, 3);

    app.store
        .settle_call(leases[0], &call_outcome(Verdict::Answers))
        .await
        .expect("settles");
    let lease = admit(&app.store, &asks[0]).await;
    assert_eq!(
        assert_refused_admission(&app.store, &asks[1]).await,
        AdmissionRefusal::Busy
    );
    expire_leases(&app).await;
    // All three slots are free again.
    for ask in &asks[..3] {
        admit(&app.store, ask).await;
    }
    assert!(
        !app.store
            .renew_call(&lease)
            .await
            .expect("the store answers"),
        "the lease has expired, and another call has its slot"
    );
}

#[tokio::test]
async fn an_expired_lease_can_be_renewed_while_its_slot_is_free() {
    let app = TestApp::start().await;
    let limits = CallLimits {
        concurrent: Some(1),
        ..CallLimits::default()
    };
    let ask = ask(create_conversation(&app).await, limits);
    let lease = admit(&app.store, &ask).await;
    expire_leases(&app).await;
    assert!(
        app.store
            .renew_call(&lease)
            .await
            .expect("the store answers"),
        "the lease takes its slot again"
    );
    assert_eq!(
        assert_refused_admission(&app.store, &ask).await,
        AdmissionRefusal::Busy
    );
}

#[tokio::test]
async fn a_daily_quota_counts_used_and_reserved_tokens() {
    let app = TestApp::start().await;
    let limits = CallLimits {
        tokens_per_day: Some(Tokens::new(250)),
        ..CallLimits::default()
    };
    let ask = ask(create_conversation(&app).await, limits);
    let other = CallAsk {
        model: "another model",
        ..ask
    };
    let first = admit(&app.store, &ask).await;
    admit(&app.store, &other).await;
    let AdmissionRefusal::Budget { retry_after } =
        assert_refused_admission(&app.store, &other).await
    else {
        panic!("another reason")
    };
    assert!(retry_after <= Duration::from_hours(24));
    app.store
        .settle_call(&first, &call_outcome(Verdict::Answers))
        .await
        .expect("settles");
    // 42 tokens are used by the first call, 100 are reserved by the call of the other model.
    admit(&app.store, &ask).await;
    assert!(matches!(
        assert_refused_admission(&app.store, &ask).await,
        AdmissionRefusal::Budget { .. }
    ));
    expire_leases(&app).await;
    // Tokens reserved by expired leases are free again. Used tokens are not.
    admit(&app.store, &ask).await;
    admit(&app.store, &other).await;
    assert!(matches!(
        assert_refused_admission(&app.store, &ask).await,
        AdmissionRefusal::Budget { .. }
    ));
    let figures = model_stats(&app).await;
    assert_eq!(
        (
            figures.models[0].calls_today,
            figures.models[0].input_tokens_today
        ),
        (1, 30)
    );
}

#[tokio::test]
async fn a_conversation_breaker_opens_only_for_its_conversation_and_then_admits_one_trial() {
    let app = TestApp::start().await;
    let breaker = BreakerSettings {
        failures: 2,
        ..BreakerSettings::default()
    };
    let limits = CallLimits {
        breaker,
        ..CallLimits::default()
    };
    let (failing, healthy) = (
        ask(create_conversation(&app).await, limits),
        ask(create_conversation(&app).await, limits),
    );
    for _ in 0..2 {
        let lease = admit(&app.store, &failing).await;
        let failed = call_outcome(Verdict::FailsConversation(
            "an answer without an end".into(),
        ));
        app.store
            .settle_call(&lease, &failed)
            .await
            .expect("settles");
    }
    assert!(matches!(
        assert_refused_admission(&app.store, &failing).await,
        AdmissionRefusal::Breaker {
            scope: "conversation",
            ..
        }
    ));
    // The breaker of a conversation does not apply to its turns.
    let turn = CallAsk {
        purpose: CallPurpose::Turn,
        ..failing
    };
    for other in [&healthy, &turn] {
        let lease = admit(&app.store, other).await;
        app.store
            .settle_call(&lease, &call_outcome(Verdict::Answers))
            .await
            .expect("settles");
    }
    let shown = model_stats(&app).await;
    assert_eq!(shown.conversations.len(), 1, "{shown:?}");
    let breaker = shown.conversations[0].breaker.as_ref().expect("is there");
    assert_eq!(
        (breaker.failures, breaker.last_error.as_str()),
        (2, "an answer without an end")
    );
    assert!(breaker.open_for.is_some());

    let end_cooldown =
        "update ai_conversation_breaker set open_until_ts = now() - interval '1 second'";
    sqlx::query(end_cooldown)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    // The operator raises the number of failures. The breaker stays half open.
    let failing = ask(
        failing.conversation,
        CallLimits {
            breaker: BreakerSettings {
                failures: 3,
                ..limits.breaker
            },
            ..limits
        },
    );
    let trial = admit(&app.store, &failing).await;
    for _ in 0..2 {
        assert!(
            matches!(
                assert_refused_admission(&app.store, &failing).await,
                AdmissionRefusal::Breaker { .. }
            ),
            "one trial call is admitted, further calls are refused"
        );
        // The admission has opened the breaker again, for the length of the lease. The trial
        // outlasts this time, so the renewal of its lease must keep the breaker open.
        sqlx::query(end_cooldown)
            .execute(&mut app.db().await)
            .await
            .expect("runs");
        let renewed = app.store.renew_call(&trial).await;
        assert!(renewed.expect("the store answers"));
    }
    app.store
        .settle_call(&trial, &call_outcome(Verdict::Answers))
        .await
        .expect("settles");
    admit(&app.store, &failing).await;
    admit(&app.store, &failing).await;
    assert!(model_stats(&app).await.conversations.is_empty());
}

#[tokio::test]
async fn a_call_that_keeps_a_cache_warm_leaves_the_conversations_breaker_as_it_is() {
    let app = TestApp::start().await;
    let limits = CallLimits {
        breaker: BreakerSettings {
            failures: 1,
            ..BreakerSettings::default()
        },
        ..CallLimits::default()
    };
    let summary = ask(create_conversation(&app).await, limits);
    let lease = admit(&app.store, &summary).await;
    let failed = call_outcome(Verdict::FailsConversation("nothing is shorter".into()));
    let settled = app.store.settle_call(&lease, &failed).await;
    settled.expect("settles");
    let breaker = async || -> (String, i32) {
        sqlx::query_as("select open_until_ts::text, failures from ai_conversation_breaker")
            .fetch_one(&mut app.db().await)
            .await
            .expect("the breaker is open")
    };
    let opened = breaker().await;
    let ping = CallAsk {
        purpose: CallPurpose::Ping,
        request_id: Some("a turn"),
        ..summary
    };
    let failed_too = call_outcome(Verdict::FailsConversation("no answer".into()));
    for outcome in [failed_too, call_outcome(Verdict::Answers)] {
        let lease = admit(&app.store, &ping).await;
        assert_eq!(breaker().await, opened, "after the admission");
        let settled = app.store.settle_call(&lease, &outcome).await;
        settled.expect("settles");
        assert_eq!(breaker().await, opened, "after {:?}", outcome.verdict);
    }
}

#[tokio::test]
async fn a_conversation_has_one_turn_at_a_time_across_models() {
    let app = TestApp::start().await;
    let here = create_conversation(&app).await;
    let turn = CallAsk {
        purpose: CallPurpose::Turn,
        ..ask(here, CallLimits::default())
    };
    let models: Vec<String> = (0..8).map(|number| format!("model {number}")).collect();
    let asks: Vec<_> = models
        .iter()
        .map(|model| CallAsk { model, ..turn })
        .collect();
    let outcomes =
        futures::future::join_all(asks.iter().map(|ask| app.store.admit_call(CALLER, ask))).await;
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| outcome.expect("the store answers"))
        .collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(
        outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().err())
            .all(|refusal| *refusal == AdmissionRefusal::Turn)
    );
    admit(
        &app.store,
        &CallAsk {
            conversation: create_conversation(&app).await,
            ..turn
        },
    )
    .await;
    expire_leases(&app).await;
    admit(&app.store, &turn).await;
}

/// The leases, the breakers of conversations and the calls that were booked.
async fn count_rows(app: &TestApp) -> (i64, i64, i64) {
    let count = "select (select count(*) from ai_model_lease), (select count(*) from ai_conversation_breaker),
        (select coalesce(sum(calls), 0)::bigint from ai_model_spend)";
    sqlx::query_as(count)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

#[tokio::test]
async fn a_turn_that_is_not_stored_needs_no_conversation_and_leaves_its_cost_alone() {
    let app = TestApp::start().await;
    let nowhere = ConversationId(uuid::Uuid::new_v4());
    let limits = CallLimits {
        breaker: BreakerSettings {
            failures: 1,
            ..BreakerSettings::default()
        },
        ..CallLimits::default()
    };
    let stored = CallAsk {
        purpose: CallPurpose::Turn,
        ..ask(nowhere, limits)
    };
    let refused = app.store.admit_call(CALLER, &stored).await;
    assert!(
        matches!(refused, Err(StoreError::NotFound(_))),
        "{refused:?}"
    );
    let unstored = CallAsk {
        is_stored: false,
        ..stored
    };
    let first = admit(&app.store, &unstored).await;
    let found = app.store.find_orphaned_rows(&[TenantId::DEFAULT]).await;
    assert_eq!(found.expect("searches"), [], "its lease is no orphan");
    let next = CallAsk {
        model: "another model",
        replaces: Some(&first),
        ..unstored
    };
    let second = admit(&app.store, &next).await;
    assert_eq!(count_rows(&app).await, (1, 0, 0), "one lease is left");
    let renewed = app.store.renew_call(&second).await;
    assert!(renewed.expect("the store answers"));
    for (lease, verdict) in [
        (&first, Verdict::FailsConversation("no answer".into())),
        (&second, Verdict::Answers),
    ] {
        let settled = app.store.settle_call(lease, &call_outcome(verdict)).await;
        settled.expect("settles");
    }
    assert_eq!(count_rows(&app).await, (0, 0, 2));
}

/// The test locks the model's row, as a process does that is suspended in the middle of an
/// admission.
#[tokio::test]
async fn admissions_waiting_for_a_locked_model_row_leave_connections_for_other_jobs() {
    let app = TestApp::start().await;
    let other = app.conversation().await;
    let call = ask(create_conversation(&app).await, CallLimits::default());
    admit(&app.store, &call).await;
    let mut db = app.db().await;
    let hold = "begin; select from ai_model_breaker where model = 'a model' for update";
    sqlx::raw_sql(hold)
        .execute(&mut db)
        .await
        .expect("holds the model's row");
    let many = futures::future::join_all((0..32).map(|_| app.store.admit_call(CALLER, &call)));
    let other_work = async {
        app.wait_for_lock_waiters(1).await;
        other.turn("Is somebody there?", "Yes.").await;
        assert_eq!(
            app.run_jobs_until_idle().await,
            1,
            "the new messages are counted during the wait"
        );
        sqlx::query("rollback")
            .execute(&mut db)
            .await
            .expect("rolls back");
    };
    let (admissions, ()) = tokio::join!(many, other_work);
    assert!(
        admissions.iter().flatten().any(Result::is_ok),
        "{admissions:?}"
    );
}

#[tokio::test]
async fn calls_for_another_tenants_conversation_are_refused_and_deletion_removes_leases() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let here = ConversationId(conversation.id.parse().expect("a conversation's id"));
    let call = ask(here, CallLimits::default());
    let other_tenant = Caller::of(TenantId(uuid::Uuid::now_v7()));
    let foreign = app.store.admit_call(other_tenant, &call).await;
    assert!(
        matches!(foreign, Err(StoreError::NotFound(_))),
        "{foreign:?}"
    );
    let lease = admit(&app.store, &call).await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let late_outcome = call_outcome(Verdict::FailsConversation("too late".into()));
    app.store
        .settle_call(&lease, &late_outcome)
        .await
        .expect("settles");
    for table in [
        "ai_model_lease",
        "ai_conversation_breaker",
        "ai_summary_part",
    ] {
        let count = format!("select count(*) from {table}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .fetch_one(&mut app.db().await)
            .await
            .expect("counts");
        assert_eq!(rows, 0, "{table}");
    }
}
