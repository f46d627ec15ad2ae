//! What calls cost: processor time of a server's process and of its sessions in PostgreSQL, as Linux counts it.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use sqlx::{Connection as _, PgConnection};

/// Linux counts processor time for `/proc` in hundredths of a second, whatever the machine.
const TICK: Duration = Duration::from_millis(10);
/// Calls are repeated until together they have cost this: ten ticks.
const LEAST: Duration = Duration::from_millis(100);
/// Calls of one measurement at most.
const MOST_CALLS: usize = 64;
/// A call that costs less counts as one that costs this: below it, ticks and what the server does beside calls decide.
const FLOOR: Duration = Duration::from_millis(4);
/// What ten times as much may cost, in times of the former cost.
const FACTOR: u32 = 15;

/// Times that a pair is measured which seems to cost too much.
const MEASUREMENTS: usize = 3;

/// Reads processor times.
pub(crate) struct Meter {
    server: u32,
    db: PgConnection,
    /// Of each session that was seen, the newest figure: sessions that have ended keep theirs.
    sessions: HashMap<i32, Duration>,
}

impl Meter {
    /// A meter for the server with this process id and its sessions in this database.
    pub(crate) async fn start(server: u32, url: &str) -> Self {
        let db = PgConnection::connect(url).await.expect("the test's database answers");
        Self { server, db, sessions: HashMap::new() }
    }

    /// Processor time of one call, as the mean of several. `call` is given the number of calls before it.
    async fn measure(&mut self, mut call: impl AsyncFnMut(usize)) -> Cost {
        let before = self.read().await;
        let mut calls = 0;
        loop {
            call(calls).await;
            calls += 1;
            let now = self.read().await;
            let server = now.server.saturating_sub(before.server);
            let database = now.database.saturating_sub(before.database);
            if server + database >= LEAST || calls >= MOST_CALLS {
                return Cost { server: server / calls as u32, database: database / calls as u32 };
            }
        }
    }

    /// Processor time since the processes began.
    async fn read(&mut self) -> Cost {
        let sessions = "select pid from pg_stat_activity
            where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
        let sessions: Vec<i32> = sqlx::query_scalar(sessions).fetch_all(&mut self.db).await.expect("lists sessions");
        for session in sessions {
            if let Some(time) = processor_time(&session.to_string()) {
                self.sessions.insert(session, time);
            }
        }
        let server = processor_time(&self.server.to_string()).expect("the server runs");
        Cost { server, database: self.sessions.values().sum() }
    }
}

/// User and system time of a process and of its threads that have ended; None: there is no such process.
fn processor_time(process: &str) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the command in brackets, which may hold blanks; utime and stime are the 14th and the 15th.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

/// Processor time of a call: of the server, and of PostgreSQL.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    server: Duration,
    database: Duration,
}

impl Cost {
    fn sum(self) -> Duration {
        self.server + self.database
    }

    fn least(self, other: Self) -> Self {
        if other.sum() < self.sum() { other } else { self }
    }
}

/// What a small and a large input cost; the small one where the large one is not cheap.
struct Row {
    what: String,
    small: Option<Cost>,
    large: Cost,
}

impl Row {
    /// What the large one costs, in times of the small one.
    fn ratio(&self) -> Option<f64> {
        Some(ratio(self.small?, self.large))
    }
}

/// Costs of small and ten times as large inputs.
#[derive(Default)]
pub(crate) struct Costs {
    rows: Vec<Row>,
}

impl Costs {
    /// Measures the large input, and the small one where that decides.
    pub(crate) async fn compare(
        &mut self,
        meter: &mut Meter,
        what: impl Into<String>,
        mut small: impl AsyncFnMut(usize),
        mut large: impl AsyncFnMut(usize),
    ) {
        let what = what.into();
        let mut row = Row { what, small: None, large: meter.measure(&mut large).await };
        if row.large.sum() > FACTOR * FLOOR {
            row.small = Some(meter.measure(&mut small).await);
            // What else runs on the machine only adds to what is measured.
            for _ in 1..MEASUREMENTS {
                if row.ratio().is_none_or(|ratio| ratio <= f64::from(FACTOR)) {
                    break;
                }
                row.large = row.large.least(meter.measure(&mut large).await);
                let again = meter.measure(&mut small).await;
                row.small = row.small.map(|small| small.least(again));
            }
        }
        self.rows.push(row);
    }

    /// Prints the costly rows, and asserts that none costs more than fifteen times what a tenth costs.
    pub(crate) fn assert_linear(&self, what: &str) {
        let mut table = String::new();
        for Row { what, small, large } in &self.rows {
            let Some(small) = small else { continue };
            let of = |cost: &Cost| format!("{:.1?} + {:.1?}", cost.server, cost.database);
            let _ = writeln!(table, "{what} | {} | {} | {:.1}", of(small), of(large), ratio(*small, *large));
        }
        let cheap = self.rows.iter().filter(|row| row.small.is_none()).count();
        let pairs = self.rows.len();
        println!("{what}: {pairs} pairs, {cheap} of them below {:?}; server + PostgreSQL:\n{table}", FACTOR * FLOOR);
        let steep = self.rows.iter().filter(|row| row.ratio().is_some_and(|ratio| ratio > f64::from(FACTOR)));
        let steep: Vec<&str> = steep.map(|row| row.what.as_str()).collect();
        assert!(steep.is_empty(), "{what}: costs more than {FACTOR} times as much: {steep:#?}\n{table}");
        assert!(pairs > 0, "{what}: nothing was measured");
    }
}

fn ratio(small: Cost, large: Cost) -> f64 {
    large.sum().as_secs_f64() / small.sum().max(FLOOR).as_secs_f64()
}
