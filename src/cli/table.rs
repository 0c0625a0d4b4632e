//! Tables for people, JSON lines for programs: how every command that looks something up prints it.
//!
//! Invariants:
//! - one row is one line, whichever form it takes; `--json` prints nothing but objects;
//! - columns are as wide as their widest cell; the last one is not padded, so that lines have no blanks at their end.

use clap::Args;
use serde::Serialize;

use super::Failure;
use super::output::Output;

/// Spaces between two columns.
const GAP: &str = "  ";

/// Longest part of a text that a table shows, in characters.
const SHOWN_MAX: usize = 40;

/// How a command prints what it found.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Form {
    /// Print a JSON object for each line
    #[arg(long)]
    json: bool,
}

/// One line of a table.
pub(super) trait Row: Serialize {
    /// Headings, in order.
    const COLUMNS: &'static [&'static str];

    /// As many cells as there are columns.
    fn cells(&self) -> Vec<String>;
}

impl Form {
    /// The form of a command that has a flag of its own for it.
    pub(super) fn json_if(json: bool) -> Form {
        Form { json }
    }

    /// Whether it is for programs.
    pub(super) fn is_json(self) -> bool {
        self.json
    }

    /// Prints all rows.
    pub(super) fn print<R: Row>(self, rows: &[R]) -> Result<(), Failure> {
        let mut out = Output::new();
        if self.json {
            rows.iter().try_for_each(|row| out.json(row))?;
        } else {
            for line in lines(R::COLUMNS, rows.iter().map(Row::cells).collect()) {
                out.line(line.as_bytes())?;
            }
        }
        out.flush()
    }

    /// Prints objects, or the text that is made of them all.
    pub(super) fn print_all<T: Serialize>(
        self,
        all: &[T],
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<(), Failure> {
        let mut out = Output::new();
        match self.json {
            true => all.iter().try_for_each(|one| out.json(one))?,
            false => out.line(text(all).as_bytes())?,
        }
        out.flush()
    }

    /// Prints one value: an object, or what `text` makes of it.
    pub(super) fn print_one<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let mut out = Output::new();
        match self.json {
            true => out.json(value)?,
            false => out.line(text(value).as_bytes())?,
        }
        out.flush()
    }

    /// Says that something was done; programs learn that from the exit code.
    pub(super) fn done(self, what: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let mut out = Output::new();
        out.line(what.as_bytes())?;
        out.flush()
    }
}

/// A text as it fits into a table.
pub(super) fn cut(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let cut: String = plain.take(SHOWN_MAX).collect();
    if cut.is_empty() { "-".to_owned() } else { cut }
}

fn lines(columns: &[&str], rows: Vec<Vec<String>>) -> Vec<String> {
    let mut all = vec![columns.iter().map(|column| (*column).to_owned()).collect()];
    all.extend(rows);
    let mut widths = vec![0; columns.len()];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    all.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = vec![vec!["orders".to_owned(), "8".to_owned()], vec!["a".to_owned(), String::new()]];
        assert_eq!(lines(&["topic", "queues"], rows), ["topic   queues", "orders  8", "a"]);
    }
}
