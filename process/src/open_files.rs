//! Raises the limit of open files, because each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit. Returns the limit in force; None: there
/// is no limit.
pub fn raise_limit() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limits.maximum
    } else {
        limits.current
    }
}
