//! Waits for other processes.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{LocalPostgresError, Result};

/// Interval between two checks of another process.
pub(crate) const POLL: Duration = Duration::from_millis(5);
/// Deadline for operations of other processes, far above the duration of initdb (1 to 5 s) or of a
/// shutdown.
pub(crate) const DEADLINE_SECONDS: u64 = 60;

/// Polls until `done` returns true. An error after [`DEADLINE_SECONDS`].
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !done() {
        if started.elapsed().as_secs() >= DEADLINE_SECONDS {
            return Err(LocalPostgresError::Timeout {
                what: what.to_owned(),
                seconds: DEADLINE_SECONDS,
            });
        }
        thread::sleep(POLL);
    }
    Ok(())
}
