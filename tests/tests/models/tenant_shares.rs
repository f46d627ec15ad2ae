//! Tenants that share a model: which breaker opens after whose failures, and how many concurrent
//! calls each tenant gets.

use anneal_core::{
    admission::{AdmissionRefusal, BreakerSettings, CallLimits, CallPurpose},
    caller::{Caller, ConversationId, TenantId, Verb},
    tokens::Tokens,
};
use anneal_server::{AuthSettings, ServerSettings};
use anneal_store::{CallAsk, CallOutcome, ModelFault, ModelLease, Verdict};
use anneal_testkit::{
    AuthorizedChannel, ModelWorkerSettings, SUMMARY_MODEL, Script, ScriptedModel, TestApp, pb,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    operator_service_client::OperatorServiceClient,
};
use serde_json::json;

use crate::due_checkpoints::{create_conversation_due_for_checkpoint, list_checkpoint_jobs};

const MODEL: &str = "a model";

/// A tenant with a conversation.
struct Tenant<'a> {
    app: &'a TestApp,
    channel: AuthorizedChannel,
    caller: Caller,
    conversation: ConversationId,
}

/// An app whose callers need API keys.
async fn app_with_api_keys() -> TestApp {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    TestApp::with_auth(ServerSettings::default(), auth).await
}

impl<'a> Tenant<'a> {
    async fn create(app: &'a TestApp, name: &str) -> Self {
        let key = app.key(name, &Verb::ALL).await;
        let channel = app.authorized_channel(&format!("Bearer {}", key.text));
        let mut client = ConversationServiceClient::new(channel.clone());
        let created = client
            .create_conversation(pb::CreateConversationRequest::default())
            .await
            .expect("creates");
        let conversation =
            ConversationId(created.into_inner().conversation_id.parse().expect("an id"));
        Self {
            app,
            channel,
            caller: Caller::of(app.tenant(name).await),
            conversation,
        }
    }

    async fn admit(&self, limits: CallLimits) -> Result<ModelLease, AdmissionRefusal> {
        let (conversation, purpose) = (self.conversation, CallPurpose::Summary);
        let ask = CallAsk {
            model: MODEL,
            conversation,
            is_stored: true,
            purpose,
            tokens: Tokens::new(100),
            limits,
            request_id: None,
            replaces: None,
        };
        self.app
            .store
            .admit_call(self.caller, &ask)
            .await
            .expect("the store answers")
    }

    async fn settle(&self, lease: &ModelLease, verdict: Verdict) {
        let outcome = CallOutcome {
            input: Tokens::new(30),
            output: Tokens::new(12),
            calls: 1,
            failed_calls: i32::from(verdict != Verdict::Answers),
            verdict,
        };
        self.app
            .store
            .settle_call(lease, &outcome)
            .await
            .expect("settles");
    }

    /// Makes a call that fails: admits it and settles it as failed.
    async fn fail(&self, limits: CallLimits) {
        let lease = self.admit(limits).await.expect("is admitted");
        self.settle(&lease, failed()).await;
    }

    /// Makes a call that the model answers: admits it and settles it as answered.
    async fn answer(&self, limits: CallLimits) {
        let lease = self.admit(limits).await.expect("is admitted");
        self.settle(&lease, Verdict::Answers).await;
    }

    /// The model's figures as the tenant sees them.
    async fn stats(&self) -> pb::ModelStats {
        let mut client = OperatorServiceClient::new(self.channel.clone());
        let stats = client
            .get_model_stats(pb::GetModelStatsRequest {})
            .await
            .expect("answers");
        stats.into_inner().models.remove(0)
    }

    /// Tries to admit a call. Returns the scope of the breaker that refuses it, or `None` if it is
    /// admitted. An admitted call is settled at once, without an effect on breakers.
    async fn blocking_breaker(&self, limits: CallLimits) -> Option<&'static str> {
        match self.admit(limits).await {
            Ok(lease) => {
                self.settle(&lease, Verdict::Nothing).await;
                None
            }
            Err(AdmissionRefusal::Breaker { scope, .. }) => Some(scope),
            Err(other) => panic!("another reason: {other}"),
        }
    }
}

/// The verdict on a call whose provider answered with status 503.
fn failed() -> Verdict {
    Verdict::Fails(ModelFault {
        kind: "limited",
        status: Some(503),
        text: "status 503".into(),
    })
}

/// Limits with breakers of models and tenants that open after this many failures. The breakers of
/// conversations do not open in these tests.
fn limits_opening_after(model_failures: u32) -> CallLimits {
    let breaker = BreakerSettings {
        failures: 1_000,
        model_failures,
        cooldown_seconds: 60,
    };
    CallLimits {
        breaker,
        ..CallLimits::default()
    }
}

/// Ends the cooldown of every open breaker of a model or a tenant.
async fn expire_breaker_cooldowns(app: &TestApp) {
    for table in ["ai_model_breaker", "ai_tenant_breaker"] {
        let update = format!(
            "update {table} set open_until_ts = now() - interval '1 second' where open_until_ts is not null"
        );
        sqlx::query(sqlx::AssertSqlSafe(update))
            .execute(&mut app.db().await)
            .await
            .expect("runs");
    }
}

#[tokio::test]
async fn failures_of_one_tenant_open_only_its_own_breaker() {
    let app = app_with_api_keys().await;
    let (eve, anna, limits) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
        limits_opening_after(4),
    );
    for _ in 0..4 {
        eve.fail(limits).await;
    }
    assert_eq!(
        (
            eve.blocking_breaker(limits).await,
            anna.blocking_breaker(limits).await
        ),
        (Some("tenant"), None)
    );
    let stats = anna.stats().await;
    let breaker = stats.breaker.expect("is there");
    assert_eq!(
        (
            breaker.failures,
            breaker.open_for,
            stats.open_tenant_breakers
        ),
        (4, None, 1)
    );
    anna.answer(limits).await;
    assert_eq!(
        eve.blocking_breaker(limits).await,
        Some("tenant"),
        "an answer to another tenant does not close the breaker of this one"
    );
    expire_breaker_cooldowns(&app).await;
    eve.fail(limits).await;
    assert_eq!(
        eve.blocking_breaker(limits).await,
        Some("tenant"),
        "after the cooldown, one failure opens the breaker again"
    );
    expire_breaker_cooldowns(&app).await;
    eve.answer(limits).await;
    eve.fail(limits).await;
    assert_eq!(
        (
            eve.blocking_breaker(limits).await,
            anna.stats().await.open_tenant_breakers
        ),
        (None, 0)
    );
}

#[tokio::test]
async fn failures_of_two_tenants_open_the_models_breaker() {
    let app = app_with_api_keys().await;
    let (eve, anna, limits) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
        limits_opening_after(4),
    );
    for _ in 0..3 {
        eve.fail(limits).await;
    }
    anna.fail(limits).await;
    assert_eq!(
        anna.blocking_breaker(limits).await,
        None,
        "one tenant's failures count toward at most half of the limit"
    );
    anna.fail(limits).await;
    let third = Tenant::create(&app, "third").await;
    for tenant in [&eve, &anna, &third] {
        assert_eq!(tenant.blocking_breaker(limits).await, Some("model"));
    }
    let breaker = anna.stats().await.breaker.expect("is there");
    assert_eq!(
        (breaker.failures, breaker.last_error.as_str()),
        (5, "status 503")
    );
    assert!(breaker.open_for.is_some());
}

#[tokio::test]
async fn a_hanging_trial_of_one_tenant_does_not_block_trials_of_others() {
    let app = app_with_api_keys().await;
    let (eve, anna, limits) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
        limits_opening_after(2),
    );
    eve.fail(limits).await;
    anna.fail(limits).await;
    assert_eq!(anna.blocking_breaker(limits).await, Some("model"));
    expire_breaker_cooldowns(&app).await;
    // The trial call does not end.
    let trial = eve.admit(limits).await.expect("the trial is admitted");
    assert_eq!(
        eve.blocking_breaker(limits).await,
        Some("tenant"),
        "one trial call per tenant"
    );
    // The admission has opened the tenant's breaker again, for the length of the lease. The trial
    // outlasts this time, as calls of a hanging model do.
    expire_breaker_cooldowns(&app).await;
    assert!(
        app.store
            .renew_call(&trial)
            .await
            .expect("the store answers")
    );
    assert_eq!(eve.blocking_breaker(limits).await, Some("tenant"));
    eve.settle(&trial, failed()).await;
    assert_eq!(
        eve.blocking_breaker(limits).await,
        Some("tenant"),
        "the tenant's breaker is open again"
    );
    let third = Tenant::create(&app, "third").await;
    third.answer(limits).await;
    for tenant in [&anna, &third] {
        assert_eq!(
            tenant.blocking_breaker(limits).await,
            None,
            "one answer closes the model's breaker"
        );
    }
}

#[tokio::test]
async fn failed_trials_of_two_tenants_open_the_models_breaker_again() {
    let app = app_with_api_keys().await;
    let (eve, anna, limits) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
        limits_opening_after(20),
    );
    for _ in 0..10 {
        eve.fail(limits).await;
        anna.fail(limits).await;
    }
    expire_breaker_cooldowns(&app).await;
    eve.fail(limits).await;
    assert_eq!(eve.blocking_breaker(limits).await, Some("tenant"));
    let third = Tenant::create(&app, "third").await;
    third.fail(limits).await;
    assert_eq!(anna.blocking_breaker(limits).await, Some("model"));
}

#[tokio::test]
async fn simultaneous_failures_are_each_counted() {
    let app = app_with_api_keys().await;
    let (eve, anna, limits) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
        limits_opening_after(16),
    );
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push((&eve, eve.admit(limits).await.expect("is admitted")));
        leases.push((&anna, anna.admit(limits).await.expect("is admitted")));
    }
    let settlements = leases
        .iter()
        .map(|(tenant, lease)| tenant.settle(lease, failed()));
    futures::future::join_all(settlements).await;
    assert_eq!(
        anna.stats().await.breaker.map(|breaker| breaker.failures),
        Some(16)
    );
    // `evidence` counts the tenant's failures that count toward the model's breaker.
    let counts = "select failures, evidence from ai_tenant_breaker order by tenant_id";
    let counts: Vec<(i32, i32)> = sqlx::query_as(counts)
        .fetch_all(&mut app.db().await)
        .await
        .expect("asks");
    assert_eq!(counts, [(8, 8), (8, 8)]);
    assert_eq!(
        (
            eve.blocking_breaker(limits).await,
            anna.blocking_breaker(limits).await
        ),
        (Some("model"), Some("model"))
    );
}

#[tokio::test]
async fn each_of_several_tenants_gets_its_share_of_a_models_calls() {
    let app = app_with_api_keys().await;
    let (eve, anna) = (
        Tenant::create(&app, "eve").await,
        Tenant::create(&app, "anna").await,
    );
    let limits = CallLimits {
        concurrent: Some(6),
        tenant_share: Some(3),
        ..CallLimits::default()
    };
    let admissions = futures::future::join_all((0..12).map(|_| eve.admit(limits))).await;
    let (admitted, refused): (Vec<_>, Vec<_>) = admissions.into_iter().partition(Result::is_ok);
    assert_eq!((admitted.len(), refused.len()), (3, 9));
    assert!(refused.iter().all(|admission| {
        admission
            .as_ref()
            .is_err_and(|refusal| *refusal == AdmissionRefusal::Share)
    }));
    for _ in 0..3 {
        anna.admit(limits).await.expect("other tenants have a slot");
    }
    let third = Tenant::create(&app, "third").await;
    assert_eq!(
        third.admit(limits).await.err(),
        Some(AdmissionRefusal::Busy),
        "all calls are in flight"
    );
}

#[tokio::test]
async fn a_single_tenant_may_use_all_of_a_models_calls() {
    let app = app_with_api_keys().await;
    let limits = CallLimits {
        concurrent: Some(2),
        tenant_share: Some(1),
        ..CallLimits::default()
    };
    // The default tenant always exists. It takes no share while it calls no model.
    let only = Tenant::create(&app, "only").await;
    let leases = [
        only.admit(limits).await.expect("one"),
        only.admit(limits).await.expect("two"),
    ];
    assert_eq!(only.admit(limits).await.err(), Some(AdmissionRefusal::Busy));
    only.settle(&leases[0], Verdict::Answers).await;
    let default = Tenant::create(&app, "default").await;
    assert_eq!(default.caller.tenant(), TenantId::DEFAULT);
    assert!(default.blocking_breaker(limits).await.is_none());
    assert_eq!(
        only.admit(limits).await.err(),
        Some(AdmissionRefusal::Share),
        "another tenant now calls the model"
    );
}

#[tokio::test]
async fn a_summary_above_its_tenants_share_waits_without_a_worker_slot() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    app.tenant("another").await;
    create_conversation_due_for_checkpoint(&app).await;
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.models = serde_json::from_value(json!({
        SUMMARY_MODEL: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 2}
    }))
    .expect("settings");
    // Because there is another tenant, this one's share is one of the two calls. A turn uses it.
    let limits = CallLimits {
        concurrent: Some(2),
        tenant_share: Some(1),
        ..CallLimits::default()
    };
    let conversation = ConversationId(app.conversation().await.id.parse().expect("an id"));
    let (purpose, tokens) = (CallPurpose::Turn, Tokens::new(100));
    let ask = CallAsk {
        model: SUMMARY_MODEL,
        conversation,
        is_stored: true,
        purpose,
        tokens,
        limits,
        request_id: None,
        replaces: None,
    };
    let caller = Caller::of(TenantId::DEFAULT);
    let turn = app
        .store
        .admit_call(caller, &ask)
        .await
        .expect("the store answers")
        .expect("is admitted");
    let worker = app.worker_with_model(&worker_settings);
    worker.run_until_idle().await;
    let [job] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    assert_eq!((job.attempts, model.requests().len()), (0, 0));
    assert!(
        job.last_error
            .contains("its maximum number of this model's calls in flight"),
        "{}",
        job.last_error
    );
    let outcome = CallOutcome {
        input: Tokens::ZERO,
        output: Tokens::ZERO,
        calls: 1,
        failed_calls: 0,
        verdict: Verdict::Answers,
    };
    app.store
        .settle_call(&turn, &outcome)
        .await
        .expect("settles");
    let make_due = "update ai_job set due_ts = now() where state = 0";
    sqlx::query(make_due)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    worker.run_until_idle().await;
    assert!(list_checkpoint_jobs(&app).await.is_empty() && !model.requests().is_empty());
}
