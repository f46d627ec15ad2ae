//! The settings: from a TOML file, then the text of `ANNEAL_CONFIG_TOML`, then environment variables
//! of one setting (`ANNEAL_SECTION_KEY`), then arguments. Later sources win.

use std::{path::Path, process::ExitCode, sync::Arc};

use anneal_core::{
    admission::BreakerSettings,
    limits::MESSAGE_BYTES,
    model::Models,
    policy::{PolicyOverrides, SessionSettings},
    tokens::Tokens,
};
use anneal_llm::{
    ModelAccess, TENANT_SHARE_PERCENT,
    provider::{CallableModels, Model, Providers, models_without_cache},
};
use anneal_process::{
    exporter::MetricsSettings,
    telemetry::{self, LogSettings},
    trace_export::TracingSettings,
};
use anneal_server::{
    Agents, AuthSettings, ChatSettings, CurrentSettings, LimitSettings, ReloadableSettings,
    ServerSettings, Setup, WebSettings,
};
use anneal_store::{AppendSettings, Store, StoreSettings};
use anneal_worker::{RetentionSettings, SummarizerSettings, WorkerSettings};
use anyhow::Context as _;
use figment::{Figment, providers::Serialized};
use serde::{Deserialize, Serialize};

use crate::{
    command::{ConfigArguments, Process, SettingsArguments},
    environment::Environment,
    implicit_config, output,
    settings_error::{self, ArgumentSetting},
    toml_settings::TomlSettings,
    url_secrets::{without_password, without_secrets},
};

/// All settings. docs/configuration.md lists them with units.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The database.
    pub(crate) database: StoreSettings,
    /// The batching of appends.
    pub(crate) append: AppendSettings,
    pub(crate) server: ServerSettings,
    /// Limits for callers.
    pub(crate) limits: LimitSettings,
    /// Authentication.
    pub(crate) auth: AuthSettings,
    /// The page.
    pub(crate) web: WebSettings,
    pub(crate) worker: WorkerSettings,
    /// What is deleted after a while.
    pub(crate) retention: RetentionSettings,
    /// The default policy of conversations, which they may override.
    pub(crate) session: PolicyOverrides,
    /// Models that the built-in table lacks or describes differently, by name.
    pub(crate) models: Models,
    /// The providers of models, by name.
    pub(crate) providers: Providers,
    /// Defaults for new conversations, by the agent's name.
    pub(crate) agents: Agents,
    /// The summarizer, and the lengths of summaries.
    pub(crate) summarizer: SummarizerSettings,
    /// Chat turns that the server runs.
    pub(crate) chat: ChatSettings,
    /// The circuit breakers of models.
    pub(crate) breaker: BreakerSettings,
    /// The budgets of tenants.
    pub(crate) budget: BudgetSettings,
    /// Logging.
    pub(crate) log: LogSettings,
    /// Metrics.
    pub(crate) metrics: MetricsSettings,
    /// The export of traces.
    pub(crate) tracing: TracingSettings,
    /// Environment variables of Kubernetes that were ignored.
    #[serde(skip)]
    pub(crate) service_links: Vec<String>,
}

/// Limits of a tenant's model calls.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BudgetSettings {
    /// Tokens that a tenant may use per day (UTC), input and output together; 0: no limit.
    pub(crate) tokens_per_day: Tokens,
    /// Percent of a model's concurrent calls that one tenant may have while other tenants exist.
    pub(crate) tenant_share_percent: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            tokens_per_day: Tokens::ZERO,
            tenant_share_percent: TENANT_SHARE_PERCENT,
        }
    }
}

/// Loads and checks the settings.
pub(crate) fn load(arguments: &SettingsArguments) -> anyhow::Result<Config> {
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut implicit_file = None;
    match &arguments.config {
        Some(file) => {
            anyhow::ensure!(
                file.is_file(),
                "there is no settings file {}",
                file.display()
            );
            figment = figment.merge(TomlSettings::read(file)?);
        }
        None if Path::new(implicit_config::FILE).is_file() => {
            let file = TomlSettings::read(Path::new(implicit_config::FILE))?;
            figment = figment.merge(&file);
            implicit_file = Some(Figment::from(&file));
        }
        None => {}
    }
    let environment = Environment::read()?;
    figment = figment
        .merge(environment.config_toml())
        .merge(environment.settings());
    if let Some(url) = &arguments.database_url {
        figment = figment.merge(ArgumentSetting::new("--database-url", "database.url", url));
    }
    for setting in &arguments.set {
        let (key, value) = setting
            .split_once('=')
            .with_context(|| format!("--set {setting}: not SECTION.KEY=VALUE"))?;
        figment = figment.merge(ArgumentSetting::parse("--set", key, value));
    }
    if let Some(key) = unknown_session_key(&figment) {
        anyhow::bail!(
            "session.{key} is not a setting; the settings are {}",
            PolicyOverrides::KEYS.join(", ")
        );
    }
    let mut config: Config = figment
        .extract()
        .map_err(settings_error::describe)
        .context("the settings cannot be read")?;
    config.service_links = environment.service_links;
    if let Some(implicit_file) = implicit_file {
        implicit_config::check_secrets(&implicit_file, &config.providers, &config.database)?;
        implicit_config::check_trace_headers(&implicit_file, &config.tracing)?;
    }
    config.models.check().context("models")?;
    config.check_ranges()?;
    config.retention.check()?;
    let session_settings = config.session_settings();
    session_settings
        .policy(&PolicyOverrides::default(), None)
        .check(Tokens::ZERO)
        .context("session")?;
    for (name, agent) in &mut config.agents {
        agent
            .chat
            .read_tools()
            .with_context(|| format!("agents.{name:?}: chat.tools_file"))?;
        agent.check(name, &session_settings)?;
    }
    Ok(config)
}

/// The first unknown key of `[session]`. Serde ignores unknown keys there, because stored overrides
/// of conversations use the same type.
fn unknown_session_key(figment: &Figment) -> Option<String> {
    let session = figment.find_value("session").ok()?;
    session
        .as_dict()?
        .keys()
        .find(|key| !PolicyOverrides::KEYS.contains(&key.as_str()))
        .cloned()
}

/// Prints the settings in force, without secrets.
pub(crate) fn show(config: &Config, arguments: &ConfigArguments) -> anyhow::Result<ExitCode> {
    let mut shown = config.clone();
    let session_settings = config.session_settings();
    let policy = session_settings.policy(&PolicyOverrides::default(), None);
    let defaults = PolicyOverrides {
        cache_ttl_seconds: Some(policy.cache_ttl_seconds),
        window_tokens: policy.window_known.then_some(policy.window),
        cache_read_price: Some(policy.prices.cached),
        cache_write_price: Some(policy.prices.write),
        ..PolicyOverrides::default()
    };
    shown.session = session_settings
        .resolved(&PolicyOverrides::default())
        .over(defaults);
    shown.database.url = without_secrets(&shown.database.url);
    shown.tracing.endpoint = without_secrets(&shown.tracing.endpoint);
    for value in shown.tracing.headers.values_mut() {
        "…".clone_into(value);
    }
    for provider in shown.providers.values_mut() {
        provider.proxy = provider.proxy.as_deref().map(without_password);
        provider.url = provider.url.as_deref().map(without_secrets);
    }
    if arguments.json {
        let settings = toml::Value::try_from(&shown)?;
        output::print_json(&serde_json::to_string(&settings)?);
    } else {
        output::print(&toml::to_string(&shown)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// The smallest window of a model that may write summaries: it must hold the instructions, the
/// answer and some text.
const MIN_SUMMARIZER_WINDOW: Tokens = Tokens::new(3_072);
/// Maximum of `worker.summary_concurrency`. Each summary occupies a thread while the model runs.
const MAX_SUMMARY_CONCURRENCY: u32 = 128;

impl Config {
    /// The session settings: the default policy and the models.
    pub(crate) fn session_settings(&self) -> SessionSettings {
        SessionSettings::new(self.session.clone(), self.models.clone())
            .with_unmarked(models_without_cache(&self.providers, &self.models))
    }

    /// The settings of the server, and the models that it may call.
    pub(crate) fn setup(&self, models: Arc<ModelAccess>) -> Setup {
        Setup {
            server: self.server.clone(),
            auth: self.auth.clone(),
            web: self.web.clone(),
            current: CurrentSettings::new(self.reloadable_settings(models)),
        }
    }

    /// The settings of a server that a reload replaces.
    pub(crate) fn reloadable_settings(&self, models: Arc<ModelAccess>) -> ReloadableSettings {
        ReloadableSettings {
            models,
            chat: self.chat.clone(),
            agents: self.agents.clone(),
            summary_model: self.summarizer.model.clone(),
            limits: self.limits.clone(),
            builtin_checkpoint_tokens: self
                .summarizer
                .model
                .is_empty()
                .then_some(self.summarizer.checkpoint_tokens),
        }
    }

    /// These settings with those of `new` that a running process can replace.
    pub(crate) fn with_reloadable(&self, new: &Self) -> Self {
        Self {
            limits: self.limits.with_reloadable(&new.limits),
            session: new.session.clone(),
            models: new.models.clone(),
            providers: new.providers.clone(),
            agents: new.agents.clone(),
            summarizer: new.summarizer.clone(),
            retention: new.retention.clone(),
            chat: new.chat.clone(),
            breaker: new.breaker,
            budget: new.budget,
            log: LogSettings {
                filter: new.log.filter.clone(),
                ..self.log.clone()
            },
            ..self.clone()
        }
    }

    /// Checks the settings as the start of this process does, as far as it needs neither the
    /// database nor its ports. Returns the models. A worker checks nothing that a server does not
    /// check.
    pub(crate) fn check_for(&self, process: Process) -> anyhow::Result<Arc<ModelAccess>> {
        telemetry::check(&self.log, &self.tracing)?;
        let models = self.model_access()?;
        let store = self.create_store()?;
        if matches!(process, Process::Server) {
            anneal_server::check_settings(&self.setup(Arc::clone(&models)), &store)?;
        }
        Ok(models)
    }

    /// The store, which is not connected yet. Checks the settings of the database.
    pub(crate) fn create_store(&self) -> anyhow::Result<Store> {
        self.database_url()?;
        Ok(Store::new(
            self.database.clone(),
            self.append,
            self.session_settings(),
        )?)
    }

    /// The models that this process may call. The error says which setting to change.
    pub(crate) fn model_access(&self) -> anyhow::Result<Arc<ModelAccess>> {
        let models = CallableModels::new(&self.providers, &self.models)?;
        let tokens_per_day =
            (self.budget.tokens_per_day > Tokens::ZERO).then_some(self.budget.tokens_per_day);
        let tenant_share_percent = self.budget.tenant_share_percent;
        let access = Arc::new(ModelAccess {
            models,
            breaker: self.breaker,
            tokens_per_day,
            tenant_share_percent,
        });
        // Servers and workers share one file. Each checks the models of both, also the one that it
        // does not call.
        self.summarizer_model(&access)?;
        for model in self.chat.model.names() {
            find_model("chat.model", model, &access)?;
        }
        Ok(access)
    }

    /// The model that writes summaries; None: the built-in summarizer.
    pub(crate) fn summarizer_model(
        &self,
        access: &ModelAccess,
    ) -> anyhow::Result<Option<Arc<Model>>> {
        let model = find_model("summarizer.model", &self.summarizer.model, access)?;
        if let Some(model) = &model {
            let (window, daily_tokens) = (model.window(), self.budget.tokens_per_day);
            anyhow::ensure!(
                window >= MIN_SUMMARIZER_WINDOW,
                "summarizer.model is {:?}, whose window of {window} tokens is too small for the instructions and a text: \
                 choose a model with {MIN_SUMMARIZER_WINDOW} or more",
                self.summarizer.model
            );
            anyhow::ensure!(
                daily_tokens == Tokens::ZERO || daily_tokens >= window,
                "budget.tokens_per_day is {daily_tokens}, less than one call of {:?} may use: set at least {window}, or 0 \
                 for no limit",
                self.summarizer.model
            );
        }
        Ok(model)
    }

    /// Refuses numbers with which a component could not work, 0 for example.
    fn check_ranges(&self) -> anyhow::Result<()> {
        // Setting, value, maximum.
        let numbers = [
            ("worker.count_batch", self.worker.count_batch, 1_024),
            (
                "worker.count_concurrency",
                self.worker.count_concurrency,
                u32::MAX,
            ),
            (
                "worker.summary_concurrency",
                self.worker.summary_concurrency,
                MAX_SUMMARY_CONCURRENCY,
            ),
            (
                "server.concurrent_watches",
                self.server.concurrent_watches,
                u32::MAX,
            ),
            ("server.watch_poll_ms", self.server.watch_poll_ms, 60_000),
            (
                "server.watch_stall_seconds",
                self.server.watch_stall_seconds,
                86_400,
            ),
            ("limits.receive_seconds", self.limits.receive_seconds, 3_600),
            ("limits.stall_seconds", self.limits.stall_seconds, 86_400),
            (
                "limits.tenant_share_percent",
                self.limits.tenant_share_percent,
                100,
            ),
            (
                "budget.tenant_share_percent",
                self.budget.tenant_share_percent,
                100,
            ),
            ("web.session_minutes", self.web.session_minutes, 1_440),
            ("web.session_hours", self.web.session_hours, 720),
            ("breaker.failures", self.breaker.failures, 1_000_000),
            (
                "breaker.model_failures",
                self.breaker.model_failures,
                1_000_000,
            ),
            (
                "breaker.cooldown_seconds",
                self.breaker.cooldown_seconds,
                3_600,
            ),
        ];
        for (name, number, most) in numbers {
            anyhow::ensure!(
                number >= 1 && number <= most,
                "{name} is {number}; it must be from 1 to {most}"
            );
        }
        let (least, most) = (LimitSettings::MIN_MESSAGE_BYTES, MESSAGE_BYTES as u32);
        let bytes = self.limits.message_bytes;
        anyhow::ensure!(
            (least..=most).contains(&bytes),
            "limits.message_bytes is {bytes}; it must be from {least} to {most}"
        );
        Ok(())
    }

    /// The URL of the database. The error says how to set it.
    pub(crate) fn database_url(&self) -> anyhow::Result<&str> {
        anyhow::ensure!(
            !self.database.url.is_empty(),
            "no database: set ANNEAL_DATABASE_URL, database.url in the settings file, or --database-url \
             (to try anneal without one, run `anneal dev`)"
        );
        Ok(&self.database.url)
    }
}

/// The model that a setting names; None if the setting is empty.
fn find_model(
    setting: &str,
    name: &str,
    access: &ModelAccess,
) -> anyhow::Result<Option<Arc<Model>>> {
    if name.is_empty() {
        return Ok(None);
    }
    let model = access.models.find(name).with_context(|| {
        format!(
            "{setting} is {name:?}, which no provider serves: add [models.{name:?}] with provider = \"…\" to the \
             settings file"
        )
    })?;
    Ok(Some(Arc::clone(model)))
}

#[cfg(test)]
mod tests {
    use figment::Metadata;

    use super::*;

    #[test]
    fn the_default_policy_has_the_values_that_docs_configuration_states() {
        let policy = Config::default()
            .session_settings()
            .policy(&PolicyOverrides::default(), None);
        assert_eq!(policy.token_threshold.to_string(), "2000000");
        assert_eq!(policy.max_message_count, 50);
        assert_eq!(policy.large_message_threshold.get(), 1_000_000);
        assert_eq!(
            (
                policy.keep_recent.to_string().as_str(),
                policy.hot_zone_radius
            ),
            ("5 turns", 5)
        );
    }

    fn of_toml(text: &str) -> Figment {
        let metadata = Metadata::named("a text");
        Figment::from(TomlSettings::new(metadata, text.to_owned()))
    }

    /// The error for these settings on top of the defaults.
    fn error_of(settings: Figment) -> String {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let read: Result<Config, figment::Error> = defaults.merge(settings).extract();
        settings_error::describe(read.expect_err("a setting is invalid")).to_string()
    }

    #[test]
    fn an_error_names_setting_value_and_source_and_no_type_of_rust() {
        let of_argument = |key: &str, value: &str| {
            error_of(Figment::from(ArgumentSetting::parse("--set", key, value)))
        };
        assert_eq!(
            of_argument("worker.poll_ms", "often"),
            "worker.poll_ms is \"often\"; it must be a whole number from 0 to 4294967295 (--set)"
        );
        assert_eq!(
            of_argument("log.format", "xml"),
            "log.format is \"xml\"; it must be json or text (--set)"
        );
        let unknown = of_argument("server.port", "8080");
        assert!(
            unknown.starts_with("server.port is not a setting; there are grpc_address, ")
                && unknown.ends_with(" (--set)"),
            "{unknown}"
        );
        assert_eq!(
            error_of(of_toml("worker = 5")),
            "worker is 5; it must be a section (a text)"
        );
    }

    #[test]
    fn an_error_leaves_out_the_value_of_a_setting_that_may_be_secret() {
        for (text, sentence) in [
            (
                "[tracing]\nheaders = \"authorization=Bearer 4711\"",
                "tracing.headers must be a section (a text)",
            ),
            (
                "[tracing.headers]\nauthorization = 4711",
                "tracing.headers.authorization must be a string (a text)",
            ),
            ("tracing = \"4711\"", "tracing must be a section (a text)"),
            (
                "database = \"postgres://anneal:4711@db\"",
                "database must be a section (a text)",
            ),
            (
                "[database]\nurl = 4711",
                "database.url must be a string (a text)",
            ),
            (
                "[tracing]\nendpoint = 4711",
                "tracing.endpoint must be a string (a text)",
            ),
        ] {
            assert_eq!(error_of(of_toml(text)), sentence, "{text}");
        }
        for text in [
            "providers = \"4711\"",
            "[providers]\np = \"4711\"",
            "[providers.p]\napi = \"sk-4711\"",
            "[providers.p]\napi = \"openai\"\nkey_env = 4711",
        ] {
            let error = error_of(of_toml(text));
            assert!(
                error.starts_with("providers") && !error.contains("4711"),
                "{text}: {error}"
            );
        }
    }
}
