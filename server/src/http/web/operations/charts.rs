//! The metrics of the last hour as drawings. The figures are those of `/metrics`, sampled by
//! `anneal_process::metric_history`.

use std::fmt::Write as _;

use anneal_process::metric_history::{MetricHistory, SAMPLE_INTERVAL, SAMPLES, Series};
use anneal_web::{
    format,
    operations::{Chart, ChartLine},
};

/// Values over time, the oldest first. None: unknown.
type Values = Vec<Option<f64>>;

/// Width and height of a drawing.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 100.0;
/// Points of a line. More would be narrower than a pixel.
const POINTS: usize = 180;
/// Samples over which quantiles of durations are taken: a minute.
const QUANTILE_SAMPLES: usize = 6;

/// The charts of which there are figures.
pub(super) fn of_last_hour(history: &MetricHistory) -> Vec<Chart> {
    let sum = |name: &str| add_up(&history.series(name));
    let per_second = |name: &str| rates(&sum(name));
    let calls = history.series("anneal_rpc_server_duration_seconds_count");
    let (answered, failed): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|series| series.label == "OK");
    let durations = history.series("anneal_rpc_server_duration_seconds_bucket");
    let charts = [
        chart(
            "Calls",
            "per second",
            decimal,
            [
                ("answered", rates(&add_up(&answered))),
                ("refused or failed", rates(&add_up(&failed))),
            ],
        ),
        chart(
            "Duration of calls",
            "within a minute",
            milliseconds,
            [
                ("half of them below", quantiles(&durations, 0.5)),
                ("99 of 100 below", quantiles(&durations, 0.99)),
            ],
        ),
        chart(
            "Tokens of models",
            "per second",
            decimal,
            [
                ("read", per_second("anneal_model_input_tokens_total")),
                ("written", per_second("anneal_model_output_tokens_total")),
            ],
        ),
        chart(
            "Memory",
            "",
            bytes,
            [
                ("of the process", sum("process_resident_memory_bytes")),
                ("of waiting bytes", sum("anneal_waiting_bytes")),
            ],
        ),
        chart(
            "Processor",
            "cores",
            decimal,
            [("used", per_second("process_cpu_seconds_total"))],
        ),
        chart(
            "Connections",
            "",
            decimal,
            [
                ("open", sum("anneal_connections_open")),
                ("watches", sum("anneal_watchers")),
            ],
        ),
        chart(
            "Waiting",
            "",
            decimal,
            [
                ("calls for the database", sum("anneal_db_pool_waiting")),
                ("jobs", sum("anneal_jobs_waiting")),
            ],
        ),
    ];
    charts.into_iter().flatten().collect()
}

/// A chart of the lines that have a value. None: no line has one.
fn chart<const N: usize>(
    name: &str,
    unit: &str,
    show: fn(f64) -> String,
    lines: [(&str, Values); N],
) -> Option<Chart> {
    let mut lines: Vec<(&str, Values)> = lines.into();
    lines.retain(|(_, values)| values.iter().any(Option::is_some));
    let known = lines
        .iter()
        .flat_map(|(_, values)| values.iter().flatten().copied());
    let highest = known.reduce(f64::max)?;
    let length = lines.iter().map(|(_, values)| values.len()).max()?;
    let draw = |(label, values): (&str, Values)| ChartLine {
        label: label.to_owned(),
        newest: values.last().copied().flatten().map_or("–".into(), show),
        path: path(&values, highest),
    };
    Some(Chart {
        name: name.to_owned(),
        unit: unit.to_owned(),
        highest: show(highest),
        minutes: (length as u64 * SAMPLE_INTERVAL.as_secs()).div_ceil(60) as u32,
        lines: lines.into_iter().map(draw).collect(),
    })
}

/// The line of these values. The newest is at the right edge, and an hour fills the width. Two
/// samples make one point.
fn path(values: &[Option<f64>], highest: f64) -> String {
    let per_point = SAMPLES / POINTS;
    let mut path = String::new();
    let mut is_drawn = false;
    let points: Vec<Option<f64>> = values.rchunks(per_point).rev().map(mean).collect();
    let first = POINTS.saturating_sub(points.len());
    for (index, point) in points.into_iter().enumerate() {
        let Some(value) = point else {
            is_drawn = false;
            continue;
        };
        let x = (first + index + 1) as f64 * WIDTH / POINTS as f64;
        let share = if highest > 0.0 { value / highest } else { 0.0 };
        let y = HEIGHT - 2.0 - share.clamp(0.0, 1.0) * (HEIGHT - 4.0);
        let step = if is_drawn { 'L' } else { 'M' };
        // Writing to a text cannot fail.
        let _ = write!(path, "{step}{x:.0},{y:.1}");
        is_drawn = true;
    }
    path
}

/// The mean of the known values. None: none is known.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// The series added up. Unknown where none is known.
fn add_up(series: &[Series]) -> Values {
    let length = series.iter().map(|series| series.values.len()).max();
    let at = |index: usize| {
        let known = series.iter().filter_map(|series| series.values[index]);
        known.reduce(|a, b| a + b)
    };
    (0..length.unwrap_or_default()).map(at).collect()
}

/// How much a counter grows per second. A counter appears when it first counts, so it was 0 before.
fn rates(counter: &[Option<f64>]) -> Values {
    let growth = |pair: &[Option<f64>]| {
        let grown = pair[1]? - pair[0].unwrap_or_default();
        Some(grown.max(0.0) / SAMPLE_INTERVAL.as_secs_f64())
    };
    let first = counter.first().map(|_| None);
    first
        .into_iter()
        .chain(counter.windows(2).map(growth))
        .collect()
}

/// The quantile of the durations that were recorded within a minute before each sample, in
/// milliseconds, from the buckets of a histogram. Unknown where nothing was recorded.
fn quantiles(buckets: &[Series], quantile: f64) -> Values {
    let mut buckets: Vec<(f64, &Series)> = buckets
        .iter()
        .filter_map(|bucket| Some((bucket.label.parse().ok()?, bucket)))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let length = buckets.first().map_or(0, |(_, series)| series.values.len());
    let at = |index: usize| {
        // The first samples have no minute before them: the time since the first one is shorter.
        let before = index.saturating_sub(QUANTILE_SAMPLES);
        let counts: Vec<(f64, f64)> = buckets
            .iter()
            .map(|(limit, series)| {
                let earlier = series.values[before];
                let now = series.values[index].unwrap_or_default();
                (*limit, (now - earlier.unwrap_or_default()).max(0.0))
            })
            .collect();
        interpolate(&counts, quantile).map(|seconds| seconds * 1_000.0)
    };
    (0..length).map(at).collect()
}

/// The quantile of values of which so many (second) are at most so large (first), in ascending
/// order. Within a bucket it is interpolated, as Prometheus does.
fn interpolate(counts: &[(f64, f64)], quantile: f64) -> Option<f64> {
    let total = counts.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let wanted = total * quantile;
    let place = counts.iter().position(|(_, count)| *count >= wanted)?;
    let (limit, count) = counts[place];
    let (below, below_count) = place
        .checked_sub(1)
        .map_or((0.0, 0.0), |place| counts[place]);
    if limit.is_infinite() {
        return Some(below);
    }
    let inside = (count - below_count).max(f64::MIN_POSITIVE);
    Some(below + (limit - below) * (wanted - below_count) / inside)
}

fn decimal(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format::number(value as u64)
    }
}

fn milliseconds(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1} ms")
    } else {
        format::duration_ms(value as u64)
    }
}

fn bytes(value: f64) -> String {
    format::bytes(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(label: &str, values: &[f64]) -> Series {
        Series {
            label: label.to_owned(),
            values: values.iter().copied().map(Some).collect(),
        }
    }

    #[test]
    fn a_counter_becomes_a_rate_and_its_restart_is_no_fall() {
        let counter = [None, Some(20.0), Some(50.0), Some(10.0), None];
        assert_eq!(
            rates(&counter),
            [None, Some(2.0), Some(3.0), Some(0.0), None]
        );
    }

    #[test]
    fn quantiles_come_from_the_buckets_of_the_last_minute() {
        let buckets = [
            series("0.1", &[0.0, 50.0]),
            series("0.2", &[0.0, 100.0]),
            series("+Inf", &[0.0, 100.0]),
        ];
        let shown = |quantile| quantiles(&buckets, quantile)[1].map(f64::round);
        assert_eq!(shown(0.5), Some(100.0));
        assert_eq!(shown(0.75), Some(150.0));
        assert_eq!(quantiles(&buckets, 0.5)[0], None);
        assert_eq!(
            interpolate(&[(0.1, 0.0), (f64::INFINITY, 4.0)], 0.5),
            Some(0.1)
        );
    }

    #[test]
    fn quantiles_at_the_left_edge_leave_out_what_was_before_it() {
        let buckets = [
            series("0.1", &[1_000.0, 1_000.0]),
            series("0.2", &[1_000.0, 1_010.0]),
            series("+Inf", &[1_000.0, 1_010.0]),
        ];
        let shown = quantiles(&buckets, 0.5);
        assert_eq!(shown[0], None);
        assert_eq!(shown[1].map(f64::round), Some(150.0));
    }

    #[test]
    fn a_line_ends_at_the_right_edge_and_has_gaps_where_nothing_is_known() {
        let values = [Some(1.0), Some(1.0), None, None, Some(2.0), Some(2.0)];
        assert_eq!(path(&values, 2.0), "M356,50.0M360,2.0");
        let shown = chart(
            "A",
            "",
            decimal,
            [("a", values.to_vec()), ("b", vec![None])],
        );
        let shown = shown.expect("there are values");
        assert_eq!((shown.lines.len(), shown.minutes), (1, 1));
        assert_eq!((&*shown.highest, &*shown.lines[0].newest), ("2.0", "2.0"));
        assert!(chart("A", "", decimal, [("a", vec![None])]).is_none());
    }
}
