//! Figures: collected, printed, written.

use std::{fs, path::Path};

use serde::Serialize;

/// One measured figure.
#[derive(Debug, Serialize)]
struct Figure {
    scenario: &'static str,
    name: String,
    unit: &'static str,
    runs: usize,
    min: f64,
    median: f64,
    max: f64,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Adds a figure that was measured several times.
    pub(crate) fn add(
        &mut self,
        scenario: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        mut runs: Vec<f64>,
    ) {
        runs.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (runs.first().copied(), runs.last().copied()) else { return };
        let figure =
            Figure { scenario, name: name.into(), unit, runs: runs.len(), min, median: runs[runs.len() / 2], max };
        println!(
            "{:<8} {:<44} {:>12.2} {:<12} ({:.2} to {:.2}, {} runs)",
            figure.scenario, figure.name, figure.median, figure.unit, figure.min, figure.max, figure.runs
        );
        self.0.push(figure);
    }

    /// Writes target/bench/results.json.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let folder = Path::new("target/bench");
        fs::create_dir_all(folder)?;
        let file = folder.join("results.json");
        fs::write(&file, serde_json::to_string_pretty(&self.0)?)?;
        println!("written to {}", file.display());
        Ok(())
    }
}

/// The value below which `share` of the samples lie. Sorts them.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
    samples.get(index).copied().unwrap_or(f64::NAN)
}
