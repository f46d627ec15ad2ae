//! Deletion reaches everything: a word that is planted wherever a caller can put words is found nowhere afterwards, whoever is
//! busy with the conversation meanwhile. In logs and figures it is found at no time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anneal_tests::{
    Anneal, Folder, Gate, House, MODEL, Process, Say, Script, ScriptedModel, ToldTurn, Web, assistant, call,
    eventually, pb, prose, refusal, result, user,
};
use pb::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use sqlx::PgConnection;
use tonic::transport::Channel;

use crate::BINARY;

/// The word. Nothing else contains it.
const CANARY: &str = "xyzzyCanary77";
/// A key, which only the provider is told.
const KEY: &str = "keyCanary88aB3dE6gH9jK";

fn planted(place: &str) -> String {
    format!("{CANARY} {place}")
}

/// A server and a worker that log all that they can, and a model that the test makes fail, answer, or wait.
struct Scene {
    house: House,
    model: ScriptedModel,
    /// Summaries are refused, with the request in the refusal; afterwards they are written.
    refuses: Arc<AtomicBool>,
    /// What summaries wait for.
    gate: Gate,
    server: Process,
    worker: Process,
    channel: Channel,
    doors: [Web; 2],
    _folder: Folder,
}

fn settings(model: &ScriptedModel) -> String {
    format!(
        "[log]\nfilter = \"trace\"\n[worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\n\
         [providers.scripted]\napi = \"openai\"\nurl = \"{}\"\nkey_file = \"key\"\n\
         [models.{MODEL}]\nprovider = \"scripted\"\nwindow_tokens = 8192\n[chat]\nmodel = \"{MODEL}\"\n\
         [breaker]\nfailures = 1000\nmodel_failures = 1000\n[summarizer]\nmodel = \"{MODEL}\"\nfallback = \"none\"\n",
        model.url()
    )
}

impl Scene {
    async fn start() -> Self {
        let (refuses, gate) = (Arc::new(AtomicBool::new(true)), Gate::default());
        let model = ScriptedModel::start({
            let (refuses, gate) = (Arc::clone(&refuses), gate.clone());
            move |asked| {
                if asked.texts().iter().any(|text| text.contains("in a turn")) {
                    Script::says(asked, [Say::text(&planted("answered"))])
                } else if refuses.load(Ordering::SeqCst) {
                    // As some providers do: with what they were sent.
                    Script::status(
                        400,
                        &[],
                        &format!(r#"{{"error": {{"message": "refused: {CANARY}"}}, "sent": {}}}"#, asked.raw),
                    )
                } else {
                    Script::summarizes(asked).after(&gate)
                }
            }
        })
        .await;
        let (house, folder) = (House::start().await, Folder::new());
        folder.file("anneal.toml", &settings(&model));
        folder.file("key", KEY);
        let anneal = Anneal::new(BINARY, &folder, &house.url);
        let (server, port) = anneal.server().await;
        let worker = anneal.start(&["worker"]);
        worker.said("working as").await;
        let address = format!("http://127.0.0.1:{port}");
        let channel = Channel::from_shared(address).expect("an address").connect_lazy();
        let doors = [server.door().await, worker.door().await];
        Self { house, model, refuses, gate, server, worker, channel, doors, _folder: folder }
    }

    /// A conversation with the word in every place; its id.
    async fn plant(&self) -> String {
        let labels = BTreeMap::from([("place".to_owned(), planted("metadata")), (CANARY.to_owned(), "key".to_owned())]);
        let policy = pb::Policy {
            max_message_count: Some(8),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(500),
            ..Default::default()
        };
        let defaults = pb::CreateConversationRequest {
            user_id: planted("user"),
            title: planted("title"),
            metadata: labels.clone().into_iter().collect(),
            system_prompt: planted("system prompt"),
            policy: Some(policy),
            ..Default::default()
        };
        let scope = pb::SessionScope {
            agent_id: "main".into(),
            channel: "telegram".into(),
            thread_id: planted("thread"),
            group_id: planted("group"),
            sender_id: planted("sender"),
            ..Default::default()
        };
        let ask =
            pb::ResolveSessionRequest { scope: Some(scope), defaults: Some(defaults), request_id: planted("resolve") };
        let session = ConversationServiceClient::new(self.channel.clone()).resolve_session(ask).await;
        let session = session.expect("resolves").into_inner();
        let id = session.conversation.expect("a session has a conversation").conversation_id;
        for turn in 0..4 {
            let tool = planted(&format!("tool {turn}"));
            let mut asked = user(&planted(&prose(turn, 6)));
            asked.metadata = labels.clone().into_iter().collect();
            let input = format!("{{\"said\": \"{CANARY}\"}}");
            let messages =
                vec![asked, call(&tool, &input), result(&tool, &planted("found")), assistant(&planted("said"))];
            self.append(&id, messages, &format!("turn {turn}")).await;
        }
        self.append(&id, vec![user(&planted(&prose(0, 60))), assistant(&planted("noted"))], "large").await;
        id
    }

    async fn append(&self, id: &str, messages: Vec<pb::NewMessage>, request: &str) {
        let ask = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            request_id: planted(request),
            messages,
            ..Default::default()
        };
        MessageServiceClient::new(self.channel.clone()).append_messages(ask).await.expect("appends");
    }

    /// Calls that leave something behind, and calls that are refused.
    async fn use_it(&self, id: &str) {
        let ask = pb::ChatRequest {
            conversation_id: id.into(),
            request_id: planted("chat"),
            messages: vec![user(&planted("in a turn"))],
            ..Default::default()
        };
        let stream = ChatServiceClient::new(self.channel.clone()).chat(ask).await.expect("begins").into_inner();
        ToldTurn::of(stream).await.end.expect("the model answers");
        let ask = pb::BuildContextRequest { conversation_id: id.into(), ..Default::default() };
        ContextServiceClient::new(self.channel.clone()).build_context(ask).await.expect("builds");
        let mut messages = MessageServiceClient::new(self.channel.clone());
        let separator = pb::InsertSeparatorRequest {
            conversation_id: id.into(),
            request_id: planted("separator"),
            ..Default::default()
        };
        let after_message_id =
            messages.insert_separator(separator).await.expect("separates").into_inner().after_message_id;
        let join =
            pb::DeleteSeparatorRequest { conversation_id: id.into(), request_id: planted("join"), after_message_id };
        messages.delete_separator(join).await.expect("joins");
        let other = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            request_id: planted("turn 0"),
            messages: vec![user(&planted("something else"))],
            ..Default::default()
        };
        let refused = messages.append_messages(other).await.expect_err("another body");
        assert_eq!(refusal(&refused).reason, "REQUEST_ID_REUSED");
        let nonsense = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            messages: vec![pb::NewMessage { role: 77, ..user(&planted("nonsense")) }],
            ..Default::default()
        };
        messages.append_messages(nonsense).await.expect_err("no such role");
        let compact = pb::CompactRequest {
            conversation_id: id.into(),
            request_id: planted("compact"),
            focus: planted("focus"),
            ..Default::default()
        };
        ContextServiceClient::new(self.channel.clone()).compact(compact).await.expect("queues");
    }

    /// Dead jobs of the conversation.
    async fn dead(&self, id: &str) -> Vec<pb::Job> {
        let ask =
            pb::ListJobsRequest { conversation_id: id.into(), state: pb::JobState::Dead.into(), ..Default::default() };
        let mut operators = OperatorServiceClient::new(self.channel.clone());
        operators.list_jobs(ask).await.expect("lists").into_inner().jobs
    }

    /// What operators are shown, and what both processes have logged, holds neither the word nor the key.
    async fn assert_nothing_shows(&self) {
        for (name, process) in [("server", &self.server), ("worker", &self.worker)] {
            let lines = process.lines();
            assert!(lines.iter().any(|line| line.contains("TRACE")), "the {name} logs all that it can");
            let said = lines.iter().find(|line| line.contains(CANARY) || line.contains(KEY));
            assert_eq!(said, None, "of {} lines of the {name}", lines.len());
        }
        for door in &self.doors {
            let metrics = door.get("/metrics").await;
            assert!(metrics.status == 200 && !metrics.text.contains(CANARY), "{}", metrics.text);
        }
        let mut operators = OperatorServiceClient::new(self.channel.clone());
        let models = operators.get_model_stats(pb::GetModelStatsRequest {}).await.expect("answers").into_inner();
        assert!(!format!("{models:?}").contains(CANARY), "{models:#?}");
        let jobs = operators.list_jobs(pb::ListJobsRequest::default()).await.expect("lists").into_inner();
        assert!(!format!("{jobs:?}").contains(CANARY), "{jobs:#?}");
    }
}

/// The columns of all tables, by catalogue, that hold the word.
async fn columns_with_it(db: &mut PgConnection) -> Vec<String> {
    let columns = "select table_name || '.' || column_name,
            format(case when data_type = 'bytea'
                then 'select count(*) from %1$I where position(convert_to($1, ''UTF8'') in %2$I) > 0'
                else 'select count(*) from %1$I where position($1 in %2$I::text) > 0' end, table_name, column_name)
        from information_schema.columns join information_schema.tables using (table_schema, table_name)
        where table_schema = 'public' and table_type = 'BASE TABLE'
        order by 1";
    let columns: Vec<(String, String)> = sqlx::query_as(columns).fetch_all(&mut *db).await.expect("lists columns");
    assert!(columns.len() > 100, "{} columns", columns.len());
    let mut found = Vec::new();
    for (column, scan) in columns {
        let rows: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(scan)).bind(CANARY).fetch_one(&mut *db).await.expect("scans");
        if rows > 0 {
            found.push(column);
        }
    }
    found
}

/// Deletes a conversation while the model is summarising it; the worker stands still meanwhile, or does not.
async fn deleted_with_summaries_in_flight(stands_still: bool) {
    let scene = Scene::start().await;
    let id = scene.plant().await;
    eventually("the jobs that the model refuses are given up", async || scene.dead(&id).await.len() == 2).await;
    scene.use_it(&id).await;
    eventually("so is the compaction", async || {
        let waiting = sqlx::query_scalar::<_, i64>("select count(*) from ai_job");
        waiting.fetch_one(&mut scene.house.db().await).await.expect("counts") == 0
    })
    .await;
    scene.assert_nothing_shows().await;
    let mut db = scene.house.db().await;
    let before = columns_with_it(&mut db).await;
    assert!(before.len() >= 12, "the word was planted: {before:?}");
    scene.refuses.store(false, Ordering::SeqCst);
    let asked = scene.model.asked().len();
    for job in scene.dead(&id).await {
        let ask = pb::RequeueJobRequest { kind: job.kind, conversation_id: id.clone(), ..Default::default() };
        OperatorServiceClient::new(scene.channel.clone()).requeue_job(ask).await.expect("requeues");
    }
    scene.model.arrived(asked + 2).await;
    if stands_still {
        scene.worker.signal("STOP").await;
    }
    let ask = pb::DeleteConversationRequest { conversation_id: id.clone(), request_id: planted("delete") };
    ConversationServiceClient::new(scene.channel.clone()).delete_conversation(ask).await.expect("deletes");
    assert_eq!(columns_with_it(&mut db).await, [""; 0], "gone with the answer");
    // The summaries come now, and their jobs end.
    scene.gate.open_for_ever();
    if stands_still {
        scene.worker.signal("CONT").await;
    }
    eventually("both jobs have found out", async || {
        let ended = |line: &&String| line.contains("is not ours any more") || line.contains("was cancelled");
        scene.worker.lines().iter().filter(ended).count() >= 2
    })
    .await;
    eventually("the calls of the model are over", async || {
        let leases = sqlx::query_scalar::<_, i64>("select count(*) from ai_model_lease");
        leases.fetch_one(&mut scene.house.db().await).await.expect("counts") == 0
    })
    .await;
    assert_eq!(columns_with_it(&mut db).await, [""; 0], "nothing came back");
    scene.assert_nothing_shows().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_deleted_conversation_whose_summaries_are_in_flight() {
    deleted_with_summaries_in_flight(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_deleted_conversation_whose_worker_wakes_later() {
    deleted_with_summaries_in_flight(true).await;
}
