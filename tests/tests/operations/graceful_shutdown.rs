//! Servers and workers that are asked to stop while they work. `tests/tests/faults/campaigns/`
//! tests processes that are killed.

use std::time::Duration;

use anneal_testkit::{AnnealBinary, Folder, eventually, pb, user};
use pb::context_service_client::ContextServiceClient;
use tonic::{Code, transport::Channel};

use crate::BINARY;

fn channel(port: u16) -> Channel {
    Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_asked_to_stop_finishes_the_calls_under_way() {
    let (app, folder) = (anneal_testkit::TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    conversation.turns(20).await;
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, port) = anneal.server().await;
    // No worker runs, so the call waits two seconds for a checkpoint that nobody makes.
    let wait = Some(prost_types::Duration {
        seconds: 2,
        nanos: 0,
    });
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        wait,
        ..Default::default()
    };
    let call =
        tokio::spawn(async move { ContextServiceClient::new(channel(port)).compact(ask).await });
    eventually("the call is under way", async || {
        let ask = pb::ListJobsRequest {
            kind: pb::JobKind::Checkpoint.into(),
            ..Default::default()
        };
        !app.operators()
            .list_jobs(ask)
            .await
            .expect("lists")
            .into_inner()
            .jobs
            .is_empty()
    })
    .await;
    server.terminate().await;
    let answered = call.await.expect("ends").expect("is answered").into_inner();
    assert_eq!(answered.outcome(), pb::CompactOutcome::Pending);
    assert_eq!(server.wait_for_exit().await, Some(0));
    let call_after_stop = ContextServiceClient::new(channel(port))
        .compact(pb::CompactRequest::default())
        .await;
    assert_eq!(
        call_after_stop.expect_err("the server has stopped").code(),
        Code::Unavailable
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_closed_output_pipes_still_stops() {
    let (app, folder) = (anneal_testkit::TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    for mut process in [anneal.server().await.0, anneal.worker().await] {
        process.close_pipes().await;
        process.terminate().await;
        let ended = tokio::time::timeout(Duration::from_secs(30), process.wait_for_exit()).await;
        assert_eq!(ended.expect("ends by itself"), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_stop_finishes_its_jobs_or_gives_them_back() {
    let (app, folder) = (anneal_testkit::TestApp::start().await, Folder::new());
    let mut conversations = Vec::new();
    for _ in 0..60 {
        let conversation = app.conversation().await;
        conversation
            .append_all(vec![user(&"words and more words ".repeat(2_000)); 20])
            .await;
        conversations.push(conversation);
    }
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let worker = anneal.worker().await;
    eventually("a job is under way", async || {
        let ask = pb::ListJobsRequest {
            state: pb::JobState::Running.into(),
            ..Default::default()
        };
        !app.operators()
            .list_jobs(ask)
            .await
            .expect("lists")
            .into_inner()
            .jobs
            .is_empty()
    })
    .await;
    worker.terminate().await;
    assert_eq!(worker.wait_for_exit().await, Some(0));
    let ask = pb::ListJobsRequest {
        page_size: 500,
        ..Default::default()
    };
    let remaining_jobs = app
        .operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs;
    assert!(
        remaining_jobs
            .iter()
            .all(|job| job.state() == pb::JobState::Waiting && job.attempts == 0),
        "{remaining_jobs:#?}"
    );
    // A job that the worker deferred for lack of a free connection is due a second later.
    let mut ran = 0;
    eventually("another worker has run the remaining jobs", async || {
        ran += app.run_jobs_until_idle().await;
        ran >= remaining_jobs.len()
    })
    .await;
    assert_eq!(ran, remaining_jobs.len(), "each job runs once");
    for conversation in conversations {
        conversation.verify().await;
        assert_eq!(
            conversation
                .conversation()
                .await
                .token_total
                .expect("has a total")
                .estimated_messages,
            0
        );
    }
}
