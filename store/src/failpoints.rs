//! Failpoints: named places in the code where a test injects a fault. Without the feature
//! `failpoints` they compile to nothing; no release contains them.
//!
//! A test sets the faults in the environment variable `FAILPOINTS`, which only the tests' binary
//! reads. `append.alone.locked=1*return(error)` injects the fault `error` once, at the failpoint
//! `append.alone.locked`. The faults are:
//!
//! - `error`: the call fails as if the connection was lost;
//! - `delay:MILLISECONDS`: the call waits;
//! - `abort`: the process ends.

#[cfg(all(feature = "failpoints", not(debug_assertions)))]
compile_error!("failpoints are for tests alone: no release may hold them");

#[cfg(feature = "failpoints")]
use crate::error::StoreError;

/// A failpoint. It can stand in an `async` function whose error type can be made from a
/// [`StoreError`](crate::StoreError).
#[macro_export]
macro_rules! failpoint {
    ($point:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoints::hit($point).await?;
    };
}

/// Executes the fault that the test has set for this point, and prints it on standard error.
#[cfg(feature = "failpoints")]
pub async fn hit(point: &'static str) -> Result<(), StoreError> {
    let Some(fault) = requested_fault(point) else {
        return Ok(());
    };
    eprintln!("failpoint {point}: {fault}");
    match fault.split_once(':') {
        // Only the calling task waits.
        Some(("delay", milliseconds)) => {
            let milliseconds = milliseconds
                .parse()
                .expect("a delay is a number of milliseconds");
            tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
            Ok(())
        }
        None if fault == "error" => {
            let lost = std::io::Error::new(
                std::io::ErrorKind::ConnectionReset,
                "a test has cut the connection",
            );
            Err(StoreError::Unavailable(sqlx::Error::Io(lost).into()))
        }
        None if fault == "abort" => std::process::abort(),
        _ => panic!("unknown fault {fault}"),
    }
}

/// The fault that a test has set for this point, if any. Called each time that the point is
/// reached.
#[cfg(feature = "failpoints")]
fn requested_fault(point: &str) -> Option<String> {
    fail::fail_point!(point, |argument| argument);
    None
}
