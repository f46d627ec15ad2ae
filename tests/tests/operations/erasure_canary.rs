//! Erased content is gone. A test plants a canary word in everything that is made of messages:
//! content, tool inputs, reasoning, metadata, the title, summaries of a model, finished parts of
//! summaries, versions of withdrawn and of edited messages, checkpoints that no longer hold, errors
//! of jobs and of breakers, the instructions of a response, and the answer of a turn. If a user or a tenant is erased, it is in a
//! fork as well. A summary and an answer that hold the word are under way. After each kind of
//! erasure the word is in no table, and it stays away when these arrive. Neither do logs, metrics
//! and receipts contain it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anneal_testkit::{
    AnnealBinary, Canary, Folder, Gate, HttpClient, MODEL, ModelRequest, Process, Say, Script,
    ScriptedModel, TestApp, TurnOutcome, assistant, call, content_digests, dump_database,
    eventually, id_range, message, pb, prose, result, user,
};
use pb::{
    chat_service_client::ChatServiceClient, conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
};
use sqlx::AssertSqlSafe;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::BINARY;

const CANARY: Canary = Canary("quuxCanary55");
/// Part of the questions that the model answers in turns.
const TURN: &str = "in a turn";

/// Part of the requests for a summary, and of no others.
const SUMMARY: &str = "must_keep";

/// The tables that hold the word before an erasure.
const TABLES: [&str; 10] = [
    "ai_conversation",
    "ai_conversation_breaker",
    "ai_conversation_checkpoint",
    "ai_job",
    "ai_job_dead",
    "ai_message",
    "ai_message_version",
    "ai_response",
    "ai_summary_part",
    "ai_void_checkpoint",
];

/// The subject of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Erased {
    Messages,
    Conversation,
    User,
    Tenant,
}

impl Erased {
    /// A request id. It contains the word, unless only messages are erased: their request ids stay.
    fn request_id(self, id: &str) -> String {
        match self {
            Self::Messages => id.to_owned(),
            Self::Conversation | Self::User | Self::Tenant => CANARY.in_text(id),
        }
    }

    /// Whether forks are erased too.
    fn reaches_forks(self) -> bool {
        matches!(self, Self::User | Self::Tenant)
    }
}

/// A server and a worker at log level trace, and a model whose late answers wait for a gate.
struct Deployment {
    app: TestApp,
    model: ScriptedModel,
    /// While true, the model's answers wait for the gate.
    is_late: Arc<AtomicBool>,
    gate: Gate,
    server: Process,
    worker: Process,
    channel: Channel,
    http_clients: [HttpClient; 2],
    _folder: Folder,
}

fn settings(model: &ScriptedModel) -> String {
    format!(
        "[log]\nfilter = \"trace\"\n[worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\n{}\
         [summarizer]\nmodel = \"{MODEL}\"\nfallback = \"none\"\n",
        model.server_settings()
    )
}

/// The model repeats the word if its request contains it.
fn answer(asked: &ModelRequest) -> Script {
    let word = if asked.raw.contains(CANARY.0) {
        CANARY.0
    } else {
        "Nothing"
    };
    if asked.raw.contains(SUMMARY) {
        let summary = format!("{word}: several things were asked about, and all were answered.");
        Script::summarizes_as(asked, &summary)
    } else {
        Script::says(
            asked,
            [Say::thought(word), Say::text(&format!("{word} answered"))],
        )
    }
}

impl Deployment {
    async fn start() -> Self {
        let (is_late, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
        let model = ScriptedModel::start({
            let (is_late, gate) = (Arc::clone(&is_late), gate.clone());
            move |asked| {
                let answer = answer(asked);
                if is_late.load(Ordering::SeqCst) {
                    answer.after(&gate)
                } else {
                    answer
                }
            }
        })
        .await;
        let (app, folder) = (TestApp::start().await, Folder::new());
        folder.file("anneal.toml", &settings(&model));
        let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
        let (server, port) = anneal.server().await;
        let worker = anneal.start(&["worker"]);
        worker.wait_for_line("working as").await;
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
            .expect("an address")
            .connect_lazy();
        let http_clients = [server.http_client().await, worker.http_client().await];
        Self {
            app,
            model,
            is_late,
            gate,
            server,
            worker,
            channel,
            http_clients,
            _folder: folder,
        }
    }

    fn messages(&self) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(self.channel.clone())
    }

    fn erasures(&self) -> ErasureServiceClient<Channel> {
        ErasureServiceClient::new(self.channel.clone())
    }

    async fn create_conversation(&self, user_id: &str) -> String {
        let policy = pb::Policy {
            max_message_count: Some(8),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(500),
            ..Default::default()
        };
        let ask = pb::CreateConversationRequest {
            user_id: user_id.to_owned(),
            policy: Some(policy),
            ..Default::default()
        };
        let made = ConversationServiceClient::new(self.channel.clone())
            .create_conversation(ask)
            .await
            .expect("creates");
        made.into_inner().conversation_id
    }

    async fn append(&self, id: &str, request_id: &str, messages: Vec<pb::NewMessage>) {
        let ask = pb::AppendMessagesRequest {
            conversation_id: id.to_owned(),
            request_id: request_id.to_owned(),
            messages,
            ..Default::default()
        };
        self.messages().append_messages(ask).await.expect("appends");
    }

    /// Appends turns whose texts, labels, tool inputs and reasoning contain the word.
    async fn append_turns(&self, what: Erased, id: &str, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let mut question = user(&CANARY.in_text(&prose(number, 6)));
            question.metadata = HashMap::from([("place".to_owned(), CANARY.in_text("label"))]);
            let tool = format!("tool {number}");
            let thought = pb::part::Part::Reasoning(pb::ReasoningPart {
                text: CANARY.in_text("thought"),
                ..Default::default()
            });
            let said = pb::part::Part::Text(pb::TextPart {
                text: CANARY.in_text("said"),
            });
            let messages = vec![
                question,
                call(&tool, &format!("{{\"said\": \"{}\"}}", CANARY.0)),
                result(&tool, &CANARY.in_text("found")),
                message(pb::Role::Assistant, vec![thought, said]),
            ];
            let request_id = what.request_id(&format!("turn {number}"));
            self.append(id, &request_id, messages).await;
        }
    }

    /// Starts a turn whose question and answer contain the word.
    fn start_turn(&self, id: &str, request_id: &str) -> JoinHandle<TurnOutcome> {
        let ask = pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: request_id.to_owned(),
            messages: vec![user(&CANARY.in_text(TURN))],
            ..Default::default()
        };
        let mut chats = ChatServiceClient::new(self.channel.clone());
        tokio::spawn(async move {
            let stream = chats.chat(ask).await.expect("begins").into_inner();
            TurnOutcome::read(stream).await
        })
    }

    /// Replaces an answer that contains the word by another one.
    async fn edit(&self, id: &str, message_id: i64) {
        let ask = pb::EditMessageRequest {
            conversation_id: id.to_owned(),
            message_id,
            message: Some(assistant(&CANARY.in_text("edited"))),
            ..Default::default()
        };
        let edited = self.messages().edit_message(ask).await.expect("edits");
        assert_eq!(edited.into_inner().version, 2);
    }

    /// Forks the conversation at its newest message.
    async fn fork(&self, id: &str) {
        let ask = pb::ForkConversationRequest {
            conversation_id: id.to_owned(),
            ..Default::default()
        };
        let forked = ConversationServiceClient::new(self.channel.clone())
            .fork_conversation(ask)
            .await
            .expect("forks");
        assert_ne!(forked.into_inner().conversation_id, id);
    }

    async fn has_row(&self, sql: &str) -> bool {
        let sql = AssertSqlSafe(format!("select exists ({sql})"));
        sqlx::query_scalar(sql)
            .fetch_one(&mut self.app.db().await)
            .await
            .expect("looks for rows")
    }

    async fn wait_for_row(&self, sql: &str) {
        eventually(sql, async || self.has_row(sql).await).await;
    }

    /// Stores what no call stores reliably: errors of jobs and of a breaker that contain the word, and
    /// a finished part of a summary. Also a response whose instructions contain it.
    async fn insert_rows(&self, id: Uuid) {
        let mut db = self.app.db().await;
        for insert in [
            "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, last_error, dirty_ts)
             select tenant_id, 3, conversation_id, 1, 1, $2, now() from ai_conversation where conversation_id = $1
             on conflict (kind, conversation_id) do update set last_error = excluded.last_error",
            "insert into ai_summary_part (tenant_id, conversation_id, kind, part_digest, summary, model_calls,
                 input_tokens, output_tokens)
             select tenant_id, conversation_id, 2, '\\x01', $2, 1, 1, 1 from ai_conversation where conversation_id = $1",
            "insert into ai_conversation_breaker (tenant_id, conversation_id, model, failures, last_error)
             select tenant_id, conversation_id, 'another model', 1, $2 from ai_conversation where conversation_id = $1",
            "insert into ai_response (tenant_id, response_id, conversation_id, request_id, after_message_id,
                 question_last_id, is_chain, background, request, request_digest)
             select tenant_id, gen_random_uuid(), conversation_id, 'resp', 0, 1, false, false,
                 json_build_object('instructions', $2::text), sha256(convert_to($2, 'UTF8'))
             from ai_conversation where conversation_id = $1",
            "update ai_job set last_error = $2 where conversation_id = $1",
        ] {
            sqlx::query(insert)
                .bind(id)
                .bind(CANARY.in_text("row"))
                .execute(&mut db)
                .await
                .expect("inserts");
        }
    }

    /// Plants the word, with a summary and a turn under way. Returns the conversation and the turn.
    async fn plant(&self, what: Erased, user_id: &str) -> (String, JoinHandle<TurnOutcome>) {
        let id = self.create_conversation(user_id).await;
        self.append_turns(what, &id, 0..5).await;
        let large = vec![
            user(&CANARY.in_text(&prose(0, 60))),
            assistant(&CANARY.in_text("noted")),
        ];
        self.append(&id, "large", large).await;
        let in_checkpoint = format!(
            "select from ai_conversation_checkpoint where position('{}' in summary) > 0",
            CANARY.0
        );
        self.wait_for_row(&in_checkpoint).await;
        self.wait_for_row(&format!(
            "select from ai_message where position('{}' in summary_cache) > 0",
            CANARY.0
        ))
        .await;
        let turn = self.start_turn(&id, &what.request_id("chat")).await;
        let answered = turn.expect("ends").end.expect("is answered");
        self.edit(&id, answered.answer_message_id).await;
        let withdraw = pb::WithdrawMessagesRequest {
            conversation_id: id.clone(),
            message_ids: vec![1],
            ..Default::default()
        };
        let withdrawn = self.messages().withdraw_messages(withdraw).await;
        assert!(
            !withdrawn
                .expect("withdraws")
                .into_inner()
                .void_checkpoints
                .is_empty()
        );
        self.wait_for_row(&in_checkpoint).await;
        if what.reaches_forks() {
            self.fork(&id).await;
        }
        self.wait_for_row("select where not exists (select from ai_job)")
            .await;
        self.is_late.store(true, Ordering::SeqCst);
        let calls = self.model.requests().len();
        self.append_turns(what, &id, 5..9).await;
        let turn = self.start_turn(&id, &what.request_id("late chat"));
        eventually("a summary and a turn call the model", async || {
            let requests = self.model.requests();
            let is_summary = |request: &ModelRequest| request.raw.contains(SUMMARY);
            let late = || requests.iter().skip(calls);
            late().any(is_summary) && !late().all(is_summary)
        })
        .await;
        self.insert_rows(id.parse().expect("an id")).await;
        (id, turn)
    }

    /// Erases, and waits until it is acknowledged to have ended. Returns the receipt.
    async fn erase(&self, what: Erased, id: &str, user_id: &str) -> pb::Erasure {
        let erasure_id = match what {
            Erased::Messages => {
                let ask = pb::GetConversationRequest {
                    conversation_id: id.to_owned(),
                };
                let conversation = ConversationServiceClient::new(self.channel.clone())
                    .get_conversation(ask)
                    .await
                    .expect("is there");
                let ask = pb::EraseMessagesRequest {
                    conversation_id: id.to_owned(),
                    range: Some(id_range(1, conversation.into_inner().message_count)),
                    ..Default::default()
                };
                let change = self.messages().erase_messages(ask).await.expect("erases");
                change.into_inner().erasure_id
            }
            Erased::Conversation => {
                let ask = pb::DeleteConversationRequest {
                    conversation_id: id.to_owned(),
                    with_receipt: true,
                    ..Default::default()
                };
                let deleted = ConversationServiceClient::new(self.channel.clone())
                    .delete_conversation(ask)
                    .await
                    .expect("deletes");
                deleted.into_inner().erasure_id
            }
            Erased::User => {
                let ask = pb::EraseUserRequest {
                    user_id: user_id.to_owned(),
                    ..Default::default()
                };
                let begun = self.erasures().erase_user(ask).await.expect("begins");
                begun.into_inner().erasure_id
            }
            Erased::Tenant => {
                let ask = pb::EraseTenantRequest {
                    confirm_tenant: "default".into(),
                    ..Default::default()
                };
                let begun = self.erasures().erase_tenant(ask).await.expect("begins");
                begun.into_inner().erasure_id
            }
        };
        let mut erasure = pb::Erasure::default();
        eventually("the erasure ends", async || {
            let ask = pb::GetErasureRequest {
                erasure_id: erasure_id.clone(),
            };
            let read = self.erasures().get_erasure(ask).await.expect("is there");
            erasure = read.into_inner();
            erasure.state() == pb::ErasureState::Done
        })
        .await;
        erasure
    }

    /// Asserts that neither the word nor one of these digests is in a table.
    async fn assert_is_gone(&self, digests: &[String], moment: &str) {
        let tables = CANARY.find_tables(&self.app.url).await;
        assert!(tables.is_empty(), "{moment}: {tables:?}");
        let dump = dump_database(&self.app.url).await;
        let left: Vec<&String> = digests
            .iter()
            .filter(|digest| dump.contains(digest.as_str()))
            .collect();
        assert!(left.is_empty(), "{moment}: digests of content: {left:?}");
    }

    /// Asserts that logs and metrics do not contain the word.
    async fn assert_is_hidden(&self) {
        for (name, process) in [("server", &self.server), ("worker", &self.worker)] {
            let lines = process.lines();
            assert!(
                lines.iter().any(|line| line.contains("TRACE")),
                "the {name} logs at level trace"
            );
            let leak = lines.iter().find(|line| line.contains(CANARY.0));
            assert_eq!(leak, None, "of {} lines of the {name}", lines.len());
        }
        for client in &self.http_clients {
            let metrics = client.get("/metrics").await;
            assert!(metrics.status == 200 && !metrics.text.contains(CANARY.0));
        }
    }
}

async fn erase_and_search(what: Erased) {
    let deployment = Deployment::start().await;
    // Of erased messages, the user's id stays: it belongs to the conversation.
    let user_id = match what {
        Erased::Messages => "anna".to_owned(),
        _ => CANARY.in_text("user"),
    };
    let (id, turn) = deployment.plant(what, &user_id).await;
    let before = CANARY.find_tables(&deployment.app.url).await;
    let missing: BTreeSet<&str> = TABLES
        .into_iter()
        .filter(|table| !before.contains(*table))
        .collect();
    assert!(missing.is_empty(), "not planted: {missing:?}");
    let digests = content_digests(&deployment.app.url).await;
    assert!(digests.len() > 20, "{} digests", digests.len());

    let receipt = deployment.erase(what, &id, &user_id).await;
    assert!(receipt.erased_messages > 20, "{receipt:?}");
    if what != Erased::Messages {
        let conversations = if what.reaches_forks() { 2 } else { 1 };
        assert_eq!(receipt.erased_conversations, conversations, "{receipt:?}");
    }
    assert!(!format!("{receipt:?}").contains(CANARY.0), "{receipt:?}");
    deployment
        .assert_is_gone(&digests, "when the erasure has ended")
        .await;

    // The summary and the answer of the turn arrive now.
    deployment.gate.open_for_ever();
    let outcome = turn.await.expect("ends");
    outcome.end.expect_err("the turn's answer is refused");
    deployment
        .wait_for_row("select where not exists (select from ai_model_lease)")
        .await;
    deployment
        .wait_for_row("select where not exists (select from ai_job)")
        .await;
    deployment
        .assert_is_gone(&digests, "when late results have arrived")
        .await;
    deployment.assert_is_hidden().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_erased_messages() {
    erase_and_search(Erased::Messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_conversation_that_is_deleted_with_a_receipt() {
    erase_and_search(Erased::Conversation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_an_erased_user() {
    erase_and_search(Erased::User).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_an_erased_tenant() {
    erase_and_search(Erased::Tenant).await;
}
