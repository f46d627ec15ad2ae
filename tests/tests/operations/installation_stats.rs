//! GetInstallationStats: figures of all tenants, of workers and of the answering server, for
//! operators only.

use anneal_core::caller::Verb;
use anneal_testkit::{TestApp, assert_refused, pb};
use pb::operator_service_client::OperatorServiceClient;
use tonic::{Code, Status};
use uuid::Uuid;

async fn read_stats(app: &TestApp) -> pb::GetInstallationStatsResponse {
    let ask = pb::GetInstallationStatsRequest {};
    let stats = app.operators().get_installation_stats(ask).await;
    stats.expect("figures").into_inner()
}

#[tokio::test]
async fn tenants_are_listed_by_what_they_store_and_with_their_rates() {
    let app = TestApp::start().await;
    for (name, bytes) in [("small", 10), ("large", 1_000), ("middle", 500)] {
        let tenant = app.tenant(name).await;
        sqlx::query(
            "insert into tenant_usage_part (tenant_id, part, messages, content_bytes)
             values ($1, 1, 2, $2), ($1, 2, 1, 0)",
        )
        .bind(tenant.0)
        .bind(i64::from(bytes))
        .execute(&mut app.db().await)
        .await
        .expect("inserts");
    }
    let stats = read_stats(&app).await;
    let tenants: Vec<(&str, i64, i64)> = stats
        .tenants
        .iter()
        .map(|tenant| (&*tenant.name, tenant.messages, tenant.content_bytes))
        .collect();
    let stored = [("large", 3, 1_000), ("middle", 3, 500), ("small", 3, 10)];
    assert_eq!(tenants[..3], stored);
    // It has stored nothing, and has called this server.
    assert_eq!(tenants[3..], [("default", 0, 0)]);
    assert!(stats.tenants[3].calls_per_second > 0.0, "{stats:?}");
    assert!(stats.tenants[0].calls_per_second.abs() < f64::EPSILON);
}

#[tokio::test]
async fn the_newest_dead_jobs_of_all_tenants_and_the_versions_are_shown() {
    let app = TestApp::start().await;
    let tenant = app.tenant("other").await;
    let mut newest = String::new();
    for number in 1..=22 {
        let conversation = app.conversation().await;
        let id: Uuid = conversation.id.parse().expect("a UUID");
        sqlx::query("update ai_conversation set tenant_id = $2 where conversation_id = $1")
            .bind(id)
            .bind(tenant.0)
            .execute(&mut app.db().await)
            .await
            .expect("moves the conversation");
        sqlx::query(
            "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, last_error, dirty_ts, died_ts)
             values ($1, 2, $2, 1, 3, 'error ' || $3, now(), now() + $3 * interval '1 second')",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(number)
        .execute(&mut app.db().await)
        .await
        .expect("inserts");
        newest.clone_from(&conversation.id);
    }
    let stats = read_stats(&app).await;
    assert_eq!(stats.dead_jobs.len(), 20);
    assert_eq!(stats.dead_jobs[0].tenant, "other");
    let job = stats.dead_jobs[0].job.clone().expect("a job");
    assert_eq!(
        (job.conversation_id, &*job.last_error, job.attempts),
        (newest, "error 22", 3)
    );
    assert_eq!(job.state, i32::from(pb::JobState::Dead));
    assert_eq!(stats.version, env!("CARGO_PKG_VERSION"));
    assert!(stats.schema_version >= 29, "{}", stats.schema_version);
    assert!(!stats.database_version.is_empty());
    assert!(stats.started_time.is_some());
    let slow = stats.slow_calls.iter();
    let created = slow.filter(|call| call.rpc == "create_conversation");
    assert!((1..=5).contains(&created.count()), "{:?}", stats.slow_calls);
}

#[tokio::test]
async fn only_operators_of_a_whole_tenant_may_ask() {
    let app = TestApp::with_keys_and_limits(anneal_server::LimitSettings::default()).await;
    let verbs = [Verb::Read, Verb::Append, Verb::Admin];
    let key = app.key("acme", &verbs).await;
    let ask = async |authorization: &str| -> Result<(), Status> {
        let channel = app.authorized_channel(authorization);
        let mut client = OperatorServiceClient::new(channel);
        let asked = client.get_installation_stats(pb::GetInstallationStatsRequest {});
        asked.await.map(|_| ())
    };
    let refused = ask(&format!("Bearer {}", key.text)).await;
    assert_refused(refused, Code::PermissionDenied, "VERB_MISSING", "");
    let operator = app.key("acme", &[Verb::Operator]).await;
    let answered = ask(&format!("Bearer {}", operator.text)).await;
    answered.expect("an operator may ask");
}
