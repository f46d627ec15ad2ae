//! Failpoints: named places where a test injects a fault. A call fails there, waits, or ends its
//! process. Without the feature `failpoints` they compile to nothing; no release contains them.
//!
//! A test sets the faults in `FAILPOINTS`, for example `append.alone.locked=1*return(error)`; only
//! the tests' binary reads it. Faults: `error` (the connection is lost), `delay:MILLISECONDS`,
//! `abort` (the process ends).

#[cfg(all(feature = "failpoints", not(debug_assertions)))]
compile_error!("failpoints are for tests alone: no release may hold them");

#[cfg(feature = "failpoints")]
use crate::error::StoreError;

/// A failpoint. It stands in `async` code whose error type a [`StoreError`](crate::StoreError)
/// converts into.
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

/// The fault that a test has set for this point, each time that the point is reached.
#[cfg(feature = "failpoints")]
fn requested_fault(point: &str) -> Option<String> {
    fail::fail_point!(point, |argument| argument);
    None
}
