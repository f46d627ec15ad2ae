//! Reads the log of pgbench, which has one line for each transaction.

use std::time::Duration;

/// The time at which a transaction ended (since 1970), and how long it took from the time at which
/// it was due. Reads a line `client number microseconds script second microsecond lag`. The third
/// field includes the lag: the delay between the time at which the transaction was due and its
/// start. `None` for any other line.
pub(crate) fn parse_transaction(line: &str) -> Option<(Duration, Duration)> {
    let mut fields = line
        .split(' ')
        .skip(2)
        .map(|field| field.parse::<u64>().ok());
    let (took, _, second, microsecond) = (
        fields.next()??,
        fields.next(),
        fields.next()??,
        fields.next()??,
    );
    Some((
        Duration::from_secs(second) + Duration::from_micros(microsecond),
        Duration::from_micros(took),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_contains_end_and_latency_of_a_transaction() {
        let ended = Duration::new(1_795_302_000, 250_000_000);
        let line = "3 17 5200 0 1795302000 250000 1100";
        assert_eq!(
            parse_transaction(line),
            Some((ended, Duration::from_micros(5_200)))
        );
        assert_eq!(parse_transaction("3 17 skipped 0 1795302000 250000"), None);
    }
}
