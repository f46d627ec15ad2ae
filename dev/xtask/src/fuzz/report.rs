//! Parses the output of a libFuzzer run.

use std::fmt;
use std::path::{Path, PathBuf};

/// The titles of the table's columns.
pub(super) const TITLES: &str =
    "target             executions   a second      edges   features     inputs";

/// The results of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) target: String,
    /// Number of inputs that were run.
    pub(super) executions: u64,
    /// Number of executions per second.
    pub(super) per_second: u64,
    /// Number of edges (jumps in the instrumented code) that any input covered.
    pub(super) edges: u64,
    /// libFuzzer's finer measure of coverage: edges, how often each was taken, and compared values.
    pub(super) features: u64,
    /// Number of inputs in the corpus. Each covered something new when it was added.
    pub(super) inputs: u64,
    /// The file with the input that made the target fail, if any did.
    pub(super) failing_input: Option<PathBuf>,
}

impl Report {
    /// Parses the standard error of a run. A figure that it lacks is 0.
    pub(super) fn parse(target: &str, output: &str, failing_input: Option<PathBuf>) -> Self {
        let figure = |name: &str| {
            let line = output
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok())
                .unwrap_or(0)
        };
        let last = output
            .lines()
            .rev()
            .find(|line| line.starts_with('#') && line.contains(" cov: "))
            .unwrap_or_default();
        let column = |name: &str| {
            let mut words = last.split_whitespace().skip_while(|word| *word != name);
            let figure = words.nth(1).and_then(|word| word.split('/').next());
            figure.and_then(|figure| figure.parse().ok()).unwrap_or(0)
        };
        Self {
            target: target.to_owned(),
            executions: figure("number_of_executed_units"),
            per_second: figure("average_exec_per_sec"),
            edges: column("cov:"),
            features: column("ft:"),
            inputs: column("corp:"),
            failing_input,
        }
    }

    /// Says which input made the target fail, and what the developer should do about it.
    pub(super) fn advice(&self) -> String {
        let input = self.failing_input.as_deref();
        let input = input.unwrap_or(Path::new("…")).display();
        let Self { target, .. } = self;
        format!(
            "fuzz: {target} fails on {input}\n\
             fuzz: fix the code, add a test for this case, and keep the input: mv {input} dev/fuzz/corpus/{target}/"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            target,
            executions,
            per_second,
            edges,
            features,
            inputs,
            failing_input,
        } = self;
        write!(
            out,
            "{target:<16} {executions:>12} {per_second:>10} {edges:>10} {features:>10} {inputs:>10}"
        )?;
        if failing_input.is_some() {
            write!(out, "   FAILED")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_parsed_from_libfuzzers_output() {
        let output = "INFO: Seed: 1\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                    #524288\tpulse  cov: 96 ft: 320 corp: 31/1219b lim: 4096 exec/s: 104857 rss: 500Mb\n\
                    #600000\tDONE   cov: 97 ft: 321 corp: 32/1220b lim: 4096 exec/s: 100000 rss: 501Mb\n\
                    Done 600000 runs in 6 second(s)\nstat::number_of_executed_units: 600000\n\
                    stat::average_exec_per_sec:     100000\n";
        let report = Report::parse("tokens", output, None);
        assert_eq!((report.executions, report.per_second), (600_000, 100_000));
        assert_eq!(
            (report.edges, report.features, report.inputs),
            (97, 321, 32)
        );
        assert_eq!(TITLES.len(), report.to_string().len());
    }

    #[test]
    fn a_failing_input_is_shown_with_advice() {
        let input = "target/fuzz/tokens/broken/crash-1";
        let report = Report::parse("tokens", "", Some(input.into()));
        assert!(report.to_string().ends_with("FAILED"));
        assert!(
            report
                .advice()
                .contains("mv target/fuzz/tokens/broken/crash-1 dev/fuzz/corpus/tokens/")
        );
    }
}
