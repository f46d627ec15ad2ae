//! During an outage of the database, servers and workers log the outage instead of each failure
//! that it causes.

use anneal_testkit::{AnnealBinary, Folder, OwnPostgres, Process, eventually, pb};
use pb::conversation_service_client::ConversationServiceClient;
use sqlx::{Connection as _, PgConnection};
use tonic::{
    Code, Request,
    transport::{Channel, Endpoint},
};

use crate::BINARY;

/// Counts the lines of a process that contain these words.
fn count(process: &Process, words: &str) -> usize {
    let lines = process.lines();
    lines.iter().filter(|line| line.contains(words)).count()
}

/// Waits until the process's probe reports this status.
async fn wait_for_readiness(process: &Process, status: u16) {
    let web = process.http_client().await;
    eventually("readiness", async || {
        web.get("/readyz").await.status == status
    })
    .await;
}

/// A client of the server on this port of loopback.
fn conversations_at(port: u16) -> ConversationServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    ConversationServiceClient::new(endpoint.connect_lazy())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_logged_once_with_its_host_and_its_end() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let (server, _) = anneal.server().await;
    let worker = anneal.worker().await;
    for process in [&server, &worker] {
        wait_for_readiness(process, 200).await;
    }
    postgres.crash().await;
    let host = postgres
        .url
        .rsplit_once('@')
        .map_or(postgres.url.as_str(), |(_, rest)| rest)
        .split('/')
        .next()
        .expect("a URL has a host");
    // Not ready: three checks have failed. Meanwhile the worker has tried to claim jobs every 100 ms
    // and to do its periodic work.
    for process in [&server, &worker] {
        wait_for_readiness(process, 503).await;
        let line = process.wait_for_line("database unavailable").await;
        assert!(
            line.contains(&format!("database unavailable: {host}: "))
                && line.contains("\"level\":\"WARN\"")
                && line.contains("\"cause\":\""),
            "{line}"
        );
    }
    postgres.restart().await;
    for process in [&server, &worker] {
        wait_for_readiness(process, 200).await;
        let line = process.wait_for_line("database available again").await;
        assert!(
            line.contains(host) && line.contains("\"outage_seconds\":"),
            "{line}"
        );
        // A busy machine may take longer than a minute to get here; then there is a second line.
        let lines = process.lines();
        let lines_of_outage = count(process, "database unavailable");
        assert!((1..=2).contains(&lines_of_outage), "{lines:#?}");
        assert_eq!(count(process, "could not"), 0, "{lines:#?}");
        // PostgreSQL told every connection that it stops. The driver logs that at WARN.
        assert_eq!(count(process, "\"target\":\"sqlx"), 0, "{lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_refuses_writes_is_logged_when_calls_fail() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let (server, port) = anneal.server().await;
    let mut db = PgConnection::connect(&postgres.url)
        .await
        .expect("the database answers");
    for statement in [
        "alter system set default_transaction_read_only = on",
        "select pg_reload_conf()",
    ] {
        sqlx::query(statement)
            .execute(&mut db)
            .await
            .expect("is executed");
    }
    // The sessions of the server are read-only soon.
    let (mut conversations, mut calls) = (conversations_at(port), 0);
    eventually("a call fails", async || {
        calls += 1;
        let ask = pb::CreateConversationRequest {
            request_id: calls.to_string(),
            ..Default::default()
        };
        let refused = conversations.create_conversation(ask).await.err();
        refused.is_some_and(|status| status.code() == Code::Unavailable)
    })
    .await;
    let line = server.wait_for_line("database unavailable").await;
    assert!(
        line.contains("read-only transaction") && line.contains("\"level\":\"WARN\""),
        "{line}"
    );
    wait_for_readiness(&server, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_cannot_be_looked_up_in_an_outage_has_no_line_of_its_own() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let created = anneal.run(&["keys", "create", "--name", "test"]).await;
    assert_eq!(created.code, Some(0), "{created:?}");
    let started = anneal.try_server(&["auth.api_keys=true"]).await;
    let (server, port) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
    wait_for_readiness(&server, 200).await;
    postgres.crash().await;
    wait_for_readiness(&server, 503).await;
    let mut ask = Request::new(pb::ListConversationsRequest::default());
    let credential = format!("Bearer {}", created.out.trim());
    ask.metadata_mut().insert(
        "authorization",
        credential.parse().expect("a key is a header's value"),
    );
    let refused = conversations_at(port)
        .list_conversations(ask)
        .await
        .expect_err("the database is away");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    server.wait_for_line("database unavailable").await;
    let lines = server.lines();
    assert_eq!(count(&server, "cannot look up"), 0, "{lines:#?}");
}
