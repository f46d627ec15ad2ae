//! The figures: collects the measured results, and prints each one as soon as it is known.

use serde::Serialize;

use crate::latencies::Latencies;

/// The target that a figure is supposed to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// The median of the figure is at most this.
    AtMost(f64),
    /// [`Figure::ratio`] is at least this.
    RatioAtLeast(f64),
    /// [`Figure::ratio`] is at most this.
    RatioAtMost(f64),
}

/// One measured figure, in the form in which it is written.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) scenario: &'static str,
    #[serde(rename = "figure")]
    pub(crate) name: String,
    /// The median of the runs: the same number as `median`, under the name that readers of the
    /// results look for.
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The name of the measurement that this figure is compared with in the same run.
    pub(crate) baseline: Option<String>,
    /// The median of the baseline's runs.
    pub(crate) baseline_value: Option<f64>,
    /// The median of the ratios to the baseline. Each run is compared with the baseline's run that
    /// was measured directly before or after it.
    pub(crate) ratio: Option<f64>,
    /// These ratios, in the order of the rounds. Empty without a baseline.
    pub(crate) ratios: Vec<f64>,
    /// The target as a text, such as `≤ 25`.
    pub(crate) target: Option<String>,
    /// Whether the figure reaches the target. `None` without a target, or without the baseline that
    /// the target needs.
    pub(crate) holds: Option<bool>,
    /// How often the figure was measured.
    pub(crate) runs: usize,
    /// The lowest, the median and the highest run, for plots.
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// The lowest and the highest of the baseline's runs, for plots.
    #[serde(skip)]
    pub(crate) baseline_spread: Option<[f64; 2]>,
}

impl Figure {
    /// A figure that was measured one or more times.
    pub(crate) fn new(
        scenario: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        values: &[f64],
    ) -> Self {
        let value = median(values);
        Self {
            scenario,
            name: name.into(),
            value,
            unit,
            baseline: None,
            baseline_value: None,
            ratio: None,
            ratios: Vec::new(),
            target: None,
            holds: None,
            runs: values.len(),
            min: least(values),
            median: value,
            max: most(values),
            baseline_spread: None,
        }
    }

    /// Adds a baseline. `values[i]` and `baseline[i]` were measured in the same round.
    pub(crate) fn with_baseline(
        self,
        name: impl Into<String>,
        values: &[f64],
        baseline: &[f64],
    ) -> Self {
        let ratios: Vec<f64> = values
            .iter()
            .zip(baseline)
            .map(|(value, base)| value / base)
            .collect();
        Self {
            baseline: Some(name.into()),
            baseline_value: Some(median(baseline)),
            ratio: Some(median(&ratios)),
            ratios,
            baseline_spread: Some([least(baseline), most(baseline)]),
            ..self
        }
    }

    /// Adds a target. A target for the ratio has no verdict if there is no baseline.
    pub(crate) fn with_target(self, target: Target) -> Self {
        let (text, holds) = match target {
            Target::AtMost(most) => (format!("≤ {most}"), Some(self.value <= most)),
            Target::RatioAtLeast(least) => (
                format!("ratio ≥ {least}"),
                self.ratio.map(|ratio| ratio >= least),
            ),
            Target::RatioAtMost(most) => (
                format!("ratio ≤ {most}"),
                self.ratio.map(|ratio| ratio <= most),
            ),
        };
        Self {
            target: Some(text),
            holds,
            ..self
        }
    }

    /// Adds a target that its scenario has already judged.
    pub(crate) fn with_verdict(self, target: &str, holds: bool) -> Self {
        Self {
            target: Some(target.to_owned()),
            holds: Some(holds),
            ..self
        }
    }

    /// Whether the figure reaches its target, in a word; empty if it has no target.
    pub(crate) fn verdict(&self) -> &'static str {
        match (&self.target, self.holds) {
            (None, _) => "",
            (Some(_), Some(true)) => "holds",
            (Some(_), Some(false)) => "MISSED",
            (Some(_), None) => "unknown",
        }
    }
}

/// Latencies of one kind of calls, of all runs together: one line of a plot.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) scenario: &'static str,
    pub(crate) name: String,
    pub(crate) latencies: Latencies,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    all: Vec<Figure>,
    curves: Vec<Curve>,
}

impl Figures {
    /// Adds a figure without baseline or target.
    pub(crate) fn add(
        &mut self,
        scenario: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) {
        self.put(Figure::new(
            scenario,
            name,
            unit,
            &values.into_iter().collect::<Vec<_>>(),
        ));
    }

    /// Adds a figure and prints it.
    pub(crate) fn put(&mut self, figure: Figure) {
        println!(
            "{}: {} {} {} {}",
            figure.scenario,
            figure.name,
            format_number(figure.value),
            figure.unit,
            figure.verdict()
        );
        self.all.push(figure);
    }

    /// Adds a curve to the plot: the latencies of one kind of calls, all runs combined.
    pub(crate) fn add_curve<'a>(
        &mut self,
        scenario: &'static str,
        name: impl Into<String>,
        runs: impl IntoIterator<Item = &'a Latencies>,
    ) {
        let mut latencies = Latencies::default();
        runs.into_iter().for_each(|run| latencies.add(run));
        self.curves.push(Curve {
            scenario,
            name: name.into(),
            latencies,
        });
    }

    /// All figures, in the order in which they were measured.
    pub(crate) fn all(&self) -> &[Figure] {
        &self.all
    }

    /// All curves.
    pub(crate) fn curves(&self) -> &[Curve] {
        &self.curves
    }
}

/// Formats a number for people: three decimals below 1, two below 10, one below 1,000, then none;
/// with commas between thousands. Zero has no decimals.
pub(crate) fn format_number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 1_000.0 => 1,
        _ => 0,
    };
    let plain = format!("{value:.decimals$}");
    let whole = plain.find('.').unwrap_or(plain.len());
    let mut grouped = String::new();
    for (place, character) in plain.char_indices() {
        let digits_left = whole.saturating_sub(place);
        if place > 0 && place < whole && digits_left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(character);
    }
    grouped
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// The median of the values. For an even number of values, the upper of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_runs_of_the_same_round() {
        let figure = Figure::new("a", "b", "c", &[20.0, 30.0, 90.0]).with_baseline(
            "base",
            &[20.0, 30.0, 90.0],
            &[10.0, 10.0, 90.0],
        );
        assert_eq!(
            (figure.ratio, figure.baseline_value),
            (Some(2.0), Some(10.0))
        );
        let ratios: Vec<String> = figure.ratios.iter().copied().map(format_number).collect();
        assert_eq!(ratios, ["2.00", "3.00", "1.00"]);
        assert_eq!(
            figure.with_target(Target::RatioAtLeast(1.5)).verdict(),
            "holds"
        );
    }

    #[test]
    fn a_ratio_target_has_no_verdict_without_a_baseline() {
        let figure = Figure::new("a", "b", "c", &[20.0]).with_target(Target::RatioAtLeast(1.5));
        assert_eq!((figure.holds, figure.verdict()), (None, "unknown"));
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        let all = [
            0.0,
            0.1234,
            1.234,
            12.34,
            999.94,
            1234.5,
            1_234_567.0,
            -1234.0,
        ]
        .map(format_number);
        assert_eq!(
            all,
            [
                "0",
                "0.123",
                "1.23",
                "12.3",
                "999.9",
                "1,234",
                "1,234,567",
                "-1,234"
            ]
        );
    }
}
