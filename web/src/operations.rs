//! The operator's page: queues, models, tenants, slow calls, dead jobs and charts.

use askama::Template;

use crate::{format::Time, layout::Page, render::renders};

renders!(OperationsPage, Figures);

/// The operator's page.
#[derive(Debug, Clone, Template)]
#[template(path = "operations/page.html")]
pub struct OperationsPage {
    /// The frame.
    pub page: Page,
    /// All that changes.
    pub figures: Figures,
}

/// The figures of the page, as a fragment that the browser fetches again and again.
#[derive(Debug, Clone, Template)]
#[template(path = "operations/figures.html")]
pub struct Figures {
    /// When they were read.
    pub read: Time,
    /// Queues by kind of job.
    pub queues: Vec<Queue>,
    /// Workers and their running jobs.
    pub workers: Vec<(String, i64)>,
    /// Models.
    pub models: Vec<Model>,
    /// The largest tenants, and those that call most often.
    pub tenants: Vec<Tenant>,
    /// The slowest calls of the last hour.
    pub slowest: Vec<SlowCall>,
    /// The newest dead jobs.
    pub dead: Vec<DeadJob>,
    /// Versions.
    pub versions: Versions,
    /// Metrics of the last hour.
    pub charts: Vec<Chart>,
}

/// A queue.
#[derive(Debug, Clone)]
pub struct Queue {
    /// Kind of its jobs.
    pub kind: String,
    /// Jobs that wait, due or not.
    pub waiting: i64,
    /// Those of them that are due.
    pub ready: i64,
    /// Jobs that run.
    pub running: i64,
    /// Jobs that were given up.
    pub dead: i64,
    /// How long the oldest due job has been due.
    pub oldest_seconds: i64,
}

/// A model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Calls that run.
    pub under_way: i64,
    /// Calls of today.
    pub calls: i64,
    /// Failed ones of them.
    pub failed: i64,
    /// Tokens that today's calls read.
    pub input: u64,
    /// Tokens that they wrote.
    pub output: u64,
    /// State of the breaker.
    pub breaker: String,
    /// State of this tenant's breaker.
    pub tenant_breaker: String,
    /// Breakers of tenants that are open.
    pub open_tenant_breakers: i64,
}

/// A tenant.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its messages.
    pub messages: i64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Its calls, on this server.
    pub calls_per_second: f64,
    /// Its bytes, on this server.
    pub bytes_per_second: f64,
}

/// A slow call.
#[derive(Debug, Clone)]
pub struct SlowCall {
    /// The RPC.
    pub rpc: String,
    /// The status.
    pub code: String,
    /// How long it took.
    pub milliseconds: u64,
    /// When it ended.
    pub time: Time,
}

/// A job that was given up.
#[derive(Debug, Clone)]
pub struct DeadJob {
    /// Its tenant.
    pub tenant: String,
    /// Its kind.
    pub kind: String,
    /// Its conversation.
    pub conversation: String,
    /// The X-ray of the conversation; empty: it belongs to another tenant.
    pub url: String,
    /// Attempts.
    pub attempts: i32,
    /// The last error.
    pub error: String,
    /// When it was given up.
    pub time: Time,
}

/// Versions of the installation.
#[derive(Debug, Clone)]
pub struct Versions {
    /// Version of the server.
    pub version: String,
    /// Commit of the build.
    pub commit: String,
    /// The newest migration that the server needs.
    pub schema: String,
    /// Version of PostgreSQL.
    pub database: String,
    /// Start of the server.
    pub started: Time,
}

/// Metrics over time.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its name.
    pub name: String,
    /// Its unit; empty: a number of things.
    pub unit: String,
    /// The highest value, as text: the height of the drawing.
    pub highest: String,
    /// Its lines.
    pub lines: Vec<ChartLine>,
    /// Minutes that it shows.
    pub minutes: u32,
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct ChartLine {
    /// Its label.
    pub label: String,
    /// The newest value, as text.
    pub newest: String,
    /// The line as the path of a drawing that is 360 wide and 100 high.
    pub path: String,
}

impl Chart {
    /// The chart as a sentence, for those who do not see it.
    fn words(&self) -> String {
        let lines = self
            .lines
            .iter()
            .map(|line| format!("{} {}", line.label, line.newest));
        let lines: Vec<String> = lines.collect();
        let (name, unit) = (&self.name, &self.unit);
        let space = if unit.is_empty() { "" } else { " " };
        format!(
            "{name}{space}{unit}, the last {} minutes: now {}; at most {}",
            self.minutes,
            lines.join(", "),
            self.highest
        )
    }
}

/// A rate as text: one digit after the point below ten, none above.
fn rate(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        crate::format::number(value as u64)
    }
}

/// Seconds as text.
fn seconds(value: i64) -> String {
    let value = u64::try_from(value).unwrap_or_default();
    crate::format::duration_ms(value.saturating_mul(1_000))
}
