//! Padded Markdown tables, so that the same text reads well in a terminal.

use std::fmt;

/// Which side of a column is straight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[(&str, Align)]) -> Self {
        Self {
            heads: heads
                .iter()
                .map(|(head, align)| ((*head).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len(), "one cell for each column");
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let width = |text: &str| text.chars().count();
        self.heads
            .iter()
            .enumerate()
            .map(|(column, (head, _))| {
                let cells = self.rows.iter().map(|row| width(&row[column]));
                // Three is the shortest rule that Markdown takes.
                cells.chain([width(head), 3]).max().unwrap_or(3)
            })
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[&str]| {
            for ((cell, width), (_, align)) in cells.iter().zip(&widths).zip(&self.heads) {
                match align {
                    Align::Left => write!(f, "| {cell:<width$} ")?,
                    Align::Right => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")
        };
        let heads: Vec<&str> = self.heads.iter().map(|(head, _)| head.as_str()).collect();
        line(f, &heads)?;
        for (width, (_, align)) in widths.iter().zip(&self.heads) {
            match align {
                Align::Left => write!(f, "|{:-<width$}", "", width = width + 2)?,
                Align::Right => write!(f, "|{:-<width$}:", "", width = width + 1)?,
            }
        }
        writeln!(f, "|")?;
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            line(f, &cells)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_straight() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".into(), "1000".into()]);
        table.row(vec!["länger".into(), "1".into()]);
        assert_eq!(
            table.to_string(),
            "| name   |    n |\n\
             |--------|-----:|\n\
             | a      | 1000 |\n\
             | länger |    1 |\n"
        );
    }
}
