//! The baseline of all ratios of appends: pgbench makes the bare append, one per transaction, in a
//! schema of its own in the stack's database.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    database::Database, latencies::Latencies, pace::Pace, pgbench_log::parse_transaction,
    stack::BenchStack,
};

/// Number of conversations that pgbench appends to.
const CONVERSATIONS: u64 = 256;
/// The numbers of clients that are tried, to find the best one.
const CLIENTS: [u64; 4] = [8, 16, 32, 64];
/// How long each number of clients is tried.
const TRIED_SECONDS: f64 = 2.0;
/// Time before the measurement of latencies.
const WARM_UP: Duration = Duration::from_secs(1);
/// The shortest run. pgbench accepts only whole seconds, which include the time for connecting.
const LEAST_SECONDS: u64 = 2;
/// The script that creates the tables and the conversations.
const TABLES: &str = include_str!("../sql/bare_tables.sql");
/// The script of one transaction: a bare append.
const TRANSACTION: &str = include_str!("../sql/bare_append.pgbench.sql");

/// pgbench with a number of clients.
pub(crate) struct Pgbench {
    database: Database,
    folder: PathBuf,
    clients: u64,
}

impl Pgbench {
    /// Creates the tables and finds the best number of clients: with it they make the most
    /// appends per second. Prints a line and returns `None`
    /// if there is no pgbench in the PostgreSQL installation or on PATH.
    pub(crate) async fn prepare(stack: &BenchStack, pace: Pace) -> anyhow::Result<Option<Self>> {
        let database = stack.database()?;
        if database.program("pgbench").is_none() {
            println!(
                "There is no pgbench beside PostgreSQL's programs or on PATH (Debian: postgresql, postgresql-contrib). \
                 So there is no baseline, and targets that need it have no verdict."
            );
            return Ok(None);
        }
        database
            .run_with(TABLES, &[("conversations", &CONVERSATIONS.to_string())])
            .await?;
        let folder = stack.folder().join("pgbench");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("append.sql"), TRANSACTION)?;
        let pgbench = Self {
            database,
            folder,
            clients: CLIENTS[0],
        };
        let (mut best, mut best_rate) = (CLIENTS[0], 0.0);
        for clients in CLIENTS {
            let pgbench = pgbench.with_clients(clients);
            let rate = pgbench.rate(pace.seconds(TRIED_SECONDS)).await?;
            if rate > best_rate {
                (best, best_rate) = (clients, rate);
            }
        }
        Ok(Some(pgbench.with_clients(best)))
    }

    /// The same with another number of clients.
    pub(crate) fn with_clients(&self, clients: u64) -> Self {
        Self {
            database: self.database.clone(),
            folder: self.folder.clone(),
            clients,
        }
    }

    /// What a figure calls this baseline.
    pub(crate) fn name(&self) -> String {
        let plural = if self.clients == 1 { "" } else { "s" };
        format!("bare append, {} client{plural}", self.clients)
    }

    /// Appends per second, with all clients as fast as they can.
    pub(crate) async fn rate(&self, time: Duration) -> anyhow::Result<f64> {
        self.run(time, &[]).await
    }

    /// Latencies of appends: as fast as the clients can, or at a rate, where a latency begins when
    /// its append is due.
    pub(crate) async fn latencies(
        &self,
        rate: Option<f64>,
        time: Duration,
    ) -> anyhow::Result<Latencies> {
        let logs = self.folder.join("log");
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir_all(&logs)?;
        let prefix = format!("--log-prefix={}", logs.join("transactions").display());
        let mut options = vec!["--log".to_owned(), prefix];
        options.extend(rate.map(|rate| format!("--rate={rate}")));
        self.run(time + WARM_UP, &options).await?;
        read_logs(&logs)
    }

    /// Runs pgbench for this time. Returns the transactions per second.
    async fn run(&self, time: Duration, options: &[String]) -> anyhow::Result<f64> {
        let clients = self.clients;
        let mut command = self
            .database
            .program("pgbench")
            .context("pgbench was there a moment ago")?;
        command.args([
            "--no-vacuum",
            "--protocol=prepared",
            "--jobs=2",
            "--file=append.sql",
        ]);
        command
            .arg(format!("--client={clients}"))
            .arg(format!("--time={}", time.as_secs().max(LEAST_SECONDS)));
        command
            .arg(format!("--define=clients={clients}"))
            .arg(format!("--define=conversations={CONVERSATIONS}"));
        command.args(options).current_dir(&self.folder);
        let done = command.output().await?;
        let (output, errors) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        let failed = output
            .lines()
            .find(|line| line.starts_with("number of failed transactions: "));
        let succeeded = done.status.success() && failed.is_none_or(|line| line.contains(": 0 "));
        anyhow::ensure!(succeeded, "pgbench failed: {errors}{output}");
        rate(&output).with_context(|| format!("pgbench printed no rate: {output}"))
    }
}

/// The rate in `tps = 12345.678 (without initial connection time)`; 0 if no transaction was
/// processed, because not all clients were connected in time.
fn rate(output: &str) -> Option<f64> {
    if output.contains("\nnumber of transactions actually processed: 0\n") {
        return Some(0.0);
    }
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Reads all transactions from these logs, except those of the warm-up.
fn read_logs(folder: &Path) -> anyhow::Result<Latencies> {
    let mut transactions = Vec::new();
    for file in fs::read_dir(folder)? {
        for line in fs::read_to_string(file?.path())?.lines() {
            transactions
                .push(parse_transaction(line).with_context(|| format!("pgbench logged {line}"))?);
        }
    }
    let first_end = transactions
        .iter()
        .map(|transaction| transaction.end)
        .min()
        .context("pgbench logged nothing")?;
    let mut latencies = Latencies::default();
    for transaction in transactions
        .iter()
        .filter(|transaction| transaction.end >= first_end + WARM_UP)
    {
        latencies.record(transaction.latency);
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_excludes_connecting_and_is_0_without_transactions() {
        let output = "latency average = 1.3 ms\ninitial connection time = 7.1 ms\ntps = 6066.97 (without initial connection time)\n";
        assert_eq!(rate(output), Some(6066.97));
        assert_eq!(
            rate("duration: 1 s\nnumber of transactions actually processed: 0\n"),
            Some(0.0)
        );
        assert_eq!(rate("pgbench: error\n"), None);
    }
}
