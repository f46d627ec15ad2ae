//! Named places where a test makes things go wrong: a call fails there, waits, or takes its process with it. Nothing of this
//! is in what ships: without the feature `failpoints` a place is no code at all.
//!
//! A test says what happens where in `FAILPOINTS`, for example `append.alone.locked=1*return(error)`; only the tests' binary
//! reads it. What may be returned: `error` (the connection is lost), `delay:MILLISECONDS`, `abort` (the process is gone).

#[cfg(all(feature = "failpoints", not(debug_assertions)))]
compile_error!("failpoints are for tests alone: no release may hold them");

#[cfg(feature = "failpoints")]
use crate::error::StoreError;

/// A place where a test may make things go wrong. It stands in `async` code, in whatever returns an error that a
/// [`StoreError`](crate::StoreError) becomes.
#[macro_export]
macro_rules! failpoint {
    ($point:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoints::pass($point).await?;
    };
}

/// Does what the test has asked for at this point; says so on standard error.
#[cfg(feature = "failpoints")]
pub async fn pass(point: &'static str) -> Result<(), StoreError> {
    let Some(fault) = asked(point) else { return Ok(()) };
    eprintln!("failpoint {point}: {fault}");
    match fault.split_once(':') {
        // Nothing of this process is blocked but the call that waits.
        Some(("delay", milliseconds)) => {
            let milliseconds = milliseconds.parse().expect("a delay is a number of milliseconds");
            tokio::time::sleep(std::time::Duration::from_millis(milliseconds)).await;
            Ok(())
        }
        None if fault == "error" => {
            let lost = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "a test has cut the connection");
            Err(StoreError::Unavailable(sqlx::Error::Io(lost).into()))
        }
        None if fault == "abort" => std::process::abort(),
        _ => panic!("nobody knows the fault {fault}"),
    }
}

/// What a test wants at this point, each time that it is passed.
#[cfg(feature = "failpoints")]
fn asked(point: &str) -> Option<String> {
    fail::fail_point!(point, |argument| argument);
    None
}
