//! Whole processes that are asked to stop, in the middle of work. What becomes of those that are killed: `tests/tests/faults/`.

use std::time::Duration;

use anneal_tests::{Anneal, Folder, eventually, pb, user};
use pb::context_service_client::ContextServiceClient;
use tonic::{Code, transport::Channel};

use crate::BINARY;

fn channel(port: u16) -> Channel {
    Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_asked_to_stop_finishes_the_calls_under_way() {
    let (house, folder) = (anneal_tests::House::start().await, Folder::new());
    let talk = house.conversation().await;
    talk.turns(20).await;
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let (server, port) = anneal.server().await;
    let wait = Some(prost_types::Duration { seconds: 2, nanos: 0 });
    let ask = pb::CompactRequest { conversation_id: talk.id.clone(), wait, ..Default::default() };
    let call = tokio::spawn(async move { ContextServiceClient::new(channel(port)).compact(ask).await });
    eventually("the call is under way", async || {
        let ask = pb::ListJobsRequest { kind: pb::JobKind::Checkpoint.into(), ..Default::default() };
        !house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs.is_empty()
    })
    .await;
    server.terminate().await;
    let answered = call.await.expect("ends").expect("is answered").into_inner();
    assert_eq!(answered.outcome(), pb::CompactOutcome::Pending);
    assert_eq!(server.ended().await, Some(0));
    let late = ContextServiceClient::new(channel(port)).compact(pb::CompactRequest::default()).await;
    assert_eq!(late.expect_err("nobody is there").code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_log_nobody_reads_any_more_still_stops() {
    let (house, folder) = (anneal_tests::House::start().await, Folder::new());
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    for mut process in [anneal.server().await.0, anneal.worker().await] {
        process.stop_listening().await;
        process.terminate().await;
        let ended = tokio::time::timeout(Duration::from_secs(30), process.ended()).await;
        assert_eq!(ended.expect("ends by itself"), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_asked_to_stop_finishes_its_jobs_or_gives_them_back() {
    let (house, folder) = (anneal_tests::House::start().await, Folder::new());
    let mut talks = Vec::new();
    for _ in 0..60 {
        let talk = house.conversation().await;
        talk.append_all(vec![user(&"words and more words ".repeat(2_000)); 20]).await;
        talks.push(talk);
    }
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let worker = anneal.worker().await;
    eventually("a job is under way", async || {
        let ask = pb::ListJobsRequest { state: pb::JobState::Running.into(), ..Default::default() };
        !house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs.is_empty()
    })
    .await;
    worker.terminate().await;
    assert_eq!(worker.ended().await, Some(0));
    let ask = pb::ListJobsRequest { page_size: 500, ..Default::default() };
    let left = house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs;
    assert!(left.iter().all(|job| job.state() == pb::JobState::Waiting && job.attempts == 0), "{left:#?}");
    // Those for which it had no place are due a second after it put them off.
    let mut ran = 0;
    eventually("others have run the rest", async || {
        ran += house.run_jobs_until_idle().await;
        ran >= left.len()
    })
    .await;
    assert_eq!(ran, left.len(), "each once");
    for talk in talks {
        talk.verify().await;
        assert_eq!(talk.conversation().await.token_total.expect("has a total").estimated_messages, 0);
    }
}
