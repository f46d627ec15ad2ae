//! Reads the log of pgbench, which has one line for each transaction.

use std::time::Duration;

/// A transaction in the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoggedTransaction {
    /// When the transaction ended, since 1970.
    pub(crate) end: Duration,
    /// How long the transaction took from the time at which it was due.
    pub(crate) latency: Duration,
}

/// Reads a line `client number microseconds script second microsecond lag`. The microseconds
/// include the lag: the delay between the time at which the transaction was due and its start.
/// `None` for any other line.
pub(crate) fn parse_transaction(line: &str) -> Option<LoggedTransaction> {
    let mut fields = line
        .split(' ')
        .skip(2)
        .map(|field| field.parse::<u64>().ok());
    let (microseconds, _script, end_second, end_microsecond) = (
        fields.next()??,
        fields.next(),
        fields.next()??,
        fields.next()??,
    );
    Some(LoggedTransaction {
        end: Duration::from_secs(end_second) + Duration::from_micros(end_microsecond),
        latency: Duration::from_micros(microseconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_contains_end_and_latency_of_a_transaction() {
        let line = "3 17 5200 0 1795302000 250000 1100";
        assert_eq!(
            parse_transaction(line),
            Some(LoggedTransaction {
                end: Duration::new(1_795_302_000, 250_000_000),
                latency: Duration::from_micros(5_200),
            })
        );
        assert_eq!(parse_transaction("3 17 skipped 0 1795302000 250000"), None);
    }
}
