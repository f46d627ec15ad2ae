//! A house for one test: a database of its own, a server on a port of its own, a worker that is stepped by hand.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anneal_core::{
    model::Models,
    policy::{PolicyOverrides, Session},
};
use anneal_llm::{
    Extractive, ModelAccess, Summarizer,
    provider::{CallableModels, Providers},
};
use anneal_local_postgres::{Binaries, Durability, LocalPostgres, Settings};
use anneal_proto::v1::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use anneal_server::{
    Addresses, Agents, ApplicationSettings, AuthSettings, ChatSettings, LimitSettings, ServerSettings, Setup, serve,
};
use anneal_store::{AppendSettings, Grouping, Migrations, Pooling, Store, StoreSettings, create_database};
use anneal_worker::{SummarizerSettings, Worker, WorkerSettings};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use uuid::Uuid;

use crate::{
    Talk, assistant, call, pb, prose, result, user,
    watchdog::{self, Watchdog},
};

/// How long summaries may be.
pub type Lengths = SummarizerSettings;

/// Everything that a test needs, in this process; gone when dropped.
pub struct House {
    /// The database's URL, for looking at rows.
    pub url: String,
    /// The store that server and worker use.
    pub store: Store,
    /// Where the server listens.
    pub addresses: Addresses,
    worker: Worker,
    channel: Channel,
    calling: Calling,
    _watchdog: Watchdog,
    _stop: DropGuard,
}

/// What the server may call, and how it treats applications.
#[derive(Clone, Default)]
struct Calling {
    access: Arc<ModelAccess>,
    applications: ApplicationSettings,
    server: ServerSettings,
    limits: LimitSettings,
    auth: AuthSettings,
    pooling: Pooling,
}

impl Calling {
    /// A server that calls these models within these limits, and what sessions know of them.
    fn of((providers, models): (Providers, Models), default: &str, limits: &ModelAccess) -> (Session, Self) {
        let callable = CallableModels::new(&providers, &models).expect("these settings can work");
        let access = Arc::new(ModelAccess { models: callable, ..*limits });
        let chat = ChatSettings { model: default.to_owned() };
        let applications = ApplicationSettings { chat, ..ApplicationSettings::default() };
        let session = Session::new(PolicyOverrides::default(), models);
        (session, Self { access, applications, ..Self::default() })
    }
}

/// PostgreSQL's programs: those in `ANNEAL_PG_BIN`, or the installed ones.
pub fn postgres_binaries() -> Binaries {
    let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
    Binaries::find(wanted.as_deref()).expect("tests need PostgreSQL 15 or newer: scripts/postgres.sh installs it")
}

/// Whether appends share transactions in these tests, as processes of the binary read it: `ANNEAL_APPEND_GROUPING=off` runs
/// every test with appends that share nothing.
pub fn grouping() -> Grouping {
    let off = std::env::var("ANNEAL_APPEND_GROUPING").is_ok_and(|grouping| grouping == "off");
    if off { Grouping::Off } else { Grouping::On }
}

/// The test cluster of this PostgreSQL version, shared by all test processes: the first comer starts it.
async fn cluster() -> LocalPostgres {
    let binaries = postgres_binaries();
    let base = std::env::temp_dir().join("anneal-tests");
    let mut settings = Settings::new(base.join(format!("postgres-{}", binaries.version().major)), binaries);
    settings.durability = Durability::Test;
    settings.extra = vec![("max_connections".into(), "400".into())];
    LocalPostgres::start(settings).await.expect("the test cluster starts")
}

/// A migrated database of the test's own: a copy of a template, which the first comer makes.
async fn database() -> String {
    let cluster = cluster().await;
    let admin = cluster.url("postgres");
    let template = template(&cluster, &admin).await;
    let name = format!("test_{}", Uuid::new_v4().simple());
    create_database(&admin, &name, Some(&template)).await.expect("a database from the template");
    cluster.url(&name)
}

/// A database of the test's own without a schema.
pub async fn empty_database() -> String {
    let cluster = cluster().await;
    let name = format!("empty_{}", Uuid::new_v4().simple());
    create_database(&cluster.url("postgres"), &name, None).await.expect("an empty database");
    cluster.url(&name)
}

/// The template's name says which migrations are in it, so that a changed schema makes a new one.
async fn template(cluster: &LocalPostgres, admin: &str) -> String {
    let mut db = PgConnection::connect(admin).await.expect("the test cluster answers");
    let all = Migrations::all();
    let sql: String = all.iter().map(|migration| migration.sql.as_str()).collect();
    let digest = anneal_core::digest::of_content(&sql);
    let name = format!("template_{:016x}", u64::from_be_bytes(digest[..8].try_into().expect("eight bytes")));
    sqlx::query("select pg_advisory_lock(7)").execute(&mut db).await.expect("locks");
    let made: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1 and datistemplate)")
        .bind(&name)
        .fetch_one(&mut db)
        .await
        .expect("asks");
    if !made {
        create_database(admin, &name, None).await.expect("the template is made");
        let mut migrations = Migrations::connect(&cluster.url(&name)).await.expect("connects");
        migrations.run(Duration::from_secs(30)).await.expect("migrates");
        drop(migrations);
        let mark = format!("alter database {name} is_template true");
        sqlx::query(sqlx::AssertSqlSafe(mark)).execute(&mut db).await.expect("marks the template");
    }
    db.close().await.expect("closes");
    name
}

impl House {
    /// A house with the default settings.
    pub async fn start() -> Self {
        Self::with(Session::default()).await
    }

    /// A house whose `[session]` settings are these.
    pub async fn with(session: Session) -> Self {
        Self::on(database().await, session, Calling::default()).await
    }

    /// A second house on the same database: another server process, another worker.
    pub async fn beside(&self) -> Self {
        Self::on(self.url.clone(), self.store.session().clone(), self.calling.clone()).await
    }

    /// The same by way of this URL, which leads to the same database.
    pub async fn beside_at(&self, url: &str) -> Self {
        Self::on(url.to_owned(), self.store.session().clone(), self.calling.clone()).await
    }

    /// A house whose server has settings of these agents.
    pub async fn with_agents(agents: Agents) -> Self {
        let applications = ApplicationSettings { agents, ..ApplicationSettings::default() };
        Self::on(database().await, Session::default(), Calling { applications, ..Calling::default() }).await
    }

    /// A second house on the same database, whose server has settings of these agents instead.
    pub async fn beside_with_agents(&self, agents: Agents) -> Self {
        let applications = ApplicationSettings { agents, ..self.calling.applications.clone() };
        let calling = Calling { applications, ..self.calling.clone() };
        Self::on(self.url.clone(), self.store.session().clone(), calling).await
    }

    /// A house whose callers need a credential, with these addresses and limits (ports are the system's choice).
    pub async fn guarded(server: ServerSettings, auth: AuthSettings) -> Self {
        let calling = Calling { server, auth, ..Calling::default() };
        Self::on(database().await, Session::default(), calling).await
    }

    /// A house whose callers need an API key and may take so much of its server.
    pub async fn limited(limits: LimitSettings) -> Self {
        let auth = AuthSettings { api_keys: true, ..AuthSettings::default() };
        let calling = Calling { limits, auth, ..Calling::default() };
        Self::on(database().await, Session::default(), calling).await
    }

    /// A house whose server lets callers take so much, and asks nobody who they are.
    pub async fn within(limits: LimitSettings) -> Self {
        Self::on(database().await, Session::default(), Calling { limits, ..Calling::default() }).await
    }

    /// A house that reaches this database by way of a pooler.
    pub async fn pooled(url: &str, pooling: Pooling) -> Self {
        Self::on(url.to_owned(), Session::default(), Calling { pooling, ..Calling::default() }).await
    }

    /// A house on a database of the test's own.
    pub async fn at(url: &str) -> Self {
        Self::on(url.to_owned(), Session::default(), Calling::default()).await
    }

    /// A house whose server calls these models; the named one answers where nobody names another.
    pub async fn calling(settings: (Providers, Models), default: &str) -> Self {
        Self::calling_within(settings, default, ModelAccess::default()).await
    }

    /// The same within these limits; the models are put in here.
    pub async fn calling_within(settings: (Providers, Models), default: &str, limits: ModelAccess) -> Self {
        Self::calling_on(database().await, settings, default, limits).await
    }

    /// The same on this database.
    pub async fn calling_on(url: String, settings: (Providers, Models), default: &str, limits: ModelAccess) -> Self {
        let (session, calling) = Calling::of(settings, default, &limits);
        Self::on(url, session, calling).await
    }

    /// A house whose server calls these models, and whose callers need an API key.
    pub async fn calling_guarded(settings: (Providers, Models), default: &str) -> Self {
        Self::calling_limited(settings, default, LimitSettings::default()).await
    }

    /// The same, and callers may take so much of its server.
    pub async fn calling_limited(settings: (Providers, Models), default: &str, limits: LimitSettings) -> Self {
        let (session, calling) = Calling::of(settings, default, &ModelAccess::default());
        let calling = Calling { limits, ..calling };
        let auth = AuthSettings { api_keys: true, ..AuthSettings::default() };
        Self::on(database().await, session, Calling { auth, ..calling }).await
    }

    async fn on(url: String, session: Session, calling: Calling) -> Self {
        let settings = StoreSettings {
            url: url.clone(),
            pooling: calling.pooling,
            // Many callers at once meet pools that have opened no connection yet.
            pool_wait_ms: 6_000,
            ..StoreSettings::default()
        };
        let append = AppendSettings { grouping: grouping(), ..AppendSettings::default() };
        let store = Store::new(settings, append, session).expect("the test's database URL is good");
        let mut server = ServerSettings { drain_delay_ms: 0, ..calling.server.clone() };
        server.grpc_address.set_port(0);
        server.http_address.set_port(0);
        let stop = CancellationToken::new();
        let (open, opened) = oneshot::channel();
        let metrics = watchdog::figures();
        tokio::spawn({
            let (store, stop) = (store.clone(), stop.clone());
            let Calling { access, applications, limits, auth, .. } = calling.clone();
            let setup = Setup { server, limits, auth, models: access, applications };
            async move { serve(store, setup, metrics, open, stop).await.expect("serves") }
        });
        let addresses = opened.await.expect("the server opens its ports");
        let channel = Channel::from_shared(format!("http://{}", addresses.grpc)).expect("an address").connect_lazy();
        let worker = Worker::new(store.clone(), Arc::new(Extractive), WorkerSettings::default(), Lengths::default());
        Self { url, store, addresses, worker, channel, calling, _watchdog: Watchdog, _stop: stop.drop_guard() }
    }

    /// Removes the house and its database: for tests that build many, each of which takes the room of a database.
    pub async fn demolish(self) {
        let (server, name) = self.url.rsplit_once('/').expect("a test's URL ends with its database");
        let (admin, drop_it) = (format!("{server}/postgres"), format!("drop database \"{name}\" with (force)"));
        let mut db = PgConnection::connect(&admin).await.expect("the test cluster answers");
        sqlx::query(sqlx::AssertSqlSafe(drop_it)).execute(&mut db).await.expect("drops the test's database");
    }

    /// Runs due jobs until none is left; returns how many ran.
    pub async fn run_jobs_until_idle(&self) -> usize {
        self.worker.run_until_idle().await
    }

    /// The worker, for tests that let it run by itself.
    pub fn worker(&self) -> Worker {
        self.worker.clone()
    }

    /// A worker of this house with a summariser of the test's own.
    pub fn worker_with(&self, summarizer: impl Summarizer + 'static) -> Worker {
        Worker::new(self.store.clone(), Arc::new(summarizer), WorkerSettings::default(), Lengths::default())
    }

    /// An empty conversation.
    pub async fn conversation(&self) -> Talk<'_> {
        self.conversation_with(pb::CreateConversationRequest::default()).await
    }

    /// An empty conversation with these overrides of the settings.
    pub async fn conversation_under(&self, policy: pb::Policy) -> Talk<'_> {
        self.conversation_with(pb::CreateConversationRequest { policy: Some(policy), ..Default::default() }).await
    }

    /// A conversation as asked for.
    pub async fn conversation_with(&self, ask: pb::CreateConversationRequest) -> Talk<'_> {
        let made = self.conversations().create_conversation(ask).await.expect("creates").into_inner();
        Talk::new(self, made.conversation_id)
    }

    /// A conversation of twelve turns, all counted, each with a tool's result of about 1,100 tokens.
    pub async fn conversation_with_tools(&self) -> Talk<'_> {
        let talk = self.conversation_under(pb::Policy { max_message_count: Some(0), ..Default::default() }).await;
        for n in 0..12 {
            let id = format!("c{n}");
            let (asked, found) = (user(&prose(n * 60, 2)), result(&id, &prose(n * 60, 50)));
            talk.append_all(vec![asked, call(&id, "{}"), found, assistant("Found.")]).await;
        }
        self.run_jobs_until_idle().await;
        talk
    }

    /// ConversationService.
    pub fn conversations(&self) -> ConversationServiceClient<Channel> {
        ConversationServiceClient::new(self.channel.clone())
    }

    /// MessageService.
    pub fn messages(&self) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// ContextService.
    pub fn contexts(&self) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// OperatorService.
    pub fn operators(&self) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel.clone())
    }

    /// ChatService.
    pub fn chats(&self) -> ChatServiceClient<Channel> {
        ChatServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// The raw channel, for health, reflection and broken requests.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A connection to the database.
    pub async fn db(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("the test's database answers")
    }
}
