//! Whole processes die in the middle of work: kill -9 of server and worker, a crash of PostgreSQL. Nothing that was
//! acknowledged is lost, nothing is done twice, jobs end.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use anneal_tests::{Anneal, Folder, Line, OwnPostgres, Process, eventually, pb, refusal, user};
use futures::future::join_all;
use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use tonic::{Code, transport::Channel};

use crate::BINARY;

const CLIENTS: usize = 6;
const CONVERSATIONS: usize = 3;
const ROUNDS: usize = 3;

fn channel(port: u16) -> Channel {
    Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy()
}

/// What a client was told is stored: by conversation, the id of each text.
type Acknowledged = HashMap<String, HashMap<String, i64>>;

struct Load {
    channel: Channel,
    conversations: Vec<String>,
    acknowledged: AtomicUsize,
    retried: AtomicUsize,
    enough: AtomicBool,
}

impl Load {
    async fn new(port: u16) -> Self {
        let channel = channel(port);
        let policy = pb::Policy { max_message_count: Some(40), keep_recent_turns: Some(2), ..Default::default() };
        let mut conversations = Vec::new();
        for _ in 0..CONVERSATIONS {
            let ask = pb::CreateConversationRequest { policy: Some(policy.clone()), ..Default::default() };
            let made = ConversationServiceClient::new(channel.clone()).create_conversation(ask).await.expect("creates");
            conversations.push(made.into_inner().conversation_id);
        }
        let (acknowledged, retried, enough) = Default::default();
        Self { channel, conversations, acknowledged, retried, enough }
    }

    /// Appends with request ids, each until it is acknowledged, until it is enough.
    async fn client(&self, client: usize) -> Acknowledged {
        let mut acknowledged = Acknowledged::new();
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let mut number = 0;
        while !self.enough.load(Ordering::SeqCst) {
            let conversation = &self.conversations[(client + number) % CONVERSATIONS];
            let texts: Vec<String> = (0..=number % 3)
                .map(|place| {
                    format!("Client {client} says number {number}, sentence {place}, about the weather in town.")
                })
                .collect();
            let ask = pb::AppendMessagesRequest {
                conversation_id: conversation.clone(),
                request_id: format!("{client}-{number}"),
                messages: texts.iter().map(|text| user(text)).collect(),
                ..Default::default()
            };
            let done = loop {
                pace.tick().await;
                match MessageServiceClient::new(self.channel.clone()).append_messages(ask.clone()).await {
                    Ok(done) => break done.into_inner(),
                    Err(status) => {
                        let gone = [Code::Unavailable, Code::Cancelled, Code::Unknown, Code::DeadlineExceeded];
                        let said = refusal(&status);
                        assert!(gone.contains(&status.code()) || said.retry, "no client can retry this: {status:?}");
                        self.retried.fetch_add(1, Ordering::SeqCst);
                    }
                }
            };
            let stored = acknowledged.entry(conversation.clone()).or_default();
            stored.extend(texts.into_iter().zip(done.messages.iter().map(|message| message.message_id)));
            self.acknowledged.fetch_add(1, Ordering::SeqCst);
            number += 1;
        }
        acknowledged
    }

    /// Waits until so many more appends were acknowledged.
    async fn goes_on(&self, more: usize) {
        let until = self.acknowledged.load(Ordering::SeqCst) + more;
        eventually("appends go on", async || self.acknowledged.load(Ordering::SeqCst) >= until).await;
    }
}

/// A server that the line leads to. Each has a port of its own: one that has died may lose its port to anybody.
async fn serving(anneal: &Anneal, line: &Line) -> Process {
    let (server, port) = anneal.server().await;
    line.leads_to(port);
    server
}

/// Kills each in turn, three rounds.
async fn nemesis(load: &Load, anneal: &Anneal, postgres: &OwnPostgres, line: &Line) {
    let mut worker = anneal.worker().await;
    let mut server = serving(anneal, line).await;
    for _ in 0..ROUNDS {
        load.goes_on(40).await;
        worker.kill().await;
        load.goes_on(20).await;
        worker = anneal.worker().await;
        server.kill().await;
        server = serving(anneal, line).await;
        load.goes_on(40).await;
        postgres.crash().await;
        postgres.restart().await;
        load.goes_on(20).await;
    }
    load.enough.store(true, Ordering::SeqCst);
    settle(&load.channel).await;
    check_operators(load).await;
    worker.terminate().await;
    assert_eq!(worker.ended().await, Some(0));
    drop(server);
}

/// Waits until every job has ended; none may be dead.
async fn settle(channel: &Channel) {
    eventually("all jobs end", async || {
        let ask = pb::GetQueueStatsRequest {};
        let Ok(stats) = OperatorServiceClient::new(channel.clone()).get_queue_stats(ask).await else { return false };
        let queues = stats.into_inner().queues;
        assert!(queues.iter().all(|queue| queue.dead == 0), "{queues:?}");
        queues.iter().all(|queue| queue.waiting + queue.running == 0)
    })
    .await;
}

async fn check_operators(load: &Load) {
    for conversation_id in &load.conversations {
        let ask = pb::VerifyConversationRequest { conversation_id: conversation_id.clone() };
        let verified = OperatorServiceClient::new(load.channel.clone()).verify_conversation(ask).await;
        let verified = verified.expect("verifies").into_inner();
        assert!(verified.violations.is_empty(), "{:#?}", verified.violations);
        let ask = pb::ListCheckpointsRequest {
            conversation_id: conversation_id.clone(),
            page_size: 500,
            ..Default::default()
        };
        let checkpoints = ContextServiceClient::new(load.channel.clone()).list_checkpoints(ask).await.expect("lists");
        let lasts: Vec<i64> = checkpoints.into_inner().checkpoints.iter().map(|one| one.last_message_id).collect();
        assert!(!lasts.is_empty() && lasts.windows(2).all(|pair| pair[0] > pair[1]), "{lasts:?}");
    }
}

async fn stored(channel: &Channel, conversation_id: &str) -> Vec<pb::Message> {
    let mut messages: Vec<pb::Message> = Vec::new();
    loop {
        let after_message_id = messages.last().map_or(0, |message| message.message_id);
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation_id.into(),
            page_size: 500,
            after_message_id,
            ..Default::default()
        };
        let page = MessageServiceClient::new(channel.clone()).list_messages(ask).await.expect("lists").into_inner();
        if page.messages.is_empty() {
            return messages;
        }
        messages.extend(page.messages);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_when_everything_dies_in_turn() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let anneal = Anneal::on_durable(BINARY, &folder, &postgres.url);
    let (first, port) = anneal.server().await;
    let line = Line::to_port(port).await;
    let load = Load::new(line.port()).await;
    first.kill().await;
    let clients = join_all((0..CLIENTS).map(|client| load.client(client)));
    let (told, ()) = tokio::join!(clients, nemesis(&load, &anneal, &postgres, &line));
    let server = serving(&anneal, &line).await;
    for conversation in &load.conversations {
        let messages = stored(&load.channel, conversation).await;
        let mut found: HashMap<String, i64> = HashMap::new();
        for (place, message) in messages.iter().enumerate() {
            assert_eq!(message.message_id, place as i64 + 1, "ids are dense");
            assert!(message.tokens.is_some_and(|count| !count.estimated), "message {} is counted", message.message_id);
            let Some(pb::part::Part::Text(said)) = &message.parts[0].part else { panic!("a text") };
            let twice = found.insert(said.text.clone(), message.message_id);
            assert_eq!(twice, None, "stored twice: {}", said.text);
        }
        let acknowledged: HashMap<String, i64> = told
            .iter()
            .filter_map(|client| client.get(conversation))
            .flatten()
            .map(|(text, id)| (text.clone(), *id))
            .collect();
        assert_eq!(found, acknowledged, "what is stored is what was acknowledged");
    }
    println!(
        "{} acknowledged, {} retried",
        load.acknowledged.load(Ordering::SeqCst),
        load.retried.load(Ordering::SeqCst)
    );
    drop(server);
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
