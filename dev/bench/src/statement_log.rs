//! PostgreSQL's log of statements and the time that each has taken.

/// Statements that were executed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct StatementTimes {
    pub(crate) executed: usize,
    /// Milliseconds for which PostgreSQL parsed, planned and executed all of them together.
    pub(crate) total_ms: f64,
}

/// Adds up the statements in a log for which `wanted` returns true.
pub(crate) fn sum_statements(log: &str, wanted: impl Fn(&str) -> bool) -> StatementTimes {
    let mut sum = StatementTimes::default();
    for entry in log.split("LOG:  ").filter_map(parse_entry) {
        if wanted(entry.statement) {
            sum.executed += usize::from(entry.is_execution);
            sum.total_ms += entry.took_ms;
        }
    }
    sum
}

/// An entry of the log: a step of a statement.
struct LogEntry<'a> {
    took_ms: f64,
    /// Whether the statement was executed in this step. Prepared statements are also parsed and
    /// bound, in steps of their own.
    is_execution: bool,
    /// The statement, and what follows it up to the next entry.
    statement: &'a str,
}

/// Parses `duration: 0.123 ms  execute NAME: STATEMENT`. None: the entry is no step of a statement.
fn parse_entry(entry: &str) -> Option<LogEntry<'_>> {
    let (took, step) = entry.strip_prefix("duration: ")?.split_once(" ms  ")?;
    let (kind, statement) = step.split_once(' ')?;
    Some(LogEntry {
        took_ms: took.parse().ok()?,
        is_execution: matches!(kind, "execute" | "statement:"),
        statement,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
        2026-11-27 05:00:00.000 UTC [7] LOG:  duration: 0.500 ms  parse s_1: select stop\n\tfrom lease\n\
        2026-11-27 05:00:00.001 UTC [7] LOG:  duration: 0.250 ms  bind s_1: select stop\n\tfrom lease\n\
        2026-11-27 05:00:00.002 UTC [7] LOG:  duration: 1.250 ms  execute s_1: select stop\n\tfrom lease\n\
        2026-11-27 05:00:00.003 UTC [8] LOG:  duration: 0.125 ms  statement: BEGIN\n\
        2026-11-27 05:00:00.004 UTC [8] LOG:  checkpoint starting: time\n";

    #[test]
    fn the_steps_of_a_statement_are_added_and_its_executions_are_counted() {
        let stops = sum_statements(LOG, |statement| statement.contains("from lease"));
        let expected = StatementTimes {
            executed: 1,
            total_ms: 2.0,
        };
        assert_eq!(stops, expected);
        assert_eq!(sum_statements(LOG, |_| true).executed, 2);
    }
}
