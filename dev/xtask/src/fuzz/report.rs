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
    /// Number of inputs per second.
    pub(super) a_second: u64,
    /// Edges of the instrumented code that were covered by any input.
    pub(super) edges: u64,
    /// Edges, how often they were taken, and the values that were compared.
    pub(super) features: u64,
    /// Number of inputs in the corpus, each of which covers something that no other does.
    pub(super) inputs: u64,
    /// The input that made the target fail.
    pub(super) input: Option<PathBuf>,
}

impl Report {
    /// Parses the standard error of a run.
    pub(super) fn read(target: &str, said: &str, input: Option<PathBuf>) -> Self {
        let figure = |name: &str| {
            let line = said
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok())
                .unwrap_or(0)
        };
        let last = said
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
            a_second: figure("average_exec_per_sec"),
            edges: column("cov:"),
            features: column("ft:"),
            inputs: column("corp:"),
            input,
        }
    }

    /// Tells the developer to fix the code, to add a test and to keep the input.
    pub(super) fn advice(&self) -> String {
        let input = self.input.as_deref().unwrap_or(Path::new("…")).display();
        let Self { target, .. } = self;
        format!(
            "fuzz: {target} has found {input}\n\
             fuzz: mend the code, name a test after it, and keep the input: mv {input} dev/fuzz/corpus/{target}/"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            target,
            executions,
            a_second,
            edges,
            features,
            inputs,
            input,
        } = self;
        write!(
            out,
            "{target:<16} {executions:>12} {a_second:>10} {edges:>10} {features:>10} {inputs:>10}"
        )?;
        if input.is_some() {
            write!(out, "   FOUND")
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
        let said = "INFO: Seed: 1\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                    #524288\tpulse  cov: 96 ft: 320 corp: 31/1219b lim: 4096 exec/s: 104857 rss: 500Mb\n\
                    #600000\tDONE   cov: 97 ft: 321 corp: 32/1220b lim: 4096 exec/s: 100000 rss: 501Mb\n\
                    Done 600000 runs in 6 second(s)\nstat::number_of_executed_units: 600000\n\
                    stat::average_exec_per_sec:     100000\n";
        let report = Report::read("tokens", said, None);
        assert_eq!((report.executions, report.a_second), (600_000, 100_000));
        assert_eq!(
            (report.edges, report.features, report.inputs),
            (97, 321, 32)
        );
        assert_eq!(TITLES.len(), report.to_string().len());
    }

    #[test]
    fn a_failing_input_is_shown_with_advice() {
        let report = Report::read("tokens", "", Some("target/fuzz/tokens/crash-1".into()));
        assert!(report.to_string().ends_with("FOUND"));
        assert!(
            report
                .advice()
                .contains("mv target/fuzz/tokens/crash-1 dev/fuzz/corpus/tokens/")
        );
    }
}
