//! What PostgreSQL does by itself: pgbench runs the same append, one per transaction, on a second database of the same
//! cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use crate::{database::Database, house::House, latencies::Latencies, pace::Pace};

/// Conversations that it appends to.
const TALKS: u64 = 256;
/// How many clients are tried: the best number serves as the baseline.
const CLIENTS: [u64; 5] = [8, 16, 32, 64, 128];
/// How long each of them is tried.
const TRIED_SECONDS: f64 = 2.0;
/// What comes first of a run by schedule, and is not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// pgbench takes whole seconds, and connecting is part of them.
const LEAST_SECONDS: u64 = 2;
const TRANSACTION: &str = include_str!("../sql/append.pgbench.sql");
const CONVERSATIONS: &str = include_str!("../sql/pgbench_talks.sql");

/// pgbench with its own database, at its best number of clients.
pub(crate) struct Pgbench {
    database: Database,
    folder: PathBuf,
    clients: u64,
}

impl Pgbench {
    /// Makes its database and finds its best number of clients. None, and a line that says so, where this installation of
    /// PostgreSQL has no pgbench.
    pub(crate) async fn prepare(house: &House, pace: Pace) -> anyhow::Result<Option<Self>> {
        if house.database()?.program("pgbench").is_none() {
            println!(
                "There is no pgbench beside PostgreSQL's programs or on PATH (Debian: postgresql, postgresql-contrib): \
                 no baseline, and no verdict on what is held against it."
            );
            return Ok(None);
        }
        let database = house.second_database("baseline").await?;
        database.run_with(CONVERSATIONS, &[("talks", &TALKS.to_string())]).await?;
        let folder = house.folder().join("pgbench");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("append.sql"), TRANSACTION)?;
        let mut found = Self { database, folder, clients: CLIENTS[0] };
        let mut best = 0.0;
        for clients in CLIENTS {
            let rate = found.run(clients, pace.seconds(TRIED_SECONDS), &[]).await?;
            if rate > best {
                (best, found.clients) = (rate, clients);
            }
        }
        Ok(Some(found))
    }

    /// Its best number of clients.
    pub(crate) fn clients(&self) -> u64 {
        self.clients
    }

    /// Transactions per second, as fast as its clients can.
    pub(crate) async fn rate(&self, time: Duration) -> anyhow::Result<f64> {
        self.run(self.clients, time, &[]).await
    }

    /// How long its transactions take at this rate, from the moment at which each should have begun.
    pub(crate) async fn latencies(&self, rate: f64, time: Duration) -> anyhow::Result<Latencies> {
        let logs = self.folder.join("log");
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir_all(&logs)?;
        let prefix = format!("--log-prefix={}", logs.join("of").display());
        self.run(self.clients, time + WARM_UP, &[&format!("--rate={rate}"), "--log", &prefix]).await?;
        logged(&logs)
    }

    async fn run(&self, clients: u64, time: Duration, how: &[&str]) -> anyhow::Result<f64> {
        let mut command = self.database.program("pgbench").context("pgbench was there a moment ago")?;
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--file=append.sql"]);
        command.arg(format!("--client={clients}")).arg(format!("--time={}", time.as_secs().max(LEAST_SECONDS)));
        command.arg(format!("--define=clients={clients}")).arg(format!("--define=talks={TALKS}"));
        command.args(how).current_dir(&self.folder);
        let done = command.output().await?;
        let (said, complaint) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let failed = said.lines().find(|line| line.starts_with("number of failed transactions: "));
        let whole = done.status.success() && failed.is_none_or(|line| line.contains(": 0 "));
        anyhow::ensure!(whole, "pgbench failed: {complaint}{said}");
        rate(&said).with_context(|| format!("pgbench said no rate: {said}"))
    }
}

/// The rate in `tps = 12345.678 (without initial connection time)`; 0 of clients that were not all connected in time.
fn rate(said: &str) -> Option<f64> {
    if said.contains("\nnumber of transactions actually processed: 0\n") {
        return Some(0.0);
    }
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// All transactions of these logs but those of the warm-up.
fn logged(folder: &Path) -> anyhow::Result<Latencies> {
    let mut transactions = Vec::new();
    for file in fs::read_dir(folder)? {
        for line in fs::read_to_string(file?.path())?.lines() {
            transactions.push(transaction(line).with_context(|| format!("pgbench logged {line}"))?);
        }
    }
    let first = transactions.iter().map(|(ended, _)| *ended).min().context("pgbench logged nothing")?;
    let mut latencies = Latencies::default();
    for (_, took) in transactions.iter().filter(|(ended, _)| *ended >= first + WARM_UP) {
        latencies.record(*took);
    }
    Ok(latencies)
}

/// When a transaction ended, since 1970, and how long that was after it should have begun, of a line
/// `client number microseconds script second microsecond lag`, whose first microseconds hold the lag.
pub(crate) fn transaction(line: &str) -> Option<(Duration, Duration)> {
    let mut fields = line.split(' ').skip(2).map(|field| field.parse::<u64>().ok());
    let (took, _, second, microsecond) = (fields.next()??, fields.next(), fields.next()??, fields.next()??);
    Some((Duration::from_secs(second) + Duration::from_micros(microsecond), Duration::from_micros(took)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_one_without_connecting() {
        let said = "latency average = 1.3 ms\ninitial connection time = 7.1 ms\ntps = 6066.97 (without initial connection time)\n";
        assert_eq!(rate(said), Some(6066.97));
        assert_eq!(rate("duration: 1 s\nnumber of transactions actually processed: 0\n"), Some(0.0));
        assert_eq!(rate("pgbench: error\n"), None);
    }

    #[test]
    fn a_log_says_when_a_transaction_ended_and_how_late() {
        let ended = Duration::new(1_795_302_000, 250_000_000);
        let line = "3 17 5200 0 1795302000 250000 1100";
        assert_eq!(transaction(line), Some((ended, Duration::from_micros(5_200))));
        assert_eq!(transaction("3 17 skipped 0 1795302000 250000"), None);
    }
}
