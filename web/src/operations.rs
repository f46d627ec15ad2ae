//! The operator's page: queues, models, tenants, slow calls, dead jobs and charts.

use askama::Template;

use crate::{format::Time, layout::Page, render::renders};

renders!(OperationsPage);

/// The operator's page.
#[derive(Debug, Clone, Template)]
#[template(path = "operations/page.html")]
pub struct OperationsPage {
    /// The frame.
    pub page: Page,
    /// Queues by kind of job.
    pub queues: Vec<Queue>,
    /// Workers and their running jobs.
    pub workers: Vec<(String, i64)>,
    /// Models.
    pub models: Vec<Model>,
    /// The largest tenants.
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
    /// Jobs that are not due yet.
    pub waiting: i64,
    /// Jobs that are due.
    pub ready: i64,
    /// Jobs that run.
    pub running: i64,
    /// Jobs that have failed for good.
    pub dead: i64,
    /// Age of the oldest due job.
    pub oldest_seconds: i64,
}

/// A model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Calls that run.
    pub under_way: i64,
    /// Calls of the last hour.
    pub calls: i64,
    /// Failed ones of them.
    pub failed: i64,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
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
    /// Its bytes.
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
    /// Its time.
    pub milliseconds: f64,
    /// Its end.
    pub time: Time,
}

/// A job that has failed for good.
#[derive(Debug, Clone)]
pub struct DeadJob {
    /// Its tenant.
    pub tenant: String,
    /// Its kind.
    pub kind: String,
    /// Its conversation.
    pub conversation: String,
    /// Attempts.
    pub attempts: i32,
    /// The last error.
    pub error: String,
    /// When it failed.
    pub time: Time,
}

/// Versions of the installation.
#[derive(Debug, Clone)]
pub struct Versions {
    /// Version of the server.
    pub version: String,
    /// Commit of the build.
    pub commit: String,
    /// Version of the schema.
    pub schema: String,
    /// Version of PostgreSQL.
    pub database: String,
    /// Start of the server.
    pub started: Time,
}

/// A metric over time.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The newest value.
    pub newest: String,
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
    /// Points of the SVG polyline.
    pub points: String,
    /// The values.
    pub values: Vec<f64>,
}
