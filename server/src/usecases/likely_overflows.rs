//! Counts and logs providers' errors that likely mean that a context is too long, in words that no
//! list has. The log tells wordings apart without their content, so that an operator can ask for
//! the rule that is missing.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::info;

/// Least time between two log lines of this process: callers can cause any number of such errors.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// When the last line was logged.
static LAST_LOGGED: Mutex<Option<Instant>> = Mutex::new(None);

/// Counts one error, and logs it if a line is due. `wording`: as in
/// [`Classification`](anneal_llm::provider_error::Classification).
pub(crate) fn record(model: &str, rule: &'static str, status: Option<u16>, wording: u64) {
    metrics::counter!("anneal_overflows_likely_total", "rule" => rule).increment(1);
    let mut last_logged = LAST_LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_due(*last_logged, Instant::now()) {
        return;
    }
    *last_logged = Some(Instant::now());
    drop(last_logged);
    info!(
        model,
        rule,
        status,
        wording = format!("{wording:016x}"),
        "an error of {model} likely means that the context is too long, in words that are not known"
    );
}

fn is_due(last_logged: Option<Instant>, now: Instant) -> bool {
    last_logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_is_logged() {
        let start = Instant::now();
        assert!(is_due(None, start));
        assert!(!is_due(Some(start), start + Duration::from_secs(59)));
        assert!(is_due(Some(start), start + LOG_INTERVAL));
    }
}
