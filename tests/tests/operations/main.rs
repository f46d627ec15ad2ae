//! Operation of anneal: health, metrics, verification, query plans, migrations, restarts.
//!
//! Processes:
//! - `alerts`: Prometheus reads the alerting rules and the dashboard, and exported metrics have the
//!   names in them.
//! - `deadlines`: a call that exceeds its deadline ends its statement.
//! - `deploy_files`: the manifests and settings files of deploy/ are valid.
//! - `graceful_shutdown`: stopped servers and workers finish or give back their work.
//! - `health`: liveness, readiness, gRPC health, reflection and metrics.
//! - `metrics`: the metrics that are recorded, described, documented and exported are the same.
//! - `mixed_versions`: statements of an earlier version see nothing of what no longer stands.
//! - `outage_log`: an outage of the database is logged once, not with every failure.
//! - `reload`: settings that change while a process runs.
//! - `rolling`: rolling restarts under load fail no call.
//! - `service_config`: proto/service_config.json agrees with the interface and the server.
//! - `traces`: a caller's trace continues in server, jobs and provider.
//!
//! Database:
//! - `database_tls`: a remote database needs a verified certificate.
//! - `durability`: processes refuse a database that may lose acknowledged data.
//! - `pooler`: the service works behind PgBouncer in transaction mode.
//! - `restore_drill`: a lost cluster is restored from backup and archive.
//! - `roles`: servers and workers work as a login that owns nothing.
//!
//! Data:
//! - `audited_changes`: audits and verifications find what a change of messages has left behind.
//! - `auditor`: the worker's auditor finds and reports broken promises.
//! - `deletion`: a deleted conversation leaves nothing in tables, logs and metrics.
//! - `erasure_canary`: nothing is left of what is erased, in tables, logs, metrics and receipts.
//! - `erasures`: the steps of erasures pass over conversations in use, and workers share them.
//! - `erasure_steps`: how much a step deletes, and that an erasure that cannot go on stops no other.
//! - `retention`: workers delete what the settings keep no longer, and nothing else.
//! - `retention_content`: content that no longer stands is erased, with what was made from it.
//! - `retention_steps`: what fails keeps nothing else, and a step of retention is bounded.
//! - `installation_stats`: figures of all tenants, workers and the answering server.
//! - `rpc_operators`: lists of jobs and checkpoints, usage, compaction, verification.
//!
//! Migrations:
//! - `legacy`: `anneal migrate` moves the tables of older systems.
//! - `legacy_crashes`: a move that is killed has moved everything or nothing.
//! - `legacy_unexpected`: rows and tables that cannot be moved are named and left unchanged.
//! - `migration_crashes`: an interrupted migration leaves no partial schema.
//!
//! Query plans:
//! - `plans`: frequent statements use indexes, also with plans that were made on empty tables. It
//!   also has the constants and the function `explain` that the files below share.
//! - `plans_appends`: an earlier append is found by its request id.
//! - `plans_audit`: how many rows an audit reads.
//! - `plans_changes`: how many rows are read to change messages.
//! - `plans_context`: how many rows and pages are read for a context and for a page of messages.
//! - `plans_erasures`: how many rows are read to erase messages, conversations, users and tenants.
//! - `plans_forks`: how many rows are read to fork a conversation, and to list forks.
//! - `plans_lists`: how many rows a list of conversations reads.
//! - `plans_responses`: how many rows are read to store, find, delete and erase responses.
//! - `plans_retention`: how many rows a step of retention reads.
//! - `plans_watch`: watches read by index.

mod alerts;
mod audited_changes;
mod auditor;
mod database_tls;
mod deadlines;
mod deletion;
mod deploy_files;
mod durability;
mod erasure_canary;
mod erasure_steps;
mod erasures;
mod graceful_shutdown;
mod health;
mod installation_stats;
mod legacy;
mod legacy_crashes;
mod legacy_unexpected;
mod metrics;
mod migration_crashes;
mod mixed_versions;
mod outage_log;
mod plans;
mod plans_appends;
mod plans_audit;
mod plans_changes;
mod plans_context;
mod plans_erasures;
mod plans_forks;
mod plans_lists;
mod plans_responses;
mod plans_retention;
mod plans_watch;
mod pooler;
mod reload;
mod restore_drill;
mod retention;
mod retention_content;
mod retention_steps;
mod roles;
mod rolling;
mod rpc_operators;
mod service_config;
mod traces;

/// The binary under test, `anneal-under-test`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
