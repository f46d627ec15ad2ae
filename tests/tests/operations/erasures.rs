//! The erasure of a user ends once, with one receipt that is right, although the worker, PostgreSQL
//! and the server are killed in the middle of its steps.

use std::time::Duration;

use anneal_core::digest::SetDigest;
use anneal_testkit::{
    AnnealBinary, Folder, LOCK_CONVERSATION, OwnPostgres, Process, TestApp, TestConversation,
    eventually_within, gate_or_nightly, pb, status_details,
};
use pb::erasure_service_client::ErasureServiceClient;
use sqlx::PgConnection;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::BINARY;

/// The user whose conversations are erased.
const ANNA: &str = "anna";
/// The user whose conversations stay.
const BERT: &str = "bert";
/// Locks the messages of a conversation.
const LOCK_MESSAGES: &str = "select from ai_message where conversation_id = $1 for update";

/// A server and a worker as processes, on a PostgreSQL of the test's own.
struct Deployment {
    postgres: OwnPostgres,
    app: TestApp,
    anneal: AnnealBinary,
    server: Process,
    worker: Process,
    erasures: ErasureServiceClient<Channel>,
    _folder: Folder,
}

fn client(port: u16) -> ErasureServiceClient<Channel> {
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    ErasureServiceClient::new(channel)
}

impl Deployment {
    async fn start() -> Self {
        let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
        let app = TestApp::on_database(&postgres.url).await;
        let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
        let ((server, port), worker) = tokio::join!(anneal.server(), anneal.worker());
        Self {
            postgres,
            app,
            anneal,
            server,
            worker,
            erasures: client(port),
            _folder: folder,
        }
    }

    async fn create_conversations(&self, user_id: &str, count: usize) -> Vec<Uuid> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            let ask = pb::CreateConversationRequest {
                user_id: user_id.to_owned(),
                ..Default::default()
            };
            let conversation = self.app.conversation_with(ask).await;
            conversation.turns(1).await;
            ids.push(conversation.uuid());
        }
        ids
    }

    /// Begins the erasure, or finds it.
    async fn begin(&mut self) -> pb::Erasure {
        let ask = pb::EraseUserRequest {
            request_id: "e".into(),
            user_id: ANNA.into(),
            dry_run: false,
        };
        let begun = self.erasures.erase_user(ask).await.expect("begins");
        begun.into_inner()
    }

    async fn kill_worker(&mut self) {
        let worker = self.anneal.worker().await;
        std::mem::replace(&mut self.worker, worker).kill().await;
    }

    async fn kill_server(&mut self) {
        let (server, port) = self.anneal.server().await;
        std::mem::replace(&mut self.server, server).kill().await;
        self.erasures = client(port);
    }

    /// Waits until the erasure has ended. Returns its receipt.
    async fn wait_for_end(&mut self, erasure_id: &str) -> pb::Erasure {
        let mut receipt = None;
        let limit = Duration::from_mins(3);
        eventually_within(limit, "the erasure ends", async || {
            let ask = pb::GetErasureRequest {
                erasure_id: erasure_id.to_owned(),
            };
            receipt = match self.erasures.get_erasure(ask).await {
                Ok(read) => Some(read.into_inner()),
                // The server notices that PostgreSQL has been restarted.
                Err(status) if status_details(&status).retry => None,
                Err(status) => panic!("{status}"),
            };
            receipt
                .as_ref()
                .is_some_and(|erasure| erasure.state() == pb::ErasureState::Done)
        })
        .await;
        receipt.expect("it has ended")
    }
}

async fn count(db: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(db).await.expect("counts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_erasure_of_a_user_ends_once_whatever_is_killed_meanwhile() {
    let mut deployment = Deployment::start().await;
    let annas = deployment
        .create_conversations(ANNA, gate_or_nightly(60, 1_000))
        .await;
    let berts = deployment.create_conversations(BERT, 3).await;
    // The last step, which is that of the oldest conversation, has to wait in its middle.
    let held = deployment.app.hold_lock(LOCK_MESSAGES, annas[0]).await;
    let erasure_id = deployment.begin().await.erasure_id;
    deployment.app.wait_for_lock_waiters(1).await;
    deployment.kill_worker().await;
    deployment.app.wait_for_lock_waiters(1).await;
    deployment.kill_server().await;
    assert_eq!(deployment.begin().await.erasure_id, erasure_id);
    deployment.kill_worker().await;
    deployment.app.wait_for_lock_waiters(1).await;
    deployment.postgres.crash().await;
    drop(held);
    deployment.postgres.restart().await;
    let receipt = deployment.wait_for_end(&erasure_id).await;

    let mut digest = SetDigest::default();
    for id in &annas {
        digest.add(id.as_bytes());
    }
    let all = annas.len() as i64;
    assert_eq!(
        (receipt.expected_conversations, receipt.erased_conversations),
        (all, all)
    );
    assert_eq!(receipt.erased_messages, 2 * all);
    assert_eq!(receipt.rows.get("ai_message"), Some(&(2 * all)));
    assert_eq!(receipt.ids_digest, digest.0, "each once, and no other");
    assert_eq!(deployment.begin().await, receipt, "it is the only one");
    let mut db = deployment.app.db().await;
    assert_eq!(count(&mut db, "select count(*) from ai_erasure").await, 1);
    assert_eq!(
        count(&mut db, "select count(*) from ai_message").await,
        2 * berts.len() as i64
    );
    for id in berts {
        let conversation = deployment.app.conversation_by_id(&id.to_string());
        conversation.verify().await;
    }
}

/// A conversation of Anna, with a turn.
async fn annas_conversation(app: &TestApp) -> TestConversation<'_> {
    let ask = pb::CreateConversationRequest {
        user_id: ANNA.into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(1).await;
    conversation
}

async fn begin_on(app: &TestApp) -> pb::Erasure {
    let ask = pb::EraseUserRequest {
        user_id: ANNA.into(),
        ..Default::default()
    };
    let begun = app.erasures().erase_user(ask).await.expect("begins");
    begun.into_inner()
}

async fn read_on(app: &TestApp, begun: &pb::Erasure) -> pb::Erasure {
    let ask = pb::GetErasureRequest {
        erasure_id: begun.erasure_id.clone(),
    };
    let read = app.erasures().get_erasure(ask).await.expect("is there");
    read.into_inner()
}

#[tokio::test]
async fn a_conversation_in_use_is_passed_over_and_deleted_by_a_later_step() {
    let app = TestApp::start().await;
    let (used, free) = (
        annas_conversation(&app).await,
        annas_conversation(&app).await,
    );
    let begun = begin_on(&app).await;
    let held = app.hold_lock(LOCK_CONVERSATION, used.uuid()).await;
    app.run_erasures().await;
    let erasure = read_on(&app, &begun).await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Running, 1)
    );
    assert_eq!(app.list_tables_with_rows(free.uuid()).await, [""; 0]);
    held.rollback().await;
    app.run_erasures().await;
    let erasure = read_on(&app, &begun).await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Done, 2)
    );
}

#[tokio::test]
async fn two_workers_share_the_erasures_and_each_conversation_counts_once() {
    let app = TestApp::start().await;
    for _ in 0..120 {
        annas_conversation(&app).await;
    }
    let second = app.second_server().await;
    let (one, other) = (begin_on(&app).await, begin_on(&app).await);
    // A worker may find everything in use, and stop before the end.
    loop {
        tokio::join!(app.run_erasures(), second.run_erasures());
        let erasures = [read_on(&app, &one).await, read_on(&app, &other).await];
        if erasures
            .iter()
            .all(|erasure| erasure.state() == pb::ErasureState::Done)
        {
            let counts = erasures.map(|erasure| erasure.erased_conversations);
            assert_eq!(counts.iter().sum::<i64>(), 120, "{counts:?}");
            return;
        }
    }
}
