//! The places, as the source has them, and what each needs to be come by.

use std::path::Path;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails as if its connection were lost; twice, so that a retry inside fails as well.
    Error,
    /// The call waits, once, for longer than what bounds it.
    Delay,
    /// The process is gone.
    Abort,
}

/// A place in the source.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Its name.
    pub(crate) name: String,
}

impl Point {
    fn begins(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.name.starts_with(word))
    }

    /// Whether only `anneal migrate` comes by.
    pub(crate) fn is_of_migrations(&self) -> bool {
        self.begins(&["migrate."])
    }

    /// Whether only `anneal migrate` on a database with the older tables comes by.
    pub(crate) fn is_of_older_tables(&self) -> bool {
        self.begins(&["migrate.legacy."])
    }

    /// Whether an append comes by only when another transaction holds its conversation.
    pub(crate) fn needs_contention(&self) -> bool {
        self.begins(&["append.alone.locked", "append.alone.written"])
    }

    /// Whether a worker comes by only when another has left a job behind.
    pub(crate) fn needs_orphan(&self) -> bool {
        self.begins(&["rescue.freed"])
    }

    /// The fault, as `FAILPOINTS` says it, with what else must go wrong so that somebody comes by.
    pub(crate) fn configuration(&self, fault: Fault) -> String {
        let action = match fault {
            Fault::Error => "2*return(error)".to_owned(),
            Fault::Delay => format!("1*return(delay:{})", self.delay_ms()),
            Fault::Abort => "1*return(abort)".to_owned(),
        };
        let also = if self.begins(&["heartbeat."]) {
            // A job that is under way at the second beat still.
            ";job.begun=1*return(delay:14000)"
        } else if self.begins(&["fail."]) {
            ";job.begun=1*return(error)"
        } else {
            ""
        };
        format!("{}={action}{also}", self.name)
    }

    /// A wait that passes what bounds it: a claim's patience and a lease of 15 s, the 10 s of a group of appends and of a
    /// caller, the 5 s after which PostgreSQL ends an idle transaction and a heartbeat is given up.
    fn delay_ms(&self) -> u32 {
        if self.begins(&["claim.", "job.", "checkpoint.summarized", "summary.made", "counting.read"]) {
            17_000
        } else if self.begins(&["append.group."]) {
            12_000
        } else {
            6_000
        }
    }
}

/// The places to visit: all, or those whose names hold the word in `ANNEAL_FAILPOINTS`.
pub(crate) fn all() -> Vec<Point> {
    let word = std::env::var("ANNEAL_FAILPOINTS").unwrap_or_default();
    in_source().into_iter().filter(|name| name.contains(&word)).map(|name| Point { name }).collect()
}

/// The names of all places in the crates that have any, as often as they stand there.
pub(crate) fn in_source() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace");
    let mut names = Vec::new();
    for folder in ["store/src", "worker/src", "server/src", "llm/src", "cli/src"] {
        collect(&root.join(folder), &mut names);
    }
    names
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a crate has sources");
    for path in entries.map(|entry| entry.expect("is read").path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("is text");
            let calls = source.split("failpoint!(\"").skip(1);
            names.extend(calls.filter_map(|after| after.split('"').next()).map(str::to_owned));
        }
    }
}
