//! Plots: docs/performance/SCENARIO.svg, with one panel per unit, and one panel with the latencies
//! by percentile.

use std::{fs, path::Path};

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::figures::{Curve, Figure, Figures, format_number};

const FOLDER: &str = "docs/performance";
/// Width of a plot in pixels.
const WIDTH: u32 = 1_200;
/// Height of the title in pixels.
const TITLE_HEIGHT: u32 = 48;
/// Width of the names beside a panel in pixels.
const NAMES_WIDTH: u32 = 520;
/// Height of the axis below a panel in pixels.
const AXIS_HEIGHT: u32 = 72;
/// Height of a row of a panel in pixels.
const ROW_HEIGHT: u32 = 30;
/// Height of the panel with the latencies in pixels.
const CURVES_HEIGHT: u32 = 460;
/// The font. plotters writes its sizes to the file scaled by four fifths.
const FONT: &str = "sans-serif";
/// Color of anneal's own runs.
const OUR_COLOR: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
/// Color of the baselines.
const BASELINE_COLOR: RGBColor = RGBColor(0x77, 0x77, 0x77);
/// Colors of the lines in the panel with the latencies.
const LINE_COLORS: [RGBColor; 4] = [
    OUR_COLOR,
    BASELINE_COLOR,
    RGBColor(0xc4, 0x5a, 0x11),
    RGBColor(0x2e, 0x7d, 0x32),
];
/// Percentiles are drawn up to this many nines: three nines are 99.9 %.
const MAX_NINES: f64 = 3.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws every scenario that was measured.
pub(crate) fn draw(figures: &Figures) -> anyhow::Result<()> {
    fs::create_dir_all(FOLDER)?;
    let mut scenarios: Vec<&str> = figures.all().iter().map(|figure| figure.scenario).collect();
    scenarios.dedup();
    for scenario in scenarios {
        let curves: Vec<&Curve> = figures
            .curves()
            .iter()
            .filter(|curve| curve.scenario == scenario)
            .collect();
        let figures = figures
            .all()
            .iter()
            .filter(|figure| figure.scenario == scenario);
        plot(scenario, &panels(figures), &curves)?;
    }
    Ok(())
}

/// Figures of one unit.
struct Panel {
    unit: &'static str,
    rows: Vec<Row>,
}

/// The runs of one figure or of its baseline.
struct Row {
    name: String,
    color: RGBColor,
    min: f64,
    median: f64,
    max: f64,
}

impl Panel {
    fn height(&self) -> u32 {
        AXIS_HEIGHT + ROW_HEIGHT * self.rows.len() as u32
    }
}

/// One panel for each unit, in the order in which the units occur. A baseline follows the figure
/// that is compared with it; its name begins with "beside".
fn panels<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for figure in figures.filter(|figure| figure.min.is_finite() && figure.max.is_finite()) {
        let place = panels
            .iter()
            .position(|panel| panel.unit == figure.unit)
            .unwrap_or(panels.len());
        if place == panels.len() {
            panels.push(Panel {
                unit: figure.unit,
                rows: Vec::new(),
            });
        }
        let rows = &mut panels[place].rows;
        let (min, median, max) = (figure.min, figure.median, figure.max);
        rows.push(Row {
            name: figure.name.clone(),
            color: OUR_COLOR,
            min,
            median,
            max,
        });
        if let (Some(name), Some(median), Some([min, max])) = (
            &figure.baseline,
            figure.baseline_value,
            figure.baseline_spread,
        ) {
            rows.push(Row {
                name: format!("beside: {name}"),
                color: BASELINE_COLOR,
                min,
                median,
                max,
            });
        }
    }
    panels
}

fn plot(scenario: &str, panels: &[Panel], curves: &[&Curve]) -> anyhow::Result<()> {
    let file = Path::new(FOLDER).join(format!("{scenario}.svg"));
    let curves_height = if curves.is_empty() { 0 } else { CURVES_HEIGHT };
    let height = TITLE_HEIGHT + panels.iter().map(Panel::height).sum::<u32>() + curves_height;
    let root = SVGBackend::new(&file, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{scenario}: median, and the lowest and the highest run");
    root.draw(&Text::new(title, (16, 14), (FONT, 25)))?;
    let (_, mut rest) = root.split_vertically(TITLE_HEIGHT);
    for panel in panels {
        let (area, below) = rest.split_vertically(panel.height());
        draw_panel(&root, &area, panel)?;
        rest = below;
    }
    if !curves.is_empty() {
        draw_curves(&rest, curves)?;
    }
    root.present()?;
    println!("drawn: {}", file.display());
    Ok(())
}

/// Draws each row: a line from the lowest to the highest run, with a dot and a number at the
/// median.
fn draw_panel(root: &Area, area: &Area, panel: &Panel) -> anyhow::Result<()> {
    let rows = panel.rows.len() as f64;
    let most = panel.rows.iter().map(|row| row.max).fold(0.0, f64::max);
    // 1.12 leaves room for the dots and the numbers at the ends.
    let left = panel.rows.iter().map(|row| row.min).fold(0.0, f64::min) * 1.12;
    let right = if most > 0.0 { most * 1.12 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, NAMES_WIDTH)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT - 12)
        .build_cartesian_2d(left..right, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(panel.unit)
        .x_labels(8)
        .max_light_lines(0)
        .x_label_formatter(&|value| format_number(*value))
        .label_style((FONT, 17))
        .axis_desc_style((FONT, 18))
        .draw()?;
    let name_style = (FONT, 18)
        .into_font()
        .into_text_style(root)
        .pos(Pos::new(HPos::Right, VPos::Center));
    let number_style = (FONT, 17)
        .into_font()
        .into_text_style(root)
        .pos(Pos::new(HPos::Left, VPos::Center));
    for (place, row) in panel.rows.iter().enumerate() {
        let y = rows - place as f64 - 0.5;
        chart.draw_series([PathElement::new(
            vec![(row.min, y), (row.max, y)],
            row.color.stroke_width(3),
        )])?;
        chart.draw_series([Circle::new((row.median, y), 5, row.color.filled())])?;
        let (axis_x, row_y) = chart.backend_coord(&(left, y));
        root.draw(&Text::new(
            row.name.as_str(),
            (axis_x - 10, row_y),
            name_style.clone(),
        ))?;
        let (max_x, _) = chart.backend_coord(&(row.max, y));
        root.draw(&Text::new(
            format_number(row.median),
            (max_x + 10, row_y),
            number_style.clone(),
        ))?;
    }
    Ok(())
}

/// Draws latencies from the fastest call up to three nines, on a scale on which each nine takes the
/// same space.
fn draw_curves(area: &Area, curves: &[&Curve]) -> anyhow::Result<()> {
    let latencies_at = |nines: f64| {
        curves
            .iter()
            .map(move |curve| curve.latencies.percentile_ms(share(nines)))
    };
    // The vertical axis begins below the latency at 0.05 nines, the 11th percentile.
    let least = latencies_at(0.05)
        .filter(|ms| ms.is_finite())
        .fold(f64::INFINITY, f64::min);
    let most = latencies_at(MAX_NINES)
        .filter(|ms| ms.is_finite())
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(());
    }
    let mut chart = ChartBuilder::on(area)
        .margin(20)
        .margin_right(44)
        .caption("how long calls took, all runs together", (FONT, 21))
        .set_label_area_size(LabelAreaPosition::Left, 90)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(0.0..MAX_NINES, (least * 0.8..most * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of calls that took at most this long")
        .y_desc("milliseconds (logarithmic)")
        .x_labels(4)
        .y_labels(5)
        .max_light_lines(9)
        .x_label_formatter(&|nines| format!("{:.1} %", share(*nines) * 100.0))
        .y_label_formatter(&|ms| format_number(*ms))
        .label_style((FONT, 17))
        .axis_desc_style((FONT, 18))
        .draw()?;
    for (curve, color) in curves
        .iter()
        .zip(LINE_COLORS.into_iter().cycle())
        .filter(|(curve, _)| curve.latencies.count() > 0)
    {
        let points = (0..=60_u32).map(|step| f64::from(step) / 60.0 * MAX_NINES);
        let line = points.map(|nines| (nines, curve.latencies.percentile_ms(share(nines))));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(curve.name.as_str())
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 22, y)], color.stroke_width(3))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BASELINE_COLOR)
        .label_font((FONT, 18))
        .draw()?;
    Ok(())
}

/// The share for a number of nines: 0.9 for one, 0.99 for two.
fn share(nines: f64) -> f64 {
    1.0 - 10_f64.powf(-nines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_follows_its_figure_in_the_panel_of_their_unit() {
        let figures = [
            Figure::new("append", "rate", "messages/s", &[2.0, 3.0]).with_baseline(
                "pgbench",
                &[2.0, 3.0],
                &[1.0, 2.0],
            ),
            Figure::new("append", "p99", "ms", &[5.0]),
            Figure::new("append", "fewer", "messages/s", &[1.0]),
            Figure::new("append", "never measured", "ms", &[]),
        ];
        let panels = panels(figures.iter());
        let names: Vec<Vec<&str>> = panels
            .iter()
            .map(|panel| panel.rows.iter().map(|row| row.name.as_str()).collect())
            .collect();
        assert_eq!(
            names,
            [vec!["rate", "beside: pgbench", "fewer"], vec!["p99"]]
        );
    }
}
