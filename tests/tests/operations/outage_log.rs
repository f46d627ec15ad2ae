//! During an outage of the database, servers and workers log the outage instead of each failure
//! that it causes.

use anneal_testkit::{AnnealBinary, Folder, OwnPostgres, Process, eventually};

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
