//! Direct access to PostgreSQL, without anneal: runs statements with `psql` and times single
//! statements with `pgbench`.

use std::{path::Path, process::Stdio};

use anneal_local_postgres::{Binaries, LocalPostgres};
use anyhow::Context as _;
use tokio::{io::AsyncWriteExt as _, process::Command};
use uuid::Uuid;

use crate::pgbench_log::parse_transaction;

/// The database of a stack, and the PostgreSQL programs that access it.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    binaries: Binaries,
    port: String,
    password: String,
    name: String,
}

impl Database {
    /// The database that a stack uses, accessed with the programs of the PostgreSQL installation
    /// that runs it.
    pub(crate) fn new(postgres: &LocalPostgres, binaries: Binaries) -> Self {
        Self {
            binaries,
            port: postgres.port().to_string(),
            password: postgres.password().to_owned(),
            name: "postgres".into(),
        }
    }

    /// Another database of the same PostgreSQL.
    pub(crate) fn with_name(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// A command that runs one of PostgreSQL's programs on this database: the installation's own
    /// program if it has one, otherwise the one on PATH. `None` if neither exists.
    pub(crate) fn program(&self, name: &str) -> Option<Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|folder| folder.join(name));
        let mut places = std::iter::once(self.binaries.program(name)).chain(on_path);
        let program = places.find(|program| program.is_file())?;
        Some(self.connected(Command::new(program)))
    }

    /// The command with the variables by which PostgreSQL's clients find this database. Its process
    /// is killed when it is dropped.
    pub(crate) fn connected(&self, mut command: Command) -> Command {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", &self.port)
            .env("PGPASSWORD", &self.password);
        command
            .env("PGUSER", "postgres")
            .env("PGDATABASE", &self.name)
            .kill_on_drop(true);
        command
    }

    /// Runs statements, each in its own transaction. Returns their output: one line per row, with
    /// `|` between columns.
    pub(crate) async fn run(&self, sql: &str) -> anyhow::Result<String> {
        self.run_with(sql, &[]).await
    }

    /// Like `run`, for a script in which `:name` is replaced by a value and `:'name'` by the quoted
    /// value.
    pub(crate) async fn run_with(
        &self,
        sql: &str,
        values: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let mut command = self
            .program("psql")
            .context("there is no psql beside PostgreSQL's programs or on PATH")?;
        command.args(
            values
                .iter()
                .map(|(name, value)| format!("--set={name}={value}")),
        );
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "--set=ON_ERROR_STOP=1",
        ]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut psql = command.spawn().context("psql")?;
        let mut input = psql.stdin.take().context("psql's input")?;
        let (written, ran) = tokio::join!(
            async {
                let written = input.write_all(sql.as_bytes()).await;
                drop(input);
                written
            },
            psql.wait_with_output()
        );
        let ran = ran?;
        anyhow::ensure!(
            ran.status.success(),
            "psql: {}",
            String::from_utf8_lossy(&ran.stderr).trim()
        );
        written?;
        Ok(String::from_utf8(ran.stdout)?.trim_end().to_owned())
    }

    /// Runs a statement and returns the number that it selects.
    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<f64> {
        let output = self.run(sql).await?;
        output
            .parse()
            .with_context(|| format!("{output:?} is not a number: {sql}"))
    }

    /// Runs a statement and returns a name and a number from each row.
    pub(crate) async fn named_numbers(&self, sql: &str) -> anyhow::Result<Vec<(String, f64)>> {
        let output = self.run(sql).await?;
        let rows = output.lines().map(|row| {
            let (name, number) = row
                .split_once('|')
                .with_context(|| format!("{row:?} is not a name and a number: {sql}"))?;
            Ok((
                name.to_owned(),
                number
                    .parse()
                    .with_context(|| format!("{row:?} does not end in a number: {sql}"))?,
            ))
        });
        rows.collect()
    }

    /// Milliseconds of each of `calls` executions of one prepared statement over one connection,
    /// measured by pgbench. `None` if there is no pgbench in the installation or on PATH.
    pub(crate) async fn time_statement(
        &self,
        sql: &str,
        calls: usize,
    ) -> anyhow::Result<Option<Vec<f64>>> {
        let Some(pgbench) = self.program("pgbench") else {
            return Ok(None);
        };
        let folder =
            std::env::temp_dir().join(format!("anneal-bench-bare-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let latencies = run_pgbench_script(pgbench, &folder, sql, calls).await;
        std::fs::remove_dir_all(&folder)?;
        latencies.map(Some)
    }
}

/// Runs the statement with pgbench in an empty folder, and reads the latencies from pgbench's logs.
async fn run_pgbench_script(
    mut command: Command,
    folder: &Path,
    sql: &str,
    calls: usize,
) -> anyhow::Result<Vec<f64>> {
    let script = folder.join("statement.sql");
    std::fs::write(&script, sql)?;
    command
        .args(["--protocol=prepared", "--client=1", "--no-vacuum", "--log"])
        .current_dir(folder);
    command
        .arg(format!("--transactions={calls}"))
        .arg("--file")
        .arg(script);
    let ran = command.output().await?;
    anyhow::ensure!(
        ran.status.success(),
        "pgbench: {}",
        String::from_utf8_lossy(&ran.stderr).trim()
    );
    let mut latencies = Vec::with_capacity(calls);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("pgbench_log")
        {
            let log = std::fs::read_to_string(entry.path())?;
            latencies.extend(
                log.lines()
                    .filter_map(parse_transaction)
                    .map(|transaction| transaction.latency.as_secs_f64() * 1_000.0),
            );
        }
    }
    anyhow::ensure!(
        latencies.len() == calls,
        "pgbench logged {} of {calls} calls",
        latencies.len()
    );
    Ok(latencies)
}
