//! The output of a run: a table for people, and the results as JSON in target/bench/.

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    environment::Environment,
    figures::{Figure, Figures, format_number},
    pace::Pace,
};

/// The folder that results are written to.
const FOLDER: &str = "target/bench";

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    environment: Environment,
    /// One short round of everything: the figures are not meaningful.
    quick: bool,
    figures: &'a [Figure],
}

/// Writes the results of one or all scenarios, and prints the table. The last line that is printed
/// says how many targets hold and how many are missed.
pub(crate) fn write(figures: &Figures, pace: Pace, scenario: Option<&str>) -> anyhow::Result<()> {
    let quick = pace.is_quick();
    let report = Report {
        environment: Environment::read(),
        quick,
        figures: figures.all(),
    };
    fs::create_dir_all(FOLDER)?;
    let file = Path::new(FOLDER).join(file_name(pace, scenario));
    fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")?;
    println!("\n{}", table(figures.all()));
    if quick {
        println!("A QUICK run: one short round of everything. Its figures are not meaningful.");
    }
    println!("Written to {}.", file.display());
    println!("{}", verdict(figures.all()));
    Ok(())
}

/// `results.json` for a run of all scenarios at full pace; all other runs have other names.
fn file_name(pace: Pace, scenario: Option<&str>) -> String {
    let of_scenario = scenario.map(|name| format!("-{name}")).unwrap_or_default();
    let quick = if pace.is_quick() { "-quick" } else { "" };
    format!("results{of_scenario}{quick}.json")
}

/// How many targets hold, are missed and could not be judged.
fn verdict(figures: &[Figure]) -> String {
    let count = |verdict| {
        figures
            .iter()
            .filter(|figure| figure.verdict() == verdict)
            .count()
    };
    let unknown = match count("unknown") {
        0 => String::new(),
        unknown => format!(", {unknown} could not be judged"),
    };
    format!(
        "{} targets hold, {} are missed{unknown}.",
        count("holds"),
        count("MISSED")
    )
}

/// One line per figure, grouped by scenario.
fn table(figures: &[Figure]) -> String {
    let rows: Vec<[String; 7]> = figures.iter().map(row).collect();
    let head = [
        "figure",
        "median",
        "unit",
        "lowest – highest",
        "beside",
        "target",
        "",
    ]
    .map(str::to_owned);
    let mut widths = [0; 7];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut lines = vec![line(&head, widths)];
    let mut scenario = "";
    for (figure, row) in figures.iter().zip(&rows) {
        if figure.scenario != scenario {
            scenario = figure.scenario;
            lines.push(format!("\n{scenario}"));
        }
        lines.push(line(row, widths));
    }
    lines.join("\n")
}

fn row(figure: &Figure) -> [String; 7] {
    let baseline = match (&figure.baseline, figure.baseline_value, figure.ratio) {
        (Some(name), Some(value), Some(ratio)) => {
            format!(
                "{name}: {}, ratio {}",
                format_number(value),
                format_number(ratio)
            )
        }
        _ => String::new(),
    };
    let spread = match figure.runs {
        0 | 1 => String::new(),
        runs => format!(
            "{} – {} of {runs}",
            format_number(figure.min),
            format_number(figure.max)
        ),
    };
    let target = figure.target.clone().unwrap_or_default();
    [
        figure.name.clone(),
        format_number(figure.value),
        figure.unit.into(),
        spread,
        baseline,
        target,
        figure.verdict().into(),
    ]
}

/// One line of aligned cells. The medians are right-aligned, everything else is left-aligned.
fn line(cells: &[String; 7], widths: [usize; 7]) -> String {
    let cells = cells
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(place, (cell, width))| match place {
            1 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
    format!("  {}", cells.collect::<Vec<_>>().join("  "))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Target;

    fn figures() -> Vec<Figure> {
        vec![
            Figure::new("append", "256 callers", "messages/s", &[30_000.0])
                .with_baseline("pgbench", &[30_000.0], &[15_000.0])
                .with_target(Target::RatioAtLeast(1.5)),
            Figure::new("append", "p99", "ms", &[26.0]).with_target(Target::AtMost(25.0)),
            Figure::new("jobs", "without a baseline", "ms", &[1.0])
                .with_target(Target::RatioAtMost(2.0)),
            Figure::new("jobs", "without a target", "ms", &[1.0]),
        ]
    }

    #[test]
    fn the_last_line_counts_targets_by_verdict() {
        assert_eq!(
            verdict(&figures()),
            "1 targets hold, 1 are missed, 1 could not be judged."
        );
    }

    #[test]
    fn only_a_full_run_writes_the_results_of_all_scenarios() {
        let files = [
            (Pace::Full, None),
            (Pace::Full, Some("write_cost")),
            (Pace::Quick, None),
            (Pace::Quick, Some("jobs")),
        ];
        let names = files.map(|(pace, scenario)| file_name(pace, scenario));
        let wanted = [
            "results.json",
            "results-write_cost.json",
            "results-quick.json",
            "results-jobs-quick.json",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn figures_are_grouped_by_scenario() {
        let table = table(&figures());
        let at = |text: &str| table.find(text).unwrap();
        assert!(
            at("\nappend") < at("256 callers") && at("p99") < at("\njobs"),
            "{table}"
        );
        assert!(table.contains("pgbench: 15,000, ratio 2.00"), "{table}");
    }

    #[test]
    fn a_figure_is_written_with_exactly_its_fields() {
        let written = serde_json::to_value(&figures()[0]).unwrap();
        let mut names: Vec<_> = written
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        let wanted = "baseline baseline_value figure holds max median min ratio ratios runs scenario target unit value";
        assert_eq!(names.join(" "), wanted);
    }
}
