//! Plain aligned tables for terminals.

/// Rows under a head, columns as wide as their widest cell.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head.get(column).map_or(0, |cell| cell.len())]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut out = line(head.to_vec());
    for row in rows {
        out.push('\n');
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}

/// Microseconds for people.
#[cfg(feature = "tools")]
pub(crate) fn micros(value: u64) -> String {
    match value {
        0..1_000 => format!("{value} us"),
        1_000..1_000_000 => format!("{:.1} ms", value as f64 / 1e3),
        _ => format!("{:.2} s", value as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["edge-a".into(), "1".into()], vec!["b".into(), "22".into()]];
        assert_eq!(render(&["NODE", "RIF"], &rows), "NODE    RIF\nedge-a  1\nb       22");
        #[cfg(feature = "tools")]
        assert_eq!((micros(12), micros(1_500)), ("12 us".into(), "1.5 ms".into()));
    }
}
