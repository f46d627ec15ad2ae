//! Reloads the configuration of a running server or worker: at SIGHUP, and when the settings file
//! or the file of a provider's key changes. `Config::with_reloadable` says which settings are
//! replaced. For the others a warning says that they need a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anneal_llm::{ModelAccess, provider::Model};
use anneal_process::telemetry::LogFilter;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::{
    command::{Process, SettingsArguments},
    config::{self, Config},
    implicit_config,
};

/// Time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Time until a reload that has failed is tried again. Its cause may be a file that is not watched.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Listens for SIGHUP, which would otherwise end the process.
pub(crate) fn listen_for_hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Puts the settings in force, apart from the log's filter. The models are those of the settings,
/// the last argument is the model of the summarizer.
type ReplaceSettings = dyn Fn(&Config, Arc<ModelAccess>, Option<Arc<Model>>) + Send + Sync;

/// Reloads the configuration of one process.
pub(crate) struct Reloader {
    process: Process,
    arguments: SettingsArguments,
    in_force: Arc<Config>,
    /// The settings file, if there was one at the start. It must not disappear.
    settings_file: Option<PathBuf>,
    files: WatchedFiles,
    /// The error of the last reload, if it has failed.
    failure: Option<String>,
    log_filter: LogFilter,
    replace_settings: Box<ReplaceSettings>,
}

impl Reloader {
    /// A reloader of a process that was started with these arguments, and whose settings in force
    /// are `in_force`.
    pub(crate) fn new(
        process: Process,
        arguments: &SettingsArguments,
        in_force: Arc<Config>,
        log_filter: LogFilter,
        replace_settings: impl Fn(&Config, Arc<ModelAccess>, Option<Arc<Model>>) + Send + Sync + 'static,
    ) -> Self {
        let mut files = WatchedFiles::default();
        files.watch(watched_paths(arguments, &in_force));
        Self {
            process,
            arguments: arguments.clone(),
            in_force,
            settings_file: Some(settings_file(arguments)).filter(|file| file.is_file()),
            files,
            failure: None,
            log_filter,
            replace_settings: Box::new(replace_settings),
        }
    }

    /// Reloads at each signal and at each change of a file, until the future is dropped. Tries a
    /// reload that has failed again.
    pub(crate) async fn run(mut self, mut hangups: Signal) {
        loop {
            tokio::select! {
                _ = hangups.recv() => self.failure = None,
                () = self.files.wait_for_change() => self.failure = None,
                () = tokio::time::sleep(RETRY_INTERVAL), if self.failure.is_some() => {}
            }
            self.reload().await;
        }
    }

    /// Reads the whole configuration again and puts in force what can be replaced. If it is
    /// invalid, the settings in force stay.
    async fn reload(&mut self) {
        // Before the files are read, so that a later change is noticed.
        self.files.mark_as_seen();
        let (process, arguments) = (self.process, self.arguments.clone());
        let (in_force, file) = (Arc::clone(&self.in_force), self.settings_file.clone());
        // Reads files, builds HTTP clients and counts the tokens of system prompts.
        let reading = tokio::task::spawn_blocking(move || {
            if let Some(file) = file {
                anyhow::ensure!(
                    file.is_file(),
                    "there is no settings file {} any more",
                    file.display()
                );
            }
            Reloaded::read(process, &arguments, &in_force)
        });
        let read = reading
            .await
            .unwrap_or_else(|_| Err(anyhow::anyhow!("reading it panicked")));
        let applied = read.and_then(|reloaded| self.apply(reloaded));
        let failure = applied.err().map(|error| crate::describe(&error));
        if let Some(error) = &failure
            && self.failure != failure
        {
            warn!("cannot use the new configuration, the settings in force stay: {error}");
        }
        self.failure = failure;
    }

    fn apply(&mut self, reloaded: Reloaded) -> anyhow::Result<()> {
        let Reloaded {
            in_force,
            applied,
            need_restart,
            models,
            model,
        } = reloaded;
        self.log_filter.replace(&in_force.log)?;
        (self.replace_settings)(&in_force, models, model);
        self.in_force = in_force;
        self.files
            .watch(watched_paths(&self.arguments, &self.in_force));
        if !need_restart.is_empty() {
            let settings = need_restart.join(", ");
            warn!(
                settings,
                "these settings have changed and need a restart, their old values stay in force: {settings}"
            );
        }
        let settings = applied.join(", ");
        if applied.is_empty() {
            info!(
                settings,
                "reloaded the configuration: no setting was replaced, the keys of providers were read again"
            );
        } else {
            info!(settings, "reloaded the configuration, replaced: {settings}");
        }
        Ok(())
    }
}

/// A configuration that was read again.
struct Reloaded {
    /// The settings to put in force: the new ones where they can be replaced, else the old ones.
    in_force: Arc<Config>,
    /// The names of the settings that are replaced.
    applied: Vec<String>,
    /// The names of the settings that have changed and cannot be replaced.
    need_restart: Vec<String>,
    models: Arc<ModelAccess>,
    /// The model that writes summaries.
    model: Option<Arc<Model>>,
}

impl Reloaded {
    /// Reads and checks the configuration as the start of the process does.
    fn read(process: Process, arguments: &SettingsArguments, old: &Config) -> anyhow::Result<Self> {
        let new = config::load(arguments)?;
        let models = new.check_for(process)?;
        let model = new.summarizer_model(&models)?;
        let in_force = old.with_reloadable(&new);
        let changed =
            |from: &Config, to: &Config| changed_settings(from, to, sections_without_use(process));
        Ok(Self {
            applied: changed(old, &in_force)?,
            need_restart: changed(&in_force, &new)?,
            in_force: Arc::new(in_force),
            models,
            model,
        })
    }
}

/// The sections that matter only to other processes. Servers need to know who writes summaries, and
/// how long they may be.
const fn sections_without_use(process: Process) -> &'static [&'static str] {
    match process {
        Process::Server => &["worker", "retention"],
        Process::Worker => &["server", "limits", "auth", "chat", "agents"],
    }
}

/// The names of the settings whose values differ, outside of `ignored_sections`.
fn changed_settings(
    from: &Config,
    to: &Config,
    ignored_sections: &[&str],
) -> anyhow::Result<Vec<String>> {
    let (from, to) = (settings(from)?, settings(to)?);
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let is_used = |name: &str| {
        let section = name.split('.').next().unwrap_or_default();
        !ignored_sections.contains(&section)
    };
    Ok(names
        .into_iter()
        .filter(|name| from.get(*name) != to.get(*name) && is_used(name.as_str()))
        .cloned()
        .collect())
}

/// All settings by name, such as `models."gpt-4.1".window_tokens`.
fn settings(config: &Config) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut settings = BTreeMap::new();
    add_settings("", serde_json::to_value(config)?, &mut settings);
    Ok(settings)
}

fn add_settings(path: &str, value: Value, settings: &mut BTreeMap<String, Value>) {
    let Value::Object(fields) = value else {
        settings.insert(path.to_owned(), value);
        return;
    };
    for (key, field) in fields {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = if key.chars().all(is_bare) {
            key
        } else {
            format!("{key:?}")
        };
        let path = if path.is_empty() {
            key
        } else {
            format!("{path}.{key}")
        };
        add_settings(&path, field, settings);
    }
}

/// The settings file, and the files with keys of providers.
fn watched_paths(arguments: &SettingsArguments, config: &Config) -> Vec<PathBuf> {
    let key_files = config
        .providers
        .values()
        .filter_map(|provider| provider.key_file.as_ref().map(PathBuf::from));
    std::iter::once(settings_file(arguments))
        .chain(key_files)
        .collect()
}

/// The settings file, which may not exist if no argument names it.
fn settings_file(arguments: &SettingsArguments) -> PathBuf {
    arguments
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from(implicit_config::FILE))
}

/// The time of a file's last change, and its size. None: the file cannot be found.
type Stamp = Option<(SystemTime, u64)>;

/// Files whose change causes a reload.
#[derive(Default)]
struct WatchedFiles {
    /// The stamps at the last reload.
    seen: BTreeMap<PathBuf, Stamp>,
    /// The stamps at the last check, if they differed from `seen`.
    changed: Option<BTreeMap<PathBuf, Stamp>>,
}

impl WatchedFiles {
    /// Watches these files and no others. A change of a file that was watched before is still
    /// noticed.
    fn watch(&mut self, paths: Vec<PathBuf>) {
        let watch = |path: PathBuf| {
            let seen = self.seen.get(&path).copied();
            let stamp = seen.unwrap_or_else(|| stamp(&path));
            (path, stamp)
        };
        self.seen = paths.into_iter().map(watch).collect();
        self.changed = None;
    }

    /// Treats the present state of the files as known.
    fn mark_as_seen(&mut self) {
        (self.seen, self.changed) = (self.stamps(), None);
    }

    /// Waits until a file has changed and has then stayed the same for one interval, so that no
    /// half-written file is read.
    async fn wait_for_change(&mut self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let stamps = self.stamps();
            if stamps == self.seen {
                self.changed = None;
            } else if self.changed.as_ref() == Some(&stamps) {
                return;
            } else {
                self.changed = Some(stamps);
            }
        }
    }

    /// The present stamps. A file that is missing counts as unchanged: it may be about to be
    /// replaced.
    fn stamps(&self) -> BTreeMap<PathBuf, Stamp> {
        self.seen
            .iter()
            .map(|(path, seen)| (path.clone(), stamp(path).or(*seen)))
            .collect()
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the settings that a change replaces, and of those that need a restart.
    fn outcome_of(change: impl FnOnce(&mut Config)) -> (Vec<String>, Vec<String>) {
        let old = Config::default();
        let mut new = old.clone();
        change(&mut new);
        let in_force = old.with_reloadable(&new);
        let changed = |from: &Config, to: &Config| {
            changed_settings(from, to, sections_without_use(Process::Server)).expect("are JSON")
        };
        (changed(&old, &in_force), changed(&in_force, &new))
    }

    #[test]
    fn a_changed_setting_is_replaced_or_needs_a_restart_and_those_of_other_processes_are_ignored() {
        let (replaced, need_restart) = outcome_of(|config| {
            config.limits.calls_per_second = 7;
            config.limits.content_bytes = 7;
            config.server.grpc_address.set_port(7);
            config.database.read_connections = 7;
            config.worker.poll_ms = 7;
            config.retention.idle_days = 7;
            config.log.filter = "debug".into();
            config.log.format = anneal_process::telemetry::LogFormat::Text;
            config
                .agents
                .insert("a.b".into(), anneal_server::AgentSettings::default());
        });
        assert_eq!(
            replaced,
            [
                "agents.\"a.b\".chat.stop",
                "agents.\"a.b\".chat.tools_file",
                "agents.\"a.b\".model",
                "agents.\"a.b\".system_prompt",
                "limits.calls_per_second",
                "log.filter"
            ]
        );
        assert_eq!(
            need_restart,
            [
                "database.read_connections",
                "limits.content_bytes",
                "log.format",
                "server.grpc_address"
            ]
        );
        assert_eq!(outcome_of(|_| {}), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_file_that_disappears_counts_as_unchanged_and_a_new_one_as_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (present, absent) = (folder.path().join("present"), folder.path().join("absent"));
        fs::write(&present, "1").expect("writes");
        let mut files = WatchedFiles::default();
        files.watch(vec![present.clone(), absent.clone()]);
        fs::remove_file(&present).expect("removes");
        assert_eq!(files.stamps(), files.seen);
        fs::write(&absent, "1").expect("writes");
        assert_ne!(files.stamps(), files.seen);
        files.mark_as_seen();
        assert_eq!(files.stamps(), files.seen);
        fs::write(&present, "22").expect("writes");
        assert_ne!(files.stamps(), files.seen);
    }
}
