//! Tables for terminals and for `awk`: columns two blanks apart, no lines, no colour.

/// Renders the rows beneath the heads. The last column is not padded.
pub(crate) fn render<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| width(&row[column]));
        cells.chain([width(heads[column])]).max().unwrap_or(0)
    });
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let padded = format!("{cell:<width$}  ");
            line.push_str(&padded);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(heads);
    for row in rows {
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_start_at_the_same_place_and_nothing_trails() {
        let text = render(
            ["NAME", "STATE"],
            &[
                ["a".into(), "running".into()],
                ["longer".into(), String::new()],
            ],
        );
        assert_eq!(text, "NAME    STATE\na       running\nlonger\n");
    }

    #[test]
    fn an_empty_table_still_has_its_heads() {
        assert_eq!(render(["A", "B"], &[]), "A  B\n");
    }
}
