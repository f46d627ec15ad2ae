//! A campaign in which a user with many conversations is erased, while workers, servers and
//! PostgreSQL are killed in the middle of a step. The erasure must end once, with one receipt that
//! is right.

use std::{sync::Arc, time::Duration};

use anneal_core::digest::SetDigest;
use futures::StreamExt as _;
use pb::{
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
};
use sqlx::{Connection as _, PgConnection};
use tokio::time::interval;
use tonic::{Response, transport::Channel};
use uuid::Uuid;

use super::{
    audit::uuid,
    campaign::{Campaign, Report, RunningCampaign},
    campaign_state::CampaignState,
    cluster::Cluster,
    fault_injector::FaultInjector,
    findings::Findings,
    history::RecordedConversation,
    plan::{Fault, Step},
};
use crate::{assistant, eventually, pb, user};

/// The user who is erased.
const ANNA: &str = "anna";
/// Calls at the same time while the conversations are created.
const CONCURRENT_CALLS: usize = 16;
/// How many times all workers are killed.
const ROUNDS: usize = 2;
/// How long the erasure may take after the last fault.
const ENDS_WITHIN: Duration = Duration::from_mins(3);

/// Runs a campaign that erases a user with so many conversations, which other clients do not use.
/// The last step is held up, so that all processes can be killed in its middle.
pub async fn run_with_erased_user(
    campaign: &Campaign,
    cluster: &mut Cluster,
    conversations: usize,
) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    let state = Arc::clone(&injector.state);
    let annas = create_conversations(&state, conversations).await;
    for conversation in &annas {
        conversation.begin_deletion();
    }
    let step = HeldStep::hold(&injector.database.direct_url()).await;
    let Some(begun) = begin_erasure(&state).await else {
        return running.finish().await;
    };
    kill_everything(injector, step).await;
    let again = begin_erasure(&state).await;
    let is_same = again.is_some_and(|again| again.erasure_id == begun.erasure_id);
    state.findings.demand(is_same, "erasure", || {
        format!("{} was begun a second time", begun.erasure_id)
    });
    if let Some(receipt) = wait_for_receipt(&state, &begun.erasure_id).await {
        check_receipt(&state, &annas, &receipt);
        check_number_of_receipts(&state).await;
        for conversation in &annas {
            conversation.confirm_deletion();
        }
        let erased = receipt.erased_conversations.unsigned_abs();
        state.tally.add("erased conversations", erased);
    }
    running.finish().await
}

/// Kills all workers twice, all servers and PostgreSQL, each time in the middle of a step.
async fn kill_everything(injector: &mut FaultInjector<'_>, mut step: HeldStep) {
    let workers = injector.processes.worker_count();
    for _ in 0..ROUNDS {
        step.wait_for_another().await;
        kill(injector, Fault::KillWorker, workers).await;
    }
    step.wait_for_another().await;
    let servers = injector.processes.server_count();
    kill(injector, Fault::KillServer, servers).await;
    // The workers have not been killed again, so this is the same step.
    kill(injector, Fault::StopDatabase, 1).await;
}

/// Injects a fault with each choice below `targets`.
async fn kill(injector: &mut FaultInjector<'_>, fault: Fault, targets: usize) {
    for choice in 0..targets {
        let step = Step {
            after: 0,
            fault,
            choice: choice as u32,
        };
        injector.inject(step).await;
    }
}

/// Creates conversations of the user, with two messages each.
async fn create_conversations(
    state: &CampaignState,
    count: usize,
) -> Vec<Arc<RecordedConversation>> {
    let created = futures::stream::iter(0..count)
        .map(|number| create_conversation(state, number))
        .buffer_unordered(CONCURRENT_CALLS);
    created.collect().await
}

async fn create_conversation(state: &CampaignState, number: usize) -> Arc<RecordedConversation> {
    let ask = pb::CreateConversationRequest {
        user_id: ANNA.into(),
        request_id: format!("{ANNA}-{number}"),
        ..Default::default()
    };
    let create = |channel: Channel| {
        let ask = ask.clone();
        async move {
            ConversationServiceClient::new(channel)
                .create_conversation(ask)
                .await
                .map(Response::into_inner)
        }
    };
    let created = state
        .call_with_retries("CreateConversation", number, create)
        .await
        .expect("only commits are cut")
        .expect("the conversation is created");
    let conversation = Arc::new(RecordedConversation::new(created.conversation_id));
    conversation.close();
    state.history.add(Arc::clone(&conversation));
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation.id.clone(),
        request_id: "turn".into(),
        messages: vec![user("Remember me."), assistant("I do.")],
        ..Default::default()
    };
    let append = |channel: Channel| {
        let ask = ask.clone();
        async move {
            MessageServiceClient::new(channel)
                .append_messages(ask)
                .await
                .map(Response::into_inner)
        }
    };
    state
        .call_with_retries("AppendMessages", number, append)
        .await
        .expect("only commits are cut")
        .expect("the messages are stored");
    conversation
}

/// A step of the erasure that waits in its middle for a lock of the test: that which deletes the
/// conversation that steps come to last.
struct HeldStep {
    /// Holds the lock. A crash of PostgreSQL releases it.
    _holder: PgConnection,
    holder_pid: i32,
    watcher: PgConnection,
    /// The session that made the step when it was last seen.
    pid: Option<i32>,
}

impl HeldStep {
    async fn hold(url: &str) -> Self {
        let mut holder = PgConnection::connect(url).await.expect("a connection");
        let last = "select conversation_id from ai_conversation where user_id = $1 order by listed_ts limit 1";
        let last: Uuid = sqlx::query_scalar(last)
            .bind(ANNA)
            .fetch_one(&mut holder)
            .await
            .expect("the user has conversations");
        sqlx::query("begin")
            .execute(&mut holder)
            .await
            .expect("the transaction begins");
        let lock = "select from ai_message where conversation_id = $1 for update";
        let locked = sqlx::query(lock).bind(last).execute(&mut holder).await;
        assert_eq!(locked.expect("the rows are locked").rows_affected(), 2);
        let holder_pid = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut holder)
            .await
            .expect("the query succeeds");
        Self {
            _holder: holder,
            holder_pid,
            watcher: PgConnection::connect(url).await.expect("a connection"),
            pid: None,
        }
    }

    /// Waits until another session than the last time waits for the lock.
    async fn wait_for_another(&mut self) {
        let waiting = "select pid from pg_stat_activity where $1 = any (pg_blocking_pids(pid))";
        eventually("a step of the erasure waits for the lock", async || {
            let pids: Vec<i32> = sqlx::query_scalar(waiting)
                .bind(self.holder_pid)
                .fetch_all(&mut self.watcher)
                .await
                .expect("the query succeeds");
            let other = pids.into_iter().find(|pid| Some(*pid) != self.pid);
            if other.is_some() {
                self.pid = other;
            }
            other.is_some()
        })
        .await;
    }
}

/// Begins the erasure, or finds it. None if there was no final answer in time.
async fn begin_erasure(state: &CampaignState) -> Option<pb::Erasure> {
    let begin = |channel: Channel| async move {
        let ask = pb::EraseUserRequest {
            request_id: "erase-anna".into(),
            user_id: ANNA.into(),
            dry_run: false,
        };
        ErasureServiceClient::new(channel)
            .erase_user(ask)
            .await
            .map(Response::into_inner)
    };
    let answer = state.call_with_retries("EraseUser", 0, begin).await?;
    Some(answer.expect("the erasure begins"))
}

/// Waits until the erasure has ended. None if it does not end in time, which is a finding.
async fn wait_for_receipt(state: &CampaignState, erasure_id: &str) -> Option<pb::Erasure> {
    let get = |channel: Channel| async move {
        let ask = pb::GetErasureRequest {
            erasure_id: erasure_id.to_owned(),
        };
        ErasureServiceClient::new(channel)
            .get_erasure(ask)
            .await
            .map(Response::into_inner)
    };
    let ended = async {
        let mut ticks = interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            let read = state.call_with_retries("GetErasure", 0, get).await?;
            let erasure = read.expect("the erasure is there");
            if erasure.state() == pb::ErasureState::Done {
                return Some(erasure);
            }
        }
    };
    let ended = tokio::time::timeout(ENDS_WITHIN, ended).await;
    state.findings.demand(ended.is_ok(), "erasure", || {
        format!("{erasure_id} has not ended within {ENDS_WITHIN:?}")
    });
    ended.ok().flatten()
}

/// Checks that the receipt counts each of these conversations once, and no other.
fn check_receipt(
    state: &CampaignState,
    conversations: &[Arc<RecordedConversation>],
    receipt: &pb::Erasure,
) {
    let mut digest = SetDigest::default();
    for conversation in conversations {
        digest.add(uuid(conversation).as_bytes());
    }
    let (count, messages) = (conversations.len() as i64, 2 * conversations.len() as i64);
    let rows = receipt.rows.get("ai_message").copied().unwrap_or_default();
    let is_right = receipt.expected_conversations == Some(count)
        && receipt.erased_conversations == count
        && receipt.erased_messages == messages
        && rows == messages
        && receipt.ids_digest == digest.0;
    state.findings.demand(is_right, "erasure", || {
        format!("of {count} conversations with {messages} messages the receipt says {receipt:?}")
    });
}

/// Checks that the user has one receipt.
async fn check_number_of_receipts(state: &CampaignState) {
    let list = |channel: Channel| async move {
        let ask = pb::ListErasuresRequest {
            user_id: ANNA.into(),
            ..Default::default()
        };
        ErasureServiceClient::new(channel)
            .list_erasures(ask)
            .await
            .map(Response::into_inner)
    };
    if let Some(listed) = state.call_with_retries("ListErasures", 0, list).await {
        let receipts = listed.expect("receipts are listed").erasures.len();
        state.findings.demand(receipts == 1, "erasure", || {
            format!("the user has {receipts} receipts")
        });
    }
}
