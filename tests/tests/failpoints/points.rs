//! The failpoints, read from the source, and what the load must do to reach each.

use std::path::Path;

/// The injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails as if its connection were lost. It fails twice, so that an internal retry
    /// fails as well.
    Error,
    /// The call waits once, for longer than its time limit.
    Delay,
    /// The process aborts.
    Abort,
}

/// A `failpoint!` in the source.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) name: String,
}

impl Point {
    fn has_prefix(&self, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.name.starts_with(prefix))
    }

    /// Whether only `anneal migrate` reaches this failpoint.
    pub(crate) fn is_in_migrations(&self) -> bool {
        self.has_prefix(&["migrate."])
    }

    /// Whether only `anneal migrate` on a database with tables of an older system reaches it.
    pub(crate) fn is_in_legacy_migration(&self) -> bool {
        self.has_prefix(&["migrate.legacy."])
    }

    /// Whether an append reaches it only while another transaction locks its conversation.
    pub(crate) fn needs_contention(&self) -> bool {
        self.has_prefix(&["append.alone.locked", "append.alone.written"])
    }

    /// Whether a worker reaches it only when another worker has left a job behind.
    pub(crate) fn needs_orphan_job(&self) -> bool {
        self.has_prefix(&["rescue.freed"])
    }

    /// The value of `FAILPOINTS` for this fault. It includes other faults that are necessary for
    /// the load to reach this failpoint.
    pub(crate) fn configuration(&self, fault: Fault) -> String {
        let action = match fault {
            Fault::Error => "2*return(error)".to_owned(),
            Fault::Delay => format!("1*return(delay:{})", self.delay_ms()),
            Fault::Abort => "1*return(abort)".to_owned(),
        };
        let other_faults = if self.has_prefix(&["heartbeat."]) {
            // The job must still run at the second heartbeat.
            ";job.begun=1*return(delay:14000)"
        } else if self.has_prefix(&["fail."]) {
            ";job.begun=1*return(error)"
        } else {
            ""
        };
        format!("{}={action}{other_faults}", self.name)
    }

    /// A wait, in milliseconds, that is longer than the time limit at this failpoint:
    ///
    /// - 15 s for a claim, and for work under a job's lease;
    /// - 10 s for a batch of appends, and for its callers;
    /// - 5 s for a heartbeat, and for an idle transaction, which PostgreSQL then ends.
    fn delay_ms(&self) -> u32 {
        if self.has_prefix(&[
            "claim.",
            "job.",
            "checkpoint.summarized",
            "summary.made",
            "counting.read",
        ]) {
            17_000
        } else if self.has_prefix(&["append.group."]) {
            12_000
        } else {
            6_000
        }
    }
}

/// All failpoints, or those whose names contain the word in `ANNEAL_FAILPOINTS`.
pub(crate) fn all() -> Vec<Point> {
    let word = std::env::var("ANNEAL_FAILPOINTS").unwrap_or_default();
    names_in_source()
        .into_iter()
        .filter(|name| name.contains(&word))
        .map(|name| Point { name })
        .collect()
}

/// The names of all failpoints in the crates that may have any, with repetitions.
pub(crate) fn names_in_source() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests are in the workspace");
    let mut names = Vec::new();
    for folder in [
        "store/src",
        "worker/src",
        "server/src",
        "llm/src",
        "gateway/src",
        "cli/src",
    ] {
        collect_names(&root.join(folder), &mut names);
    }
    names
}

/// Adds the names of the failpoints in the source files of a folder.
fn collect_names(folder: &Path, names: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a crate has sources");
    for path in entries.map(|entry| entry.expect("is read").path()) {
        if path.is_dir() {
            collect_names(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("is text");
            let calls = source.split("failpoint!(\"").skip(1);
            names.extend(
                calls
                    .filter_map(|after| after.split('"').next())
                    .map(str::to_owned),
            );
        }
    }
}
