//! The two pictures of a report, as SVG: agreement over bytes, and latency over bandwidth.

use std::collections::BTreeMap;
use std::fmt::Display;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::choose::{Plan, Planned};
use super::{Agreement, Bounds, Costs, Goal, Link};
use crate::candidate::Candidate;

const SIZE: (u32, u32) = (960, 440);
const FONT: (&str, u32) = ("sans-serif", 13);
const INK: RGBColor = RGBColor(31, 41, 55);
const FAINT: RGBColor = RGBColor(229, 231, 235);
/// Told apart by people who see colours differently (after Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 94, 60),
    RGBColor(110, 110, 110),
];
/// Most lines of a picture.
const MOST: usize = COLOURS.len();

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct ChartError(String);

fn drawn<E: Display>(error: E) -> ChartError {
    ChartError(error.to_string())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The family of a candidate: those of one share a line.
fn family(candidate: &Candidate) -> String {
    match candidate {
        Candidate::Local { .. } => "local".into(),
        Candidate::Exit { .. } => "exits alone".into(),
        Candidate::Input { .. } => "the input".into(),
        Candidate::Activation { cut, variant, .. } if variant == crate::manifest::PLAIN => {
            cut.clone()
        }
        Candidate::Activation { cut, variant, .. } => format!("{cut} ({variant})"),
    }
}

/// Bytes, share of agreement and its lower bound, both in percent.
type Rate = (f64, f64, f64);

/// The lines of that picture: the input, then the cuts in the order of the bytes that they need for
/// the agreement wanted.
fn rates(plan: &Plan, wanted: f64) -> Vec<(String, Vec<Rate>)> {
    let mut families: BTreeMap<String, Vec<Rate>> = BTreeMap::new();
    for planned in plan.candidates.iter().filter(|planned| planned.uplink_bytes > 0.0) {
        let (share, lower) = match planned.agreement {
            Agreement::Exact => (1.0, 1.0),
            Agreement::Measured { share, lower, .. } => (share, lower),
            Agreement::Assumed | Agreement::Unknown => continue,
        };
        families.entry(family(&planned.candidate)).or_default().push((
            planned.uplink_bytes,
            share * 100.0,
            lower * 100.0,
        ));
    }
    let fewest = |points: &[Rate]| {
        let good = points.iter().filter(|(_, _, lower)| *lower >= wanted);
        good.map(|(bytes, ..)| *bytes).fold(f64::INFINITY, f64::min)
    };
    let mut lines: Vec<(String, Vec<Rate>)> = families.into_iter().collect();
    lines.sort_by(|a, b| {
        let input = |line: &str| line != "the input";
        (input(&a.0), fewest(&a.1))
            .partial_cmp(&(input(&b.0), fewest(&b.1)))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    lines.truncate(MOST);
    lines
}

/// Agreement, with its lower bound as a whisker, over bytes towards the cloud. Of the cuts, those
/// are drawn that need the fewest bytes for what the bounds ask, so that the picture can be read.
pub(super) fn rate_fidelity(plan: &Plan) -> Result<String, ChartError> {
    let wanted = plan.bounds.min_agreement * 100.0;
    let mut lines = rates(plan, wanted);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let low = points().map(|(bytes, ..)| *bytes).fold(f64::INFINITY, f64::min);
    let high = points().map(|(bytes, ..)| *bytes).fold(0.0, f64::max);
    let floor = points().map(|(_, _, lower)| *lower).fold(99.0, f64::min);
    let floor = (floor.min(wanted) - 1.0).clamp(0.0, 98.0);
    let mut svg = String::new();
    if points().next().is_none() {
        return Ok(svg);
    }
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = frame(&area)
            .build_cartesian_2d((low * 0.7..high * 1.4).log_scale(), floor..100.4)
            .map_err(drawn)?;
        chart
            .configure_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style(FONT)
            .x_desc("bytes towards the cloud")
            .y_desc("agreement, %")
            .x_label_formatter(&|bytes| size(*bytes))
            .y_label_formatter(&|share| format!("{share:.1}"))
            .draw()
            .map_err(drawn)?;
        let least = [(low * 0.7, wanted), (high * 1.4, wanted)];
        chart
            .draw_series(DashedLineSeries::new(least, 6, 4, INK.stroke_width(1)))
            .map_err(drawn)?;
        for ((name, points), colour) in lines.iter_mut().zip(COLOURS) {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let whiskers = points.iter().map(|(bytes, share, lower)| {
                PathElement::new(
                    vec![(*bytes, *share), (*bytes, *lower)],
                    colour.mix(0.45).stroke_width(2),
                )
            });
            chart.draw_series(whiskers).map_err(drawn)?;
            let line = points.iter().map(|(bytes, share, _)| (*bytes, *share));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(drawn)?;
            let dots = points
                .iter()
                .map(|(bytes, share, _)| Circle::new((*bytes, *share), 4, colour.filled()));
            chart
                .draw_series(dots)
                .map_err(drawn)?
                .label(name.clone())
                .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)?;
        area.present().map_err(drawn)?;
    }
    Ok(svg)
}

/// Latency of what is best at some bandwidth, of the best that does not split and of the best that
/// does; round trip and the ratio of both directions stay those of the link.
pub(super) fn latency_over_bandwidth(
    costs: &Costs,
    link: &Link,
    bounds: &Bounds,
) -> Result<String, ChartError> {
    let steps = 61;
    let bandwidth = |step: i32| 10f64.powf(-1.0 + 4.0 * f64::from(step) / f64::from(steps - 1));
    let ratio = link.down_bps / link.up_bps;
    let mut lines: BTreeMap<Candidate, Vec<(f64, f64)>> = BTreeMap::new();
    let mut order: Vec<Candidate> = Vec::new();
    let plans: Vec<(f64, Plan)> = (0..steps)
        .map(|step| {
            let mbps = bandwidth(step);
            let link = Link { up_bps: mbps * 1e6, down_bps: mbps * ratio * 1e6, ..link.clone() };
            (mbps, costs.on(&link, Goal::Latency, bounds))
        })
        .collect();
    for (_, plan) in &plans {
        for best in [plan.recommended(), plan.best(true), plan.best(false)].into_iter().flatten() {
            if !order.contains(&best.candidate) && order.len() < MOST {
                order.push(best.candidate.clone());
            }
        }
    }
    for (mbps, plan) in &plans {
        for Planned { candidate, latency_us, .. } in &plan.candidates {
            if order.contains(candidate) {
                lines.entry(candidate.clone()).or_default().push((*mbps, latency_us / 1e3));
            }
        }
    }
    let values = || lines.values().flatten().map(|(_, ms)| *ms);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max).min(low * 1000.0);
    let mut svg = String::new();
    if lines.is_empty() {
        return Ok(svg);
    }
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let (bottom, top) = (low * 0.7, (high * 1.4).max(low * 4.0));
        let mut chart = frame(&area)
            .build_cartesian_2d((0.1..1000.0f64).log_scale(), (bottom..top).log_scale())
            .map_err(drawn)?;
        chart
            .configure_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style(FONT)
            .x_desc(format!("Mbps towards the cloud, round trip {} ms", link.rtt_us / 1e3))
            .y_desc("latency, ms")
            .x_label_formatter(&|mbps| format!("{mbps}"))
            .y_label_formatter(&|ms| format!("{ms}"))
            .draw()
            .map_err(drawn)?;
        let here = [(link.up_bps / 1e6, bottom), (link.up_bps / 1e6, top)];
        chart.draw_series(DashedLineSeries::new(here, 6, 4, INK.stroke_width(1))).map_err(drawn)?;
        for (candidate, colour) in order.iter().zip(COLOURS) {
            let points = lines.remove(candidate).unwrap_or_default();
            let points = points.into_iter().filter(move |(_, ms)| *ms <= top);
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(3)))
                .map_err(drawn)?
                .label(candidate.to_string())
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(3))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        area.present().map_err(drawn)?;
    }
    Ok(svg)
}

fn frame<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).x_label_area_size(44).y_label_area_size(60);
    builder
}

fn legend<'a, 'b, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, C>,
    at: SeriesLabelPosition,
) -> Result<(), ChartError>
where
    'b: 'a,
{
    chart
        .configure_series_labels()
        .position(at)
        .margin(12)
        .background_style(WHITE.mix(0.85))
        .border_style(FAINT)
        .label_font(FONT)
        .draw()
        .map_err(drawn)
}

/// Bytes for people.
pub(super) fn size(bytes: f64) -> String {
    match bytes {
        0.0..1e4 => format!("{bytes:.0}"),
        1e4..1e6 => format!("{:.1} k", bytes / 1e3),
        _ => format!("{:.1} M", bytes / 1e6),
    }
}
