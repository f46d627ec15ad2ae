//! The app of one test: its own database, its own server on a free port, and a worker that the test
//! steps.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anneal_core::{model::Models, policy::SessionSettings};
use anneal_llm::{Extractive, ModelAccess, Summarizer, provider::Providers};
use anneal_local_postgres::{Binaries, Durability, LocalPostgres, Settings};
use anneal_proto::v1::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use anneal_server::{
    Addresses, Agents, AuthSettings, CurrentSettings, LimitSettings, ModelList, ReloadableSettings,
    ServerSettings, Setup, WebSettings, serve,
};
use anneal_store::{
    AppendSettings, Grouping, Migrations, Pooling, Store, StoreSettings, create_database,
};
use anneal_worker::{RetentionSettings, SummarizerSettings, Worker, WorkerSettings};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use uuid::Uuid;

use crate::{
    server_options::ServerOptions,
    watchdog::{self, Watchdog},
};

/// The name of the model that writes summaries.
pub const SUMMARY_MODEL: &str = "writer";

/// Database, server and worker of one test, in the test's process. Dropping it stops the server.
pub struct TestApp {
    /// The database's URL, for queries of the test.
    pub url: String,
    /// The store that server and worker use.
    pub store: Store,
    /// The addresses on which the server listens.
    pub addresses: Addresses,
    worker: Worker,
    channel: Channel,
    options: ServerOptions,
    _watchdog: Watchdog,
    _stop: DropGuard,
}

/// PostgreSQL's binaries: those in `ANNEAL_PG_BIN`, or the installed ones.
pub fn postgres_binaries() -> Binaries {
    let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
    Binaries::find(wanted.as_deref())
        .expect("tests need PostgreSQL 15 or newer: scripts/postgres.sh installs it")
}

/// Whether appends share transactions. `ANNEAL_APPEND_GROUPING=off` runs every test with one
/// transaction per append; processes of the binary read the same variable.
pub fn append_grouping() -> Grouping {
    let off = std::env::var("ANNEAL_APPEND_GROUPING").is_ok_and(|grouping| grouping == "off");
    if off { Grouping::Off } else { Grouping::On }
}

/// Returns the test cluster of this PostgreSQL version, started if necessary. All test processes
/// share it.
async fn start_cluster() -> LocalPostgres {
    let binaries = postgres_binaries();
    let base = std::env::temp_dir().join("anneal-tests");
    let mut settings = Settings::new(
        base.join(format!("postgres-{}", binaries.version().major)),
        binaries,
    );
    settings.durability = Durability::Test;
    settings.extra = vec![("max_connections".into(), "400".into())];
    LocalPostgres::start(settings)
        .await
        .expect("the test cluster starts")
}

/// Creates a migrated database for the test, as a copy of the template. Returns its URL.
async fn create_test_database() -> String {
    let cluster = start_cluster().await;
    let admin = cluster.url("postgres");
    let template = find_or_create_template(&cluster, &admin).await;
    let name = format!("test_{}", Uuid::new_v4().simple());
    create_database(&admin, &name, Some(&template))
        .await
        .expect("a database from the template");
    cluster.url(&name)
}

/// Creates a database without a schema. Returns its URL.
pub async fn empty_database() -> String {
    let cluster = start_cluster().await;
    let name = format!("empty_{}", Uuid::new_v4().simple());
    create_database(&cluster.url("postgres"), &name, None)
        .await
        .expect("an empty database");
    cluster.url(&name)
}

/// Returns the name of the template database. Creates and migrates it if it does not exist. The
/// name is a digest of the migrations, so that a changed schema gets a new template.
async fn find_or_create_template(cluster: &LocalPostgres, admin: &str) -> String {
    let mut db = PgConnection::connect(admin)
        .await
        .expect("the test cluster answers");
    let all = Migrations::all();
    let sql: String = all.iter().map(|migration| migration.sql.as_str()).collect();
    let digest = anneal_core::digest::of_content(&sql);
    let name = format!(
        "template_{:016x}",
        u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
    );
    // One test process at a time creates the template. The number of the lock means nothing.
    sqlx::query("select pg_advisory_lock(7)")
        .execute(&mut db)
        .await
        .expect("the lock is acquired");
    let exists: bool = sqlx::query_scalar(
        "select exists (select from pg_database where datname = $1 and datistemplate)",
    )
    .bind(&name)
    .fetch_one(&mut db)
    .await
    .expect("the query succeeds");
    if !exists {
        create_database(admin, &name, None)
            .await
            .expect("the template is made");
        let mut migrations = Migrations::connect(&StoreSettings::at(&cluster.url(&name)))
            .await
            .expect("the connection succeeds");
        migrations
            .run(Duration::from_secs(30))
            .await
            .expect("the migrations are applied");
        drop(migrations);
        let mark = format!("alter database {name} is_template true");
        sqlx::query(sqlx::AssertSqlSafe(mark))
            .execute(&mut db)
            .await
            .expect("the database is marked as a template");
    }
    db.close().await.expect("the connection is closed");
    name
}

impl TestApp {
    /// An app with the default settings.
    pub async fn start() -> Self {
        Self::with_session(SessionSettings::default()).await
    }

    /// An app whose server counts no messages: each append enqueues a counting job.
    pub async fn counted_by_workers() -> Self {
        Self::counted_by_workers_on(&create_test_database().await).await
    }

    /// [`TestApp::counted_by_workers`] on an existing database.
    pub async fn counted_by_workers_on(url: &str) -> Self {
        let options = ServerOptions {
            counted_by_workers: true,
            ..ServerOptions::default()
        };
        Self::start_on(url.to_owned(), SessionSettings::default(), options).await
    }

    /// An app whose server extracts no summaries, because it believes that a model writes them.
    pub async fn with_summaries_by_a_model() -> Self {
        let options = ServerOptions {
            summaries_by_a_model: true,
            ..ServerOptions::default()
        };
        let url = create_test_database().await;
        Self::start_on(url, SessionSettings::default(), options).await
    }

    /// An app with these `[session]` settings.
    pub async fn with_session(session: SessionSettings) -> Self {
        Self::start_on(
            create_test_database().await,
            session,
            ServerOptions::default(),
        )
        .await
    }

    /// A second server and worker on the same database.
    pub async fn second_server(&self) -> Self {
        Self::start_on(
            self.url.clone(),
            (*self.store.session()).clone(),
            self.options.clone(),
        )
        .await
    }

    /// A second server and worker, at another URL of the same database.
    pub async fn second_server_at(&self, url: &str) -> Self {
        Self::start_on(
            url.to_owned(),
            (*self.store.session()).clone(),
            self.options.clone(),
        )
        .await
    }

    /// An app whose server has these `[agents]` settings.
    pub async fn with_agents(agents: Agents) -> Self {
        Self::start_on(
            create_test_database().await,
            SessionSettings::default(),
            ServerOptions {
                agents,
                ..ServerOptions::default()
            },
        )
        .await
    }

    /// A second server and worker on the same database, with these `[agents]` settings.
    pub async fn second_server_with_agents(&self, agents: Agents) -> Self {
        let options = ServerOptions {
            agents,
            ..self.options.clone()
        };
        let session = (*self.store.session()).clone();
        Self::start_on(self.url.clone(), session, options).await
    }

    /// An app whose page needs no sign-in, as that of `anneal dev`, and whose server calls these
    /// models.
    pub async fn with_open_page(settings: (Providers, Models), default: &str) -> Self {
        let (session, options) =
            ServerOptions::with_models(settings, default, &ModelAccess::default());
        let web = WebSettings {
            enabled: Some(true),
            ..WebSettings::default()
        };
        let options = ServerOptions { web, ..options };
        Self::start_on(create_test_database().await, session, options).await
    }

    /// An app whose callers need a credential, and whose page has these settings.
    pub async fn with_page(auth: AuthSettings, web: WebSettings) -> Self {
        let options = ServerOptions {
            auth,
            web,
            ..ServerOptions::default()
        };
        let database = create_test_database().await;
        Self::start_on(database, SessionSettings::default(), options).await
    }

    /// An app whose callers need a credential. The ports in the addresses are replaced by free
    /// ones.
    pub async fn with_auth(server: ServerSettings, auth: AuthSettings) -> Self {
        let options = ServerOptions {
            server,
            auth,
            ..ServerOptions::default()
        };
        Self::start_on(
            create_test_database().await,
            SessionSettings::default(),
            options,
        )
        .await
    }

    /// An app with these limits whose callers need an API key.
    pub async fn with_keys_and_limits(limits: LimitSettings) -> Self {
        let auth = AuthSettings {
            api_keys: true,
            ..AuthSettings::default()
        };
        let options = ServerOptions {
            limits,
            auth,
            ..ServerOptions::default()
        };
        Self::start_on(
            create_test_database().await,
            SessionSettings::default(),
            options,
        )
        .await
    }

    /// An app with these limits whose callers need no credential.
    pub async fn with_limits(limits: LimitSettings) -> Self {
        Self::start_on(
            create_test_database().await,
            SessionSettings::default(),
            ServerOptions {
                limits,
                ..ServerOptions::default()
            },
        )
        .await
    }

    /// An app that connects to the database through a pooler at this URL.
    pub async fn behind_pooler(url: &str, pooling: Pooling) -> Self {
        Self::start_on(
            url.to_owned(),
            SessionSettings::default(),
            ServerOptions {
                pooling,
                ..ServerOptions::default()
            },
        )
        .await
    }

    /// An app on an existing database.
    pub async fn on_database(url: &str) -> Self {
        Self::start_on(
            url.to_owned(),
            SessionSettings::default(),
            ServerOptions::default(),
        )
        .await
    }

    /// An app whose server calls these models. `default` answers turns that name no model.
    pub async fn with_models(settings: (Providers, Models), default: &str) -> Self {
        Self::with_models_and_call_limits(settings, default, ModelAccess::default()).await
    }

    /// An app whose server calls these models. Turns that name no model try those of the list.
    pub async fn with_models_in_order(settings: (Providers, Models), list: &[&str]) -> Self {
        let names: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
        let list = ModelList::try_from(names).expect("the settings are valid");
        let (session, options) =
            ServerOptions::with_models(settings, list, &ModelAccess::default());
        Self::start_on(create_test_database().await, session, options).await
    }

    /// An app whose server calls these models within these call limits. The models in `limits` are
    /// replaced.
    pub async fn with_models_and_call_limits(
        settings: (Providers, Models),
        default: &str,
        limits: ModelAccess,
    ) -> Self {
        Self::with_models_on(create_test_database().await, settings, default, limits).await
    }

    /// An app with these limits, whose server calls these models.
    pub async fn with_models_and_limits(
        settings: (Providers, Models),
        default: &str,
        limits: LimitSettings,
    ) -> Self {
        let (session, options) =
            ServerOptions::with_models(settings, default, &ModelAccess::default());
        let options = ServerOptions { limits, ..options };
        Self::start_on(create_test_database().await, session, options).await
    }

    /// An app on this database whose server calls these models within these call limits.
    pub async fn with_models_on(
        url: String,
        settings: (Providers, Models),
        default: &str,
        limits: ModelAccess,
    ) -> Self {
        let (session, options) = ServerOptions::with_models(settings, default, &limits);
        Self::start_on(url, session, options).await
    }

    /// An app whose server calls these models and whose callers need an API key.
    pub async fn with_models_and_keys(settings: (Providers, Models), default: &str) -> Self {
        Self::with_models_keys_and_limits(settings, default, LimitSettings::default()).await
    }

    /// An app with these limits, whose server calls these models and whose callers need an API key.
    pub async fn with_models_keys_and_limits(
        settings: (Providers, Models),
        default: &str,
        limits: LimitSettings,
    ) -> Self {
        let (session, options) =
            ServerOptions::with_models(settings, default, &ModelAccess::default());
        let options = ServerOptions { limits, ..options };
        let auth = AuthSettings {
            api_keys: true,
            ..AuthSettings::default()
        };
        Self::start_on(
            create_test_database().await,
            session,
            ServerOptions { auth, ..options },
        )
        .await
    }

    async fn start_on(url: String, session: SessionSettings, options: ServerOptions) -> Self {
        let settings = StoreSettings {
            url: url.clone(),
            pooling: options.pooling,
            // Longer than the default: a new pool has no open connection yet, and many callers may
            // arrive at once.
            pool_wait_ms: 6_000,
            ..StoreSettings::default()
        };
        let mut append = AppendSettings {
            grouping: append_grouping(),
            ..AppendSettings::default()
        };
        if options.counted_by_workers {
            append.count_bytes = 0;
        }
        let store =
            Store::new(settings, append, session).expect("the test's database URL is valid");
        let mut server = ServerSettings {
            drain_delay_ms: 0,
            ..options.server.clone()
        };
        server.grpc_address.set_port(0);
        server.http_address.set_port(0);
        let stop = CancellationToken::new();
        let (open, opened) = oneshot::channel();
        let metrics = watchdog::metrics();
        tokio::spawn({
            let (store, stop) = (store.clone(), stop.clone());
            let ServerOptions {
                access,
                chat,
                agents,
                limits,
                auth,
                web,
                summaries_by_a_model,
                ..
            } = options.clone();
            let current = CurrentSettings::new(ReloadableSettings {
                models: access,
                chat,
                agents,
                // Tests give workers this model.
                summary_model: SUMMARY_MODEL.to_owned(),
                limits,
                builtin_checkpoint_tokens: (!summaries_by_a_model)
                    .then(|| SummarizerSettings::default().checkpoint_tokens),
            });
            let setup = Setup {
                server,
                auth,
                web,
                current,
            };
            async move {
                serve(store, setup, metrics, open, stop)
                    .await
                    .expect("the server runs");
            }
        });
        let addresses = opened.await.expect("the server opens its ports");
        let channel = Channel::from_shared(format!("http://{}", addresses.grpc))
            .expect("a valid address")
            .connect_lazy();
        let worker = Worker::new(
            store.clone(),
            Arc::new(Extractive),
            WorkerSettings::default(),
            SummarizerSettings::default(),
        );
        Self {
            url,
            store,
            addresses,
            worker,
            channel,
            options,
            _watchdog: Watchdog,
            _stop: stop.drop_guard(),
        }
    }

    /// Stops the app and deletes its database. Tests that create many apps would otherwise fill the
    /// disk.
    pub async fn drop_database(self) {
        let (server, name) = self
            .url
            .rsplit_once('/')
            .expect("a test's URL ends with its database");
        let (admin, drop_database) = (
            format!("{server}/postgres"),
            format!("drop database \"{name}\" with (force)"),
        );
        let mut db = PgConnection::connect(&admin)
            .await
            .expect("the test cluster answers");
        sqlx::query(sqlx::AssertSqlSafe(drop_database))
            .execute(&mut db)
            .await
            .expect("the test's database is deleted");
    }

    /// Runs due jobs until none is left. Returns the number of jobs that ran.
    pub async fn run_jobs_until_idle(&self) -> usize {
        self.worker.run_until_idle().await
    }

    /// Lets the worker make steps of erasures until none is left or none can go on.
    pub async fn run_erasures(&self) {
        let stepped = self.worker.run_erasures().await;
        stepped.expect("the database answers");
    }

    /// Lets the worker make a round of retention with these settings.
    pub async fn run_retention(&self, settings: &RetentionSettings) {
        self.worker.replace_retention(settings);
        let ran = self.worker.run_retention().await;
        ran.expect("the database answers");
    }

    /// The worker, for tests that let it run on its own.
    pub fn worker(&self) -> Worker {
        self.worker.clone()
    }

    /// A worker of this app with this summarizer.
    pub fn worker_with(&self, summarizer: impl Summarizer + 'static) -> Worker {
        Worker::new(
            self.store.clone(),
            Arc::new(summarizer),
            WorkerSettings::default(),
            SummarizerSettings::default(),
        )
    }

    /// A client of ConversationService.
    pub fn conversations(&self) -> ConversationServiceClient<Channel> {
        ConversationServiceClient::new(self.channel.clone())
    }

    /// A client of MessageService.
    pub fn messages(&self) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// A client of ContextService.
    pub fn contexts(&self) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// A client of ErasureService.
    pub fn erasures(&self) -> ErasureServiceClient<Channel> {
        ErasureServiceClient::new(self.channel.clone())
    }

    /// A client of OperatorService.
    pub fn operators(&self) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel.clone())
    }

    /// A client of ChatService.
    pub fn chats(&self) -> ChatServiceClient<Channel> {
        ChatServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// The channel to the server, for health checks, reflection and malformed requests.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A new connection to the database.
    pub async fn db(&self) -> PgConnection {
        PgConnection::connect(&self.url)
            .await
            .expect("the test's database answers")
    }
}
