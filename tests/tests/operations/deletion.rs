//! A deletion deletes all text of a conversation, and all its rows. The test puts a canary word
//! wherever a caller can put text. After the deletion the word is in no table, and no table has a
//! row of the conversation, even if jobs were working on it. Logs and metrics never contain the
//! word.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anneal_core::caller::TenantId;
use anneal_testkit::{
    AnnealBinary, Folder, Gate, HttpClient, MODEL, Process, Say, Script, ScriptedModel, TestApp,
    TurnOutcome, assistant, call, eventually, pb, prose, result, status_details, user,
};
use pb::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use sqlx::PgConnection;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::BINARY;

/// The canary word. Only texts of this test contain it.
const CANARY: &str = "xyzzyCanary77";
/// The provider's key. Only its file and requests to the provider contain it.
const KEY: &str = "keyCanary88aB3dE6gH9jK";

fn with_canary(place: &str) -> String {
    format!("{CANARY} {place}")
}

/// A server and a worker at log level trace, and a model that answers turns and refuses or delays
/// summaries.
struct Deployment {
    app: TestApp,
    model: ScriptedModel,
    /// While true, the model refuses summaries and repeats the request in its error.
    refuse_summaries: Arc<AtomicBool>,
    /// The model's summaries wait until this gate is open.
    gate: Gate,
    server: Process,
    worker: Process,
    channel: Channel,
    http_clients: [HttpClient; 2],
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

impl Deployment {
    async fn start() -> Self {
        let (refuse_summaries, gate) = (Arc::new(AtomicBool::new(true)), Gate::default());
        let model = ScriptedModel::start({
            let (refuse_summaries, gate) = (Arc::clone(&refuse_summaries), gate.clone());
            move |asked| {
                if asked.texts().iter().any(|text| text.contains("in a turn")) {
                    Script::says(asked, [Say::text(&with_canary("answered"))])
                } else if refuse_summaries.load(Ordering::SeqCst) {
                    // Some providers repeat the request in their errors.
                    Script::status(
                        400,
                        &[],
                        &format!(
                            r#"{{"error": {{"message": "refused: {CANARY}"}}, "sent": {}}}"#,
                            asked.raw
                        ),
                    )
                } else {
                    Script::summarizes(asked).after(&gate)
                }
            }
        })
        .await;
        let (app, folder) = (TestApp::start().await, Folder::new());
        folder.file("anneal.toml", &settings(&model));
        folder.file("key", KEY);
        let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
        let (server, port) = anneal.server().await;
        let worker = anneal.start(&["worker"]);
        worker.wait_for_line("working as").await;
        let address = format!("http://127.0.0.1:{port}");
        let channel = Channel::from_shared(address)
            .expect("an address")
            .connect_lazy();
        let http_clients = [server.http_client().await, worker.http_client().await];
        Self {
            app,
            model,
            refuse_summaries,
            gate,
            server,
            worker,
            channel,
            http_clients,
            _folder: folder,
        }
    }

    /// Creates a conversation with the canary in its texts, its labels and its scope, and appends
    /// messages that contain the canary. Returns the conversation's id.
    async fn create_conversation(&self) -> String {
        let labels = BTreeMap::from([
            ("place".to_owned(), with_canary("metadata")),
            (CANARY.to_owned(), "key".to_owned()),
        ]);
        let policy = pb::Policy {
            max_message_count: Some(8),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(500),
            ..Default::default()
        };
        let defaults = pb::CreateConversationRequest {
            user_id: with_canary("user"),
            title: with_canary("title"),
            metadata: labels.clone().into_iter().collect(),
            system_prompt: with_canary("system prompt"),
            policy: Some(policy),
            ..Default::default()
        };
        let scope = pb::SessionScope {
            agent_id: "main".into(),
            channel: "telegram".into(),
            thread_id: with_canary("thread"),
            group_id: with_canary("group"),
            sender_id: with_canary("sender"),
            ..Default::default()
        };
        let ask = pb::ResolveSessionRequest {
            scope: Some(scope),
            defaults: Some(defaults),
            request_id: with_canary("resolve"),
        };
        let session = ConversationServiceClient::new(self.channel.clone())
            .resolve_session(ask)
            .await;
        let session = session.expect("resolves").into_inner();
        let id = session
            .conversation
            .expect("a session has a conversation")
            .conversation_id;
        for turn in 0..4 {
            let tool = with_canary(&format!("tool {turn}"));
            let mut question = user(&with_canary(&prose(turn, 6)));
            question.metadata = labels.clone().into_iter().collect();
            let input = format!("{{\"said\": \"{CANARY}\"}}");
            let messages = vec![
                question,
                call(&tool, &input),
                result(&tool, &with_canary("found")),
                assistant(&with_canary("said")),
            ];
            self.append(&id, messages, &format!("turn {turn}")).await;
        }
        self.append(
            &id,
            vec![
                user(&with_canary(&prose(0, 60))),
                assistant(&with_canary("noted")),
            ],
            "large",
        )
        .await;
        id
    }

    async fn append(&self, id: &str, messages: Vec<pb::NewMessage>, request: &str) {
        let ask = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            request_id: with_canary(request),
            messages,
            ..Default::default()
        };
        MessageServiceClient::new(self.channel.clone())
            .append_messages(ask)
            .await
            .expect("appends");
    }

    /// Makes calls that store something and calls that are refused.
    async fn make_calls(&self, id: &str) {
        let ask = pb::ChatRequest {
            conversation_id: id.into(),
            request_id: with_canary("chat"),
            messages: vec![user(&with_canary("in a turn"))],
            ..Default::default()
        };
        let stream = ChatServiceClient::new(self.channel.clone())
            .chat(ask)
            .await
            .expect("begins")
            .into_inner();
        TurnOutcome::read(stream)
            .await
            .end
            .expect("the model answers");
        let ask = pb::BuildContextRequest {
            conversation_id: id.into(),
            ..Default::default()
        };
        ContextServiceClient::new(self.channel.clone())
            .build_context(ask)
            .await
            .expect("builds");
        let mut messages = MessageServiceClient::new(self.channel.clone());
        let separator = pb::InsertSeparatorRequest {
            conversation_id: id.into(),
            request_id: with_canary("separator"),
            ..Default::default()
        };
        let after_message_id = messages
            .insert_separator(separator)
            .await
            .expect("inserts a separator")
            .into_inner()
            .after_message_id;
        let delete = pb::DeleteSeparatorRequest {
            conversation_id: id.into(),
            request_id: with_canary("join"),
            after_message_id,
        };
        messages
            .delete_separator(delete)
            .await
            .expect("deletes the separator");
        let other = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            request_id: with_canary("turn 0"),
            messages: vec![user(&with_canary("something else"))],
            ..Default::default()
        };
        let refused = messages
            .append_messages(other)
            .await
            .expect_err("another body");
        assert_eq!(status_details(&refused).reason, "REQUEST_ID_REUSED");
        let nonsense = pb::AppendMessagesRequest {
            conversation_id: id.into(),
            messages: vec![pb::NewMessage {
                role: 77,
                ..user(&with_canary("nonsense"))
            }],
            ..Default::default()
        };
        messages
            .append_messages(nonsense)
            .await
            .expect_err("no such role");
        let compact = pb::CompactRequest {
            conversation_id: id.into(),
            request_id: with_canary("compact"),
            focus: with_canary("focus"),
            ..Default::default()
        };
        ContextServiceClient::new(self.channel.clone())
            .compact(compact)
            .await
            .expect("queues");
    }

    /// Dead jobs of the conversation.
    async fn dead_jobs(&self, id: &str) -> Vec<pb::Job> {
        let ask = pb::ListJobsRequest {
            conversation_id: id.into(),
            state: pb::JobState::Dead.into(),
            ..Default::default()
        };
        let mut operators = OperatorServiceClient::new(self.channel.clone());
        operators
            .list_jobs(ask)
            .await
            .expect("lists")
            .into_inner()
            .jobs
    }

    /// Asserts that logs contain neither the canary nor the key, and that metrics and answers to
    /// operators do not contain the canary.
    async fn assert_canary_is_hidden(&self) {
        for (name, process) in [("server", &self.server), ("worker", &self.worker)] {
            let lines = process.lines();
            assert!(
                lines.iter().any(|line| line.contains("TRACE")),
                "the {name} logs at level trace"
            );
            let leak = lines
                .iter()
                .find(|line| line.contains(CANARY) || line.contains(KEY));
            assert_eq!(leak, None, "of {} lines of the {name}", lines.len());
        }
        for client in &self.http_clients {
            let metrics = client.get("/metrics").await;
            assert!(
                metrics.status == 200 && !metrics.text.contains(CANARY),
                "{}",
                metrics.text
            );
        }
        let mut operators = OperatorServiceClient::new(self.channel.clone());
        let models = operators
            .get_model_stats(pb::GetModelStatsRequest {})
            .await
            .expect("answers")
            .into_inner();
        assert!(!format!("{models:?}").contains(CANARY), "{models:#?}");
        let jobs = operators
            .list_jobs(pb::ListJobsRequest::default())
            .await
            .expect("lists")
            .into_inner();
        assert!(!format!("{jobs:?}").contains(CANARY), "{jobs:#?}");
    }
}

/// Every column that contains the canary, as `table.column`.
async fn columns_with_canary(db: &mut PgConnection) -> Vec<String> {
    let columns = "select table_name || '.' || column_name,
            format(case when data_type = 'bytea'
                then 'select count(*) from %1$I where position(convert_to($1, ''UTF8'') in %2$I) > 0'
                else 'select count(*) from %1$I where position($1 in %2$I::text) > 0' end, table_name, column_name)
        from information_schema.columns join information_schema.tables using (table_schema, table_name)
        where table_schema = 'public' and table_type = 'BASE TABLE'
        order by 1";
    let columns: Vec<(String, String)> = sqlx::query_as(columns)
        .fetch_all(&mut *db)
        .await
        .expect("lists columns");
    assert!(columns.len() > 100, "{} columns", columns.len());
    let mut found = Vec::new();
    for (column, scan) in columns {
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(scan))
            .bind(CANARY)
            .fetch_one(&mut *db)
            .await
            .expect("scans");
        if rows > 0 {
            found.push(column);
        }
    }
    found
}

/// Asserts that the canary is in no column, and that no table has a row of the conversation.
async fn assert_nothing_is_left(
    app: &TestApp,
    db: &mut PgConnection,
    conversation: Uuid,
    moment: &str,
) {
    assert_eq!(columns_with_canary(db).await, [""; 0], "{moment}");
    assert_eq!(
        app.list_tables_with_rows(conversation).await,
        [""; 0],
        "{moment}"
    );
}

/// Inserts a row of the conversation into each table that has none of it.
async fn fill_tables(app: &TestApp, conversation: Uuid) {
    let filled = app.list_tables_with_rows(conversation).await;
    let all = app.list_tables_of_conversations().await;
    assert!(all.len() >= 13, "{all:?}");
    for table in all.iter().filter(|table| !filled.contains(table)) {
        app.insert_any_row(table, conversation).await;
    }
    assert_eq!(app.list_tables_with_rows(conversation).await, all);
}

/// Deletes a conversation while the model is summarizing it, with a running or a paused worker.
async fn delete_while_summarizing(worker_is_paused: bool) {
    let deployment = Deployment::start().await;
    let id = deployment.create_conversation().await;
    // One job is for the checkpoint, one for the summary of the large message.
    eventually("the jobs that the model refuses are given up", async || {
        deployment.dead_jobs(&id).await.len() == 2
    })
    .await;
    deployment.make_calls(&id).await;
    // `ai_job` has only jobs that wait or run. Dead jobs are in `ai_job_dead`.
    eventually("the compaction ends", async || {
        let jobs = sqlx::query_scalar::<_, i64>("select count(*) from ai_job");
        jobs.fetch_one(&mut deployment.app.db().await)
            .await
            .expect("counts")
            == 0
    })
    .await;
    deployment.assert_canary_is_hidden().await;
    let mut db = deployment.app.db().await;
    let before = columns_with_canary(&mut db).await;
    assert!(before.len() >= 12, "the canary is stored: {before:?}");
    deployment.refuse_summaries.store(false, Ordering::SeqCst);
    let calls_before = deployment.model.requests().len();
    for job in deployment.dead_jobs(&id).await {
        let ask = pb::RequeueJobRequest {
            kind: job.kind,
            conversation_id: id.clone(),
            ..Default::default()
        };
        OperatorServiceClient::new(deployment.channel.clone())
            .requeue_job(ask)
            .await
            .expect("requeues");
    }
    // Both jobs call the model again.
    deployment.model.wait_for_calls(calls_before + 2).await;
    if worker_is_paused {
        deployment.worker.signal("STOP").await;
    }
    let conversation: Uuid = id.parse().expect("an id");
    fill_tables(&deployment.app, conversation).await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: id.clone(),
        request_id: with_canary("delete"),
        ..Default::default()
    };
    ConversationServiceClient::new(deployment.channel.clone())
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let moment = "when the deletion is answered";
    assert_nothing_is_left(&deployment.app, &mut db, conversation, moment).await;
    // The summaries arrive now, and their jobs end.
    deployment.gate.open_for_ever();
    if worker_is_paused {
        deployment.worker.signal("CONT").await;
    }
    eventually("both jobs have noticed the deletion", async || {
        let ended = |line: &&String| {
            line.contains("nothing to record of") || line.contains("was cancelled")
        };
        deployment.worker.lines().iter().filter(ended).count() >= 2
    })
    .await;
    eventually("the calls of the model are over", async || {
        let leases = sqlx::query_scalar::<_, i64>("select count(*) from ai_model_lease");
        leases
            .fetch_one(&mut deployment.app.db().await)
            .await
            .expect("counts")
            == 0
    })
    .await;
    let moment = "when all jobs have ended";
    assert_nothing_is_left(&deployment.app, &mut db, conversation, moment).await;
    deployment.assert_canary_is_hidden().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_deleted_conversation_whose_summaries_are_in_flight() {
    delete_while_summarizing(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_deleted_conversation_whose_worker_is_paused() {
    delete_while_summarizing(true).await;
}

/// The statements of a deletion. Version 0.2 has the same ones, and expects that the last one also
/// deletes the rows of all other tables.
const DELETION: [&str; 4] = [
    "delete from ai_message where conversation_id = $1",
    "delete from ai_job where conversation_id = $1",
    "delete from ai_job_dead where conversation_id = $1",
    "delete from ai_conversation where conversation_id = $1",
];

#[tokio::test]
async fn the_statements_of_older_servers_delete_the_rows_of_every_table() {
    let app = TestApp::start().await;
    let (deleted, kept) = (app.conversation().await, app.conversation().await);
    for conversation in [&deleted, &kept] {
        fill_tables(&app, conversation.uuid()).await;
    }
    let mut db = app.db().await;
    let as_server =
        |tenant: Uuid| format!("set role anneal_app; set anneal.tenants = '{{{tenant}}}'");
    for (tenant, rows) in [(Uuid::now_v7(), 0), (TenantId::DEFAULT.0, 1)] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(as_server(tenant)))
            .execute(&mut db)
            .await
            .expect("sets");
        for statement in DELETION {
            let ran = sqlx::query(statement)
                .bind(deleted.uuid())
                .execute(&mut db)
                .await
                .expect("runs");
            assert_eq!(ran.rows_affected(), rows, "{statement}");
        }
    }
    assert_eq!(
        app.list_tables_with_rows(deleted.uuid()).await,
        [""; 0],
        "the trigger knows every table"
    );
    assert_eq!(
        app.list_tables_with_rows(kept.uuid()).await,
        app.list_tables_of_conversations().await
    );
}

#[tokio::test]
async fn a_tenant_with_conversations_cannot_be_deleted() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    let insert = "insert into tenant (tenant_id, name) values (gen_random_uuid(), 'empty')";
    sqlx::query(insert).execute(&mut db).await.expect("inserts");
    let _conversation = app.conversation().await;
    let delete = "delete from tenant where name = $1";
    let refused = sqlx::query(delete)
        .bind("default")
        .execute(&mut db)
        .await
        .expect_err("it has a conversation");
    let refused = refused.to_string();
    assert!(refused.contains("has conversations"), "{refused}");
    let deleted = sqlx::query(delete).bind("empty").execute(&mut db).await;
    assert_eq!(deleted.expect("it has none").rows_affected(), 1);
}
