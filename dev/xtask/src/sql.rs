//! Updates sqlx's offline query data: what its macros read from a migrated database. It is stored
//! in `.sqlx/`, so that a build needs no database.
//!
//! Does the same as `cargo sqlx prepare`: sqlx's macros write one file per statement to
//! `SQLX_OFFLINE_DIR` if they are expanded with `DATABASE_URL` set and `SQLX_OFFLINE` false. They
//! are only expanded when the crate is compiled; therefore one of its files is touched.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anneal_local_postgres::{Binaries, Durability, LocalPostgres, Settings, StopOnDrop};
use anyhow::{Context, Result, bail};
use clap::Args;
use sqlx::Connection;
use sqlx::migrate::Migrator;

use crate::cargo::cargo;

/// The only crate whose statements sqlx's macros check.
const PACKAGE: &str = "anneal-store";
/// The folder of the query data.
const FOLDER: &str = ".sqlx";

// The arguments of `cargo xtask sql`.
#[derive(Args)]
pub(crate) struct Ask {
    /// Changes nothing. Fails if .sqlx/ does not match the statements and migrations.
    #[arg(long)]
    pub(crate) check: bool,
}

/// The contents of the query files, by file name.
type QueryData = BTreeMap<String, String>;

/// Updates `.sqlx/`, or with `check` reports what is out of date.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    if !root.join("store/Cargo.toml").exists() {
        eprintln!("sql: there is no store/, nothing to do");
        return Ok(ExitCode::SUCCESS);
    }
    let touched = TouchedFile::touch(root.join("store/src/lib.rs"))?;
    let fresh = describe(root)?;
    let stored = read(&root.join(FOLDER))?;
    let changes = changes(&stored, &fresh);
    if changes.is_empty() {
        touched.restore()?;
    }
    if !ask.check {
        replace(&root.join(FOLDER), &fresh)?;
        eprintln!(
            "sql: {} statements described in {FOLDER}/, {} files changed",
            fresh.len(),
            changes.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    for change in &changes {
        eprintln!("{FOLDER}/{change}");
    }
    if changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("sql: {FOLDER}/ is not current; run `cargo xtask sql` and commit it");
    Ok(ExitCode::FAILURE)
}

/// Compiles the store against a migrated database and returns the data that its macros wrote.
fn describe(root: &Path) -> Result<QueryData> {
    let database = Database::start()?;
    migrate(&root.join("migrations"), &database.url)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let status = cargo(root)
        .args([
            "check",
            "--quiet",
            "--locked",
            "--all-targets",
            "--package",
            PACKAGE,
        ])
        .env("DATABASE_URL", &database.url)
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", folder.path())
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("{PACKAGE} does not compile against the migrated database");
    }
    read(folder.path())
}

/// The empty database that is migrated and that the macros read.
struct Database {
    url: String,
    /// Stops the server, if one was started, before its folder is deleted.
    _server: Option<(StopOnDrop, tempfile::TempDir)>,
}

impl Database {
    /// Uses the database in `DATABASE_URL`, which must be empty; otherwise starts a private
    /// PostgreSQL.
    fn start() -> Result<Self> {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            return Ok(Self { url, _server: None });
        }
        let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let mut settings = Settings::new(
            folder.path().join("postgres"),
            Binaries::find(wanted.as_deref())?,
        );
        settings.durability = Durability::Test;
        let server = LocalPostgres::start_blocking(&settings)?;
        Ok(Self {
            url: server.url("postgres"),
            _server: Some((server.stop_on_drop(), folder)),
        })
    }
}

/// Applies migrations/*.sql in order.
fn migrate(migrations: &Path, url: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let migrator = Migrator::new(migrations)
            .await
            .context("could not read migrations/")?;
        let mut connection = sqlx::PgConnection::connect(url)
            .await
            .context("could not reach the database")?;
        migrator
            .run(&mut connection)
            .await
            .context("could not apply migrations/")?;
        Ok(connection.close().await?)
    })
}

/// A file whose modification time is set to now, so that cargo compiles its crate again.
struct TouchedFile {
    path: PathBuf,
    before: SystemTime,
}

impl TouchedFile {
    fn touch(path: PathBuf) -> Result<Self> {
        let before = fs::metadata(&path)
            .and_then(|file| file.modified())
            .with_context(|| path.display().to_string())?;
        set_modified(&path, SystemTime::now())?;
        Ok(Self { path, before })
    }

    /// Restores the file's old modification time, so that earlier build results remain valid. Must
    /// not be called if the query data changed, because cargo does not notice such a change.
    fn restore(self) -> Result<()> {
        set_modified(&self.path, self.before)
    }
}

fn set_modified(path: &Path, time: SystemTime) -> Result<()> {
    let file = File::options()
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    Ok(file.set_modified(time)?)
}

/// The query files of a folder; empty if the folder does not exist.
fn read(folder: &Path) -> Result<QueryData> {
    if !folder.exists() {
        return Ok(QueryData::new());
    }
    let mut data = QueryData::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("query-") {
            data.insert(
                name,
                fs::read_to_string(&path).with_context(|| path.display().to_string())?,
            );
        }
    }
    Ok(data)
}

/// One line for each file that is missing, out of date or no longer needed.
fn changes(stored: &QueryData, fresh: &QueryData) -> Vec<String> {
    let missing = fresh
        .keys()
        .filter(|name| !stored.contains_key(*name))
        .map(|name| format!("{name}: missing"));
    let stale = fresh
        .iter()
        .filter(|(name, data)| stored.get(*name).is_some_and(|stored| stored != *data))
        .map(|(name, _)| format!("{name}: stale"));
    let left_over = stored
        .keys()
        .filter(|name| !fresh.contains_key(*name))
        .map(|name| format!("{name}: left over"));
    missing.chain(stale).chain(left_over).collect()
}

/// Writes new and changed files, deletes those that are no longer needed, and leaves all others
/// unchanged.
fn replace(folder: &Path, fresh: &QueryData) -> Result<()> {
    fs::create_dir_all(folder)?;
    let stored = read(folder)?;
    for name in stored.keys().filter(|name| !fresh.contains_key(*name)) {
        fs::remove_file(folder.join(name))?;
    }
    for (name, data) in fresh
        .iter()
        .filter(|(name, data)| stored.get(*name) != Some(data))
    {
        fs::write(folder.join(name), data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(files: &[(&str, &str)]) -> QueryData {
        files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn changes_list_missing_stale_and_left_over_files() {
        let stored = data(&[
            ("query-a.json", "1"),
            ("query-b.json", "1"),
            ("query-c.json", "1"),
        ]);
        let fresh = data(&[
            ("query-a.json", "1"),
            ("query-b.json", "2"),
            ("query-d.json", "1"),
        ]);
        assert_eq!(
            changes(&stored, &fresh),
            [
                "query-d.json: missing",
                "query-b.json: stale",
                "query-c.json: left over"
            ]
        );
    }

    #[test]
    fn replace_deletes_old_query_files_and_leaves_other_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("query-old.json"), "1").unwrap();
        fs::write(folder.path().join("README.md"), "stored").unwrap();
        let fresh = data(&[("query-new.json", "2")]);
        replace(folder.path(), &fresh).unwrap();
        assert_eq!(read(folder.path()).unwrap(), fresh);
        assert!(folder.path().join("README.md").exists());
    }

    #[test]
    fn a_touched_file_is_newer_until_its_time_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.rs");
        fs::write(&path, "").unwrap();
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        set_modified(&path, SystemTime::UNIX_EPOCH).unwrap();
        let touched = TouchedFile::touch(path.clone()).unwrap();
        assert!(modified() > SystemTime::UNIX_EPOCH);
        touched.restore().unwrap();
        assert_eq!(modified(), SystemTime::UNIX_EPOCH);
    }
}
