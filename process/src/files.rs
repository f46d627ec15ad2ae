//! How many files a process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Returns what may be open now; None: any number.
pub fn allow_many() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { limits.maximum } else { limits.current }
}
