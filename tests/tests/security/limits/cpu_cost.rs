//! The processor time that calls take in a server process and in its PostgreSQL sessions, as Linux
//! counts it.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use sqlx::{Connection as _, PgConnection};

/// `/proc` counts processor time in hundredths of a second on every machine.
const TICK: Duration = Duration::from_millis(10);
/// A call is repeated until all repetitions together have cost this: ten ticks.
const MIN_MEASURED: Duration = Duration::from_millis(100);
/// Maximum calls of one measurement.
const MAX_CALLS: usize = 64;
/// The least cost that a call counts as. A lower measurement is mostly clock ticks, background work
/// of the server and, on a slow machine, fresh memory pages that only the large input needs.
const MIN_CALL_COST: Duration = Duration::from_millis(6);
/// Maximum ratio of the costs of two inputs, one ten times as large as the other.
const MAX_RATIO: u32 = 15;

/// Maximum measurements of a pair that exceeds [`MAX_RATIO`].
const MAX_MEASUREMENTS: usize = 6;

/// Reads the processor time of a server and of its database sessions.
pub(crate) struct CpuMeter {
    server: u32,
    db: PgConnection,
    /// Processor time by process id of each session. Ended sessions keep their last value.
    sessions: HashMap<i32, Duration>,
}

impl CpuMeter {
    /// Measures the server with this process id and its sessions in this database.
    pub(crate) async fn start(server: u32, url: &str) -> Self {
        let db = PgConnection::connect(url)
            .await
            .expect("the test's database answers");
        Self {
            server,
            db,
            sessions: HashMap::new(),
        }
    }

    /// Mean processor time of one call. `call` receives the number of calls before it.
    async fn measure(&mut self, mut call: impl AsyncFnMut(usize)) -> Cost {
        let before = self.read().await;
        let mut calls = 0;
        loop {
            call(calls).await;
            calls += 1;
            let now = self.read().await;
            let server = now.server.saturating_sub(before.server);
            let database = now.database.saturating_sub(before.database);
            if server + database >= MIN_MEASURED || calls >= MAX_CALLS {
                return Cost {
                    server: server / calls as u32,
                    database: database / calls as u32,
                };
            }
        }
    }

    /// Processor time since the start of the processes.
    async fn read(&mut self) -> Cost {
        let sessions = "select pid from pg_stat_activity
            where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
        let sessions: Vec<i32> = sqlx::query_scalar(sessions)
            .fetch_all(&mut self.db)
            .await
            .expect("lists sessions");
        for session in sessions {
            if let Some(time) = processor_time(&session.to_string()) {
                self.sessions.insert(session, time);
            }
        }
        let server = processor_time(&self.server.to_string()).expect("the server runs");
        Cost {
            server,
            database: self.sessions.values().sum(),
        }
    }
}

/// User and system time of a process, including its ended threads. None if it does not exist.
fn processor_time(process: &str) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the command in brackets, which may contain blanks. utime and stime are
    // the 14th and the 15th.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

/// Processor time in the server and in PostgreSQL.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    server: Duration,
    database: Duration,
}

impl Cost {
    fn sum(self) -> Duration {
        self.server + self.database
    }

    fn min(self, other: Self) -> Self {
        if other.sum() < self.sum() {
            other
        } else {
            self
        }
    }
}

/// Costs of a small and of a large input. The small input is not measured if the large one is
/// cheap.
struct PairCost {
    what: String,
    small: Option<Cost>,
    large: Cost,
}

impl PairCost {
    /// Cost of the large input divided by that of the small one.
    fn ratio(&self) -> Option<f64> {
        Some(ratio(self.small?, self.large))
    }
}

/// Costs of pairs of inputs, one ten times as large as the other.
#[derive(Default)]
pub(crate) struct Costs {
    pairs: Vec<PairCost>,
}

impl Costs {
    /// Measures the large input, and the small one unless the large one is cheap.
    pub(crate) async fn compare(
        &mut self,
        meter: &mut CpuMeter,
        what: impl Into<String>,
        mut small: impl AsyncFnMut(usize),
        mut large: impl AsyncFnMut(usize),
    ) {
        let what = what.into();
        let mut pair = PairCost {
            what,
            small: None,
            large: meter.measure(&mut large).await,
        };
        // The small input counts as at least MIN_CALL_COST, so below this limit the ratio cannot
        // exceed MAX_RATIO.
        if pair.large.sum() > MAX_RATIO * MIN_CALL_COST {
            pair.small = Some(meter.measure(&mut small).await);
            // Other load on the machine only adds to a measurement, so the minimum counts.
            for _ in 1..MAX_MEASUREMENTS {
                if pair
                    .ratio()
                    .is_none_or(|ratio| ratio <= f64::from(MAX_RATIO))
                {
                    break;
                }
                pair.large = pair.large.min(meter.measure(&mut large).await);
                let small_again = meter.measure(&mut small).await;
                pair.small = pair.small.map(|small| small.min(small_again));
            }
        }
        self.pairs.push(pair);
    }

    /// Prints the costly pairs and asserts that no ratio exceeds [`MAX_RATIO`].
    pub(crate) fn assert_linear(&self, what: &str) {
        let mut table = String::new();
        for PairCost { what, small, large } in &self.pairs {
            let Some(small) = small else { continue };
            let of = |cost: &Cost| format!("{:.1?} + {:.1?}", cost.server, cost.database);
            let _ = writeln!(
                table,
                "{what} | {} | {} | {:.1}",
                of(small),
                of(large),
                ratio(*small, *large)
            );
        }
        let cheap = self
            .pairs
            .iter()
            .filter(|pair| pair.small.is_none())
            .count();
        let pairs = self.pairs.len();
        println!(
            "{what}: {pairs} pairs, {cheap} of them below {:?}; server + PostgreSQL:\n{table}",
            MAX_RATIO * MIN_CALL_COST
        );
        let too_costly = self.pairs.iter().filter(|pair| {
            pair.ratio()
                .is_some_and(|ratio| ratio > f64::from(MAX_RATIO))
        });
        let too_costly: Vec<&str> = too_costly.map(|pair| pair.what.as_str()).collect();
        assert!(
            too_costly.is_empty(),
            "{what}: the large input costs more than {MAX_RATIO} times as much: {too_costly:#?}\n{table}"
        );
        assert!(pairs > 0, "{what}: nothing was measured");
    }
}

fn ratio(small: Cost, large: Cost) -> f64 {
    large.sum().as_secs_f64() / small.sum().max(MIN_CALL_COST).as_secs_f64()
}
