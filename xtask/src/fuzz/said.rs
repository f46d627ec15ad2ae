//! What libFuzzer says of a run.

use std::fmt;
use std::path::{Path, PathBuf};

/// The heads of the columns.
pub(super) const TITLES: &str = "target             executions   a second      edges   features     inputs";

/// What a target has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) target: String,
    /// Inputs that were run.
    pub(super) executions: u64,
    /// The same, for each second.
    pub(super) a_second: u64,
    /// Edges of the instrumented code that some input has reached.
    pub(super) edges: u64,
    /// Edges, how often they were taken, and what was compared.
    pub(super) features: u64,
    /// Inputs that each reach something that no other does.
    pub(super) inputs: u64,
    /// The input that has broken something.
    pub(super) input: Option<PathBuf>,
}

impl Report {
    /// What a run has said on its standard error.
    pub(super) fn read(target: &str, said: &str, input: Option<PathBuf>) -> Self {
        let figure = |name: &str| {
            let line = said.lines().rev().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
        };
        let last = said.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
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

    /// What to do about what it has found.
    pub(super) fn advice(&self) -> String {
        let input = self.input.as_deref().unwrap_or(Path::new("…")).display();
        let Self { target, .. } = self;
        format!(
            "fuzz: {target} has found {input}\n\
             fuzz: mend the code, name a test after it, and keep the input: mv {input} fuzz/corpus/{target}/"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, executions, a_second, edges, features, inputs, input } = self;
        write!(out, "{target:<16} {executions:>12} {a_second:>10} {edges:>10} {features:>10} {inputs:>10}")?;
        if input.is_some() { write!(out, "   FOUND") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_holds_what_libfuzzer_has_said() {
        let said = "INFO: Seed: 1\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                    #524288\tpulse  cov: 96 ft: 320 corp: 31/1219b lim: 4096 exec/s: 104857 rss: 500Mb\n\
                    #600000\tDONE   cov: 97 ft: 321 corp: 32/1220b lim: 4096 exec/s: 100000 rss: 501Mb\n\
                    Done 600000 runs in 6 second(s)\nstat::number_of_executed_units: 600000\n\
                    stat::average_exec_per_sec:     100000\n";
        let report = Report::read("tokens", said, None);
        assert_eq!((report.executions, report.a_second), (600_000, 100_000));
        assert_eq!((report.edges, report.features, report.inputs), (97, 321, 32));
        assert_eq!(TITLES.len(), report.to_string().len());
    }

    #[test]
    fn what_was_found_is_shown_with_what_to_do() {
        let report = Report::read("tokens", "", Some("target/fuzz/tokens/crash-1".into()));
        assert!(report.to_string().ends_with("FOUND"));
        assert!(report.advice().contains("mv target/fuzz/tokens/crash-1 fuzz/corpus/tokens/"));
    }
}
