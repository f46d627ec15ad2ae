//! The roles of docker-compose.yml: the owner migrates and creates keys, servers and workers use a
//! login that owns nothing.

use std::path::Path;

use anneal_local_postgres::{LocalPostgres, Settings};
use anneal_store::create_database;
use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, authorized_channel, eventually, pb, postgres_binaries,
    user,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;
use tonic::transport::Endpoint;

use crate::BINARY;

const OWNER_PASSWORD: &str = "of-the-owner";
const LOGIN_PASSWORD: &str = "of-the-login";

/// Creates the roles with the SQL file that docker-compose.yml mounts into the database's image.
async fn create_roles(superuser: &str) {
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker/postgres/roles.sql");
    let bundled_psql = postgres_binaries().program("psql");
    let psql = if bundled_psql.is_file() {
        bundled_psql
    } else {
        "psql".into()
    };
    let ran = Command::new(psql)
        .args([
            "--no-psqlrc",
            "--no-password",
            "--set",
            "ON_ERROR_STOP=1",
            "--file",
        ])
        .arg(&roles)
        .arg(superuser)
        .env("POSTGRES_OWNER_PASSWORD", OWNER_PASSWORD)
        .env("POSTGRES_LOGIN_PASSWORD", LOGIN_PASSWORD)
        .output();
    let ran = CommandOutput::from(ran.await.expect("psql runs"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Asserts that the login of this URL has no privileged role attribute, owns nothing, and can
/// neither create a table nor change the keys.
async fn assert_owns_nothing(url: &str) {
    let mut db = PgConnection::connect(url).await.expect("connects");
    let privileged = "select count(*) from pg_roles where (rolsuper or rolcreaterole or rolcreatedb or rolbypassrls or rolreplication)
                  and pg_has_role(current_user, oid, 'member')";
    let owned = "select count(*) from pg_class where pg_has_role(current_user, relowner, 'member')";
    for query in [privileged, owned] {
        let found: i64 = sqlx::query_scalar(query)
            .fetch_one(&mut db)
            .await
            .expect("the query succeeds");
        assert_eq!(found, 0, "{query}");
    }
    for forbidden in [
        "create table mine (n int)",
        "create temp table mine (n int)",
        "update api_key set revoked_ts = null",
    ] {
        let refused = sqlx::query(forbidden)
            .execute(&mut db)
            .await
            .expect_err(forbidden)
            .to_string();
        assert!(
            refused.contains("permission denied"),
            "{forbidden}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_migrates_and_servers_and_workers_work_as_a_login_that_owns_nothing() {
    let (data, folder) = (Folder::new(), Folder::new());
    let settings = Settings::new(data.path().join("postgres"), postgres_binaries());
    let postgres = LocalPostgres::start(settings)
        .await
        .expect("a cluster of the test's own");
    create_database(&postgres.url("postgres"), "anneal", None)
        .await
        .expect("a database");
    create_roles(&postgres.url("anneal")).await;
    let binary_and_url = |login: &str, password: &str| {
        let url = format!(
            "postgres://{login}:{password}@127.0.0.1:{}/anneal",
            postgres.port()
        );
        (AnnealBinary::on_durable(BINARY, &folder, &url), url)
    };
    let (owner, _) = binary_and_url("anneal_owner", OWNER_PASSWORD);
    let (login, url) = binary_and_url("anneal_login", LOGIN_PASSWORD);
    let postgres = postgres.stop_on_drop();

    let migration_by_login = login.run(&["migrate"]).await;
    assert_eq!(
        migration_by_login.code,
        Some(1),
        "the login may make no tables: {migration_by_login:?}"
    );
    // The migration names anneal_app in a warning if its login may not create or take that role.
    let migrated = owner.run(&["migrate"]).await;
    assert!(
        migrated.code == Some(0) && !migrated.err.contains("anneal_app"),
        "{migrated:?}"
    );
    let key = owner
        .run(&["keys", "create", "--name", "bot", "--verbs", "read,append"])
        .await;
    assert_eq!(key.code, Some(0), "{key:?}");
    let refused = login.run(&["keys", "create", "--name", "bot"]).await;
    assert!(
        refused.code == Some(1) && refused.out.is_empty(),
        "the login makes no keys: {refused:?}"
    );

    let started = login.try_server(&["auth.api_keys=true"]).await;
    let (server, port) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
    let worker = login.worker().await;
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    let bot = authorized_channel(channel, &format!("Bearer {}", key.out.trim()));
    let mut conversations = ConversationServiceClient::new(bot.clone());
    let created = conversations
        .create_conversation(pb::CreateConversationRequest::default())
        .await
        .expect("creates");
    let conversation_id = created.into_inner().conversation_id;
    let messages = vec![user("hello")];
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(bot)
        .append_messages(ask)
        .await
        .expect("appends");
    let ask = pb::GetConversationRequest { conversation_id };
    eventually("the worker has counted the message", async || {
        let conversation = conversations
            .get_conversation(ask.clone())
            .await
            .expect("is there")
            .into_inner();
        conversation
            .token_total
            .is_some_and(|total| total.tokens > 0)
    })
    .await;
    eventually("the use of the key is recorded", async || {
        let listed = owner.run(&["keys", "list"]).await;
        listed.out.contains("last used in the hour of")
    })
    .await;

    assert_owns_nothing(&url).await;
    for process in [server, worker] {
        process.terminate().await;
        assert_eq!(process.wait_for_exit().await, Some(0));
    }
    drop(postgres);
}
