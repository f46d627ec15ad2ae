//! Tenants beside each other at one model: whose failures stop whom, and who has how many of its calls.

use anneal_core::{
    admission::{BreakerSettings, CallLimits, CallPurpose, Closed},
    caller::{Caller, ConversationId, TenantId, Verb},
    tokens::Tokens,
};
use anneal_server::{AuthSettings, ServerSettings};
use anneal_store::{CallAsk, ModelLease, Settled, Verdict};
use anneal_tests::{Guest, House, Script, ScriptedModel, WRITER, Writing, pb};
use pb::{conversation_service_client::ConversationServiceClient, operator_service_client::OperatorServiceClient};
use serde_json::json;

use crate::trouble::{checkpoint_jobs, ripe};

const MODEL: &str = "a model";

/// A tenant with a conversation.
struct Tenant<'a> {
    house: &'a House,
    guest: Guest,
    caller: Caller,
    conversation: ConversationId,
}

/// A house whose callers need API keys.
async fn house() -> House {
    let auth = AuthSettings { api_keys: true, ..AuthSettings::default() };
    House::guarded(ServerSettings::default(), auth).await
}

impl<'a> Tenant<'a> {
    async fn of(house: &'a House, name: &str) -> Self {
        let key = house.key(name, &Verb::ALL).await;
        let guest = house.showing(&format!("Bearer {}", key.text));
        let mut client = ConversationServiceClient::new(guest.clone());
        let made = client.create_conversation(pb::CreateConversationRequest::default()).await.expect("creates");
        let conversation = ConversationId(made.into_inner().conversation_id.parse().expect("an id"));
        Self { house, guest, caller: Caller::of(house.tenant(name).await), conversation }
    }

    async fn admit(&self, limits: CallLimits) -> Result<ModelLease, Closed> {
        let (conversation, purpose) = (self.conversation, CallPurpose::Summary);
        let ask = CallAsk { model: MODEL, conversation, purpose, tokens: Tokens::new(100), limits };
        self.house.store.admit_call(self.caller, &ask).await.expect("the store answers")
    }

    async fn settle(&self, lease: &ModelLease, verdict: Verdict) {
        let settled = Settled { input: Tokens::new(30), output: Tokens::new(12), calls: 1, verdict };
        self.house.store.settle_call(lease, &settled).await.expect("settles");
    }

    /// A call that is admitted and fails.
    async fn fail(&self, limits: CallLimits) {
        let lease = self.admit(limits).await.expect("is admitted");
        self.settle(&lease, Verdict::Fails("status 503".into())).await;
    }

    async fn answer(&self, limits: CallLimits) {
        let lease = self.admit(limits).await.expect("is admitted");
        self.settle(&lease, Verdict::Answers).await;
    }

    /// The model's figures as the tenant sees them.
    async fn stats(&self) -> pb::ModelStats {
        let mut client = OperatorServiceClient::new(self.guest.clone());
        let stats = client.get_model_stats(pb::GetModelStatsRequest {}).await.expect("answers");
        stats.into_inner().models.remove(0)
    }

    /// Whose breaker stops a call of the tenant; None: it is admitted.
    async fn stopped_by(&self, limits: CallLimits) -> Option<&'static str> {
        match self.admit(limits).await {
            Ok(lease) => {
                self.settle(&lease, Verdict::Nothing).await;
                None
            }
            Err(Closed::Breaker { scope, .. }) => Some(scope),
            Err(other) => panic!("another reason: {other}"),
        }
    }
}

/// Breakers that open after so many failures; conversations' never do.
fn after(model_failures: u32) -> CallLimits {
    let breaker = BreakerSettings { failures: 1_000, model_failures, cooldown_seconds: 60 };
    CallLimits { breaker, ..CallLimits::default() }
}

/// Lets the time of every open breaker pass.
async fn cool_down(house: &House) {
    for table in ["ai_model_breaker", "ai_tenant_breaker"] {
        let pass =
            format!("update {table} set open_until_ts = now() - interval '1 second' where open_until_ts is not null");
        sqlx::query(sqlx::AssertSqlSafe(pass)).execute(&mut house.db().await).await.expect("passes");
    }
}

#[tokio::test]
async fn failures_of_one_tenant_stop_it_alone() {
    let house = house().await;
    let (eve, anna, limits) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await, after(4));
    for _ in 0..4 {
        eve.fail(limits).await;
    }
    assert_eq!((eve.stopped_by(limits).await, anna.stopped_by(limits).await), (Some("tenant"), None));
    let shown = anna.stats().await;
    let breaker = shown.breaker.expect("is there");
    assert_eq!((breaker.failures, breaker.open_for, shown.open_tenant_breakers), (4, None, 1));
    anna.answer(limits).await;
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"), "another's answer says nothing of its calls");
    cool_down(&house).await;
    eve.fail(limits).await;
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"), "one failure opens it again");
    cool_down(&house).await;
    eve.answer(limits).await;
    eve.fail(limits).await;
    assert_eq!((eve.stopped_by(limits).await, anna.stats().await.open_tenant_breakers), (None, 0));
}

#[tokio::test]
async fn failures_of_two_tenants_stop_everybody() {
    let house = house().await;
    let (eve, anna, limits) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await, after(4));
    for _ in 0..3 {
        eve.fail(limits).await;
    }
    anna.fail(limits).await;
    assert_eq!(anna.stopped_by(limits).await, None, "of one tenant two failures count at most");
    anna.fail(limits).await;
    let third = Tenant::of(&house, "third").await;
    for tenant in [&eve, &anna, &third] {
        assert_eq!(tenant.stopped_by(limits).await, Some("model"));
    }
    let shown = anna.stats().await.breaker.expect("is there");
    assert_eq!((shown.failures, shown.last_error.as_str()), (5, "status 503"));
    assert!(shown.open_for.is_some());
}

#[tokio::test]
async fn a_trial_of_one_tenant_keeps_no_other_from_trying() {
    let house = house().await;
    let (eve, anna, limits) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await, after(2));
    eve.fail(limits).await;
    anna.fail(limits).await;
    assert_eq!(anna.stopped_by(limits).await, Some("model"));
    cool_down(&house).await;
    // It tries, and never ends.
    let trying = eve.admit(limits).await.expect("tries");
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"), "one call of a tenant tries");
    // Longer than a lease, as calls of a model that hangs are.
    cool_down(&house).await;
    assert!(house.store.renew_call(&trying).await.expect("the store answers"));
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"));
    eve.settle(&trying, Verdict::Fails("status 503".into())).await;
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"), "it waits again");
    let third = Tenant::of(&house, "third").await;
    third.answer(limits).await;
    for tenant in [&anna, &third] {
        assert_eq!(tenant.stopped_by(limits).await, None, "one answer closes the model's breaker");
    }
}

#[tokio::test]
async fn trials_of_two_tenants_that_fail_stop_everybody_again() {
    let house = house().await;
    let (eve, anna, limits) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await, after(20));
    for _ in 0..10 {
        eve.fail(limits).await;
        anna.fail(limits).await;
    }
    cool_down(&house).await;
    eve.fail(limits).await;
    assert_eq!(eve.stopped_by(limits).await, Some("tenant"));
    let third = Tenant::of(&house, "third").await;
    third.fail(limits).await;
    assert_eq!(anna.stopped_by(limits).await, Some("model"));
}

#[tokio::test]
async fn failures_that_end_at_the_same_time_are_each_counted() {
    let house = house().await;
    let (eve, anna, limits) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await, after(16));
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push((&eve, eve.admit(limits).await.expect("is admitted")));
        leases.push((&anna, anna.admit(limits).await.expect("is admitted")));
    }
    let fails = leases.iter().map(|(tenant, lease)| tenant.settle(lease, Verdict::Fails("status 503".into())));
    futures::future::join_all(fails).await;
    assert_eq!(anna.stats().await.breaker.map(|breaker| breaker.failures), Some(16));
    let own = "select failures, evidence from ai_tenant_breaker order by tenant_id";
    let own: Vec<(i32, i32)> = sqlx::query_as(own).fetch_all(&mut house.db().await).await.expect("asks");
    assert_eq!(own, [(8, 8), (8, 8)]);
    assert_eq!((eve.stopped_by(limits).await, anna.stopped_by(limits).await), (Some("model"), Some("model")));
}

#[tokio::test]
async fn a_tenant_beside_others_has_its_share_of_a_models_calls_whoever_asks_first() {
    let house = house().await;
    let (eve, anna) = (Tenant::of(&house, "eve").await, Tenant::of(&house, "anna").await);
    let limits = CallLimits { concurrent: Some(6), tenant_share: Some(3), ..CallLimits::default() };
    let asked = futures::future::join_all((0..12).map(|_| eve.admit(limits))).await;
    let (held, refused): (Vec<_>, Vec<_>) = asked.into_iter().partition(Result::is_ok);
    assert_eq!((held.len(), refused.len()), (3, 9));
    assert!(refused.iter().all(|refused| refused.as_ref().is_err_and(|closed| *closed == Closed::Share)));
    for _ in 0..3 {
        anna.admit(limits).await.expect("there is room for others");
    }
    let third = Tenant::of(&house, "third").await;
    assert_eq!(third.admit(limits).await.err(), Some(Closed::Busy), "all are under way");
}

#[tokio::test]
async fn a_tenant_alone_has_all_of_a_models_calls() {
    let house = house().await;
    let limits = CallLimits { concurrent: Some(2), tenant_share: Some(1), ..CallLimits::default() };
    // The default tenant is always there, and is nobody as long as it calls no model.
    let only = Tenant::of(&house, "only").await;
    let held = [only.admit(limits).await.expect("one"), only.admit(limits).await.expect("two")];
    assert_eq!(only.admit(limits).await.err(), Some(Closed::Busy));
    only.settle(&held[0], Verdict::Answers).await;
    let default = Tenant::of(&house, "default").await;
    assert_eq!(default.caller.tenant(), TenantId::DEFAULT);
    assert!(default.stopped_by(limits).await.is_none());
    assert_eq!(only.admit(limits).await.err(), Some(Closed::Share), "now there is another one");
}

#[tokio::test]
async fn a_summary_beyond_its_tenants_share_waits_without_a_place_of_the_worker() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let house = House::start().await;
    house.tenant("another").await;
    ripe(&house).await;
    let mut writing = Writing::by(&model);
    writing.models = serde_json::from_value(json!({
        WRITER: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 2}
    }))
    .expect("settings");
    // A turn of the same tenant is its share.
    let limits = CallLimits { concurrent: Some(2), tenant_share: Some(1), ..CallLimits::default() };
    let conversation = ConversationId(house.conversation().await.id.parse().expect("an id"));
    let (purpose, tokens) = (CallPurpose::Turn, Tokens::new(100));
    let ask = CallAsk { model: WRITER, conversation, purpose, tokens, limits };
    let caller = Caller::of(TenantId::DEFAULT);
    let turn = house.store.admit_call(caller, &ask).await.expect("the store answers").expect("is admitted");
    let worker = house.worker_writing(&writing);
    worker.run_until_idle().await;
    let [job] = &checkpoint_jobs(&house).await[..] else { panic!("the job waits") };
    assert_eq!((job.attempts, model.asked().len()), (0, 0));
    assert!(job.last_error.contains("that the tenant may have of the model"), "{}", job.last_error);
    let settled = Settled { input: Tokens::ZERO, output: Tokens::ZERO, calls: 1, verdict: Verdict::Answers };
    house.store.settle_call(&turn, &settled).await.expect("settles");
    let due = "update ai_job set due_ts = now() where state = 0";
    sqlx::query(due).execute(&mut house.db().await).await.expect("passes");
    worker.run_until_idle().await;
    assert!(checkpoint_jobs(&house).await.is_empty() && !model.asked().is_empty());
}
