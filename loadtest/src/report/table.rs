//! A report as plain text: aligned columns, no colours, no terminal width. It computes nothing.

use std::fmt::Write;

use super::{Latency, Report, Stopped};

pub(super) fn render(report: &Report) -> String {
    let mut out = head(report);
    if let Some(latency) = &report.latency {
        out.push('\n');
        out += &answers(report, latency);
    }
    if !report.errors.is_empty() {
        out.push('\n');
        let header = ["errors", "count", "first cause"].map(str::to_owned).to_vec();
        let row = |e: &super::ErrorCount| vec![e.kind.clone(), grouped(e.count), e.sample.clone()];
        let rows = std::iter::once(header).chain(report.errors.iter().map(row)).collect();
        out += &aligned(&[Side::Left, Side::Right, Side::Left], rows);
    }
    for note in &report.notes {
        put(&mut out, format_args!("\nnote: {note}\n"));
    }
    out
}

fn head(report: &Report) -> String {
    let settings = &report.settings;
    let loop_kind = match settings.rate_per_s {
        Some(rate) => format!("open loop, {} at {rate}/s", settings.pace),
        None => "closed loop".to_owned(),
    };
    let stopped = match report.stopped {
        None => "",
        Some(Stopped::Cancelled) => " (stopped early: cancelled)",
        Some(Stopped::Duration) => " (stopped early: time is up)",
        Some(Stopped::Failure) => " (stopped early: a request failed)",
    };
    let failed = report.requests - report.answers;
    let mut rows = vec![
        [
            "asked",
            &format!(
                "{} at {}, {}, {} tensors",
                settings.model, settings.endpoint, settings.protocol, settings.body
            ),
        ],
        [
            "load",
            &format!(
                "{loop_kind}, at most {} in flight, seed {}",
                settings.concurrency, settings.seed
            ),
        ],
        [
            "requests",
            &format!(
                "{} of {}, {} failed{stopped}",
                grouped(report.requests),
                grouped(settings.requests),
                grouped(failed)
            ),
        ],
        [
            "throughput",
            &format!(
                "{:.1} answers/s over {:.2} s",
                report.answers_per_s,
                report.wall_us as f64 / 1e6
            ),
        ],
    ]
    .into_iter()
    .map(|row| row.map(str::to_owned).to_vec())
    .collect::<Vec<_>>();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    if let (Some(accuracy), Some(edge)) = (report.accuracy, report.edge_share) {
        row("accuracy", percent(accuracy));
        row("at the edge", percent(edge));
    }
    if settings.rate_per_s.is_some() {
        let late = report.late;
        let longest = millis(late.max_us);
        row("sent late", format!("{} (longest wait {longest} ms)", grouped(late.count)));
    }
    if let Some(uplink) = &report.uplink {
        let (up, down) = (uplink.bytes_up, uplink.bytes_down);
        let mut text = format!("{} bytes up, {} down", grouped(up), grouped(down));
        if let Some(each) = uplink.bytes_per_hard_case {
            let cases = grouped(uplink.hard_cases);
            put(&mut text, format_args!("; {each:.1} up for each of {cases} hard cases"));
        }
        row("uplink", text);
    }
    aligned(&[Side::Left, Side::Left], rows)
}

fn answers(report: &Report, all: &Latency) -> String {
    let header =
        ["answered by", "count", "share", "accuracy", "p50 ms", "p90 ms", "p99 ms", "max ms"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut row = |name: &str, count: usize, accuracy: f64, latency: &Latency| {
        let share = percent(count as f64 / report.answers.max(1) as f64);
        let mut cells = vec![name.to_owned(), grouped(count), share, percent(accuracy)];
        let Latency { p50_us, p90_us, p99_us, max_us } = *latency;
        cells.extend([p50_us, p90_us, p99_us, max_us].map(millis));
        rows.push(cells);
    };
    for kind in &report.kinds {
        row(&kind.kind, kind.count, kind.accuracy, &kind.latency);
    }
    row("all", report.answers, report.accuracy.unwrap_or(0.0), all);
    let mut sides = [Side::Right; 8];
    sides[0] = Side::Left;
    aligned(&sides, rows)
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
}

/// Pads every column to its widest cell; no trailing blanks.
fn aligned(sides: &[Side], rows: Vec<Vec<String>>) -> String {
    let mut widths = vec![0; sides.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, &width), side) in row.iter().zip(&widths).zip(sides) {
            match side {
                Side::Left => put(&mut line, format_args!("{cell:<width$}  ")),
                Side::Right => put(&mut line, format_args!("{cell:>width$}  ")),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok());
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn millis(us: u64) -> String {
    format!("{:.2}", us as f64 / 1e3)
}

/// Digits in groups of three.
fn grouped(number: impl ToString) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three() {
        let all = [0_u64, 12, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "12", "999", "1,000", "123,456", "1,234,567"]);
    }
}
