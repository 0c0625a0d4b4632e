//! The tables of limits and of faults in the field name tests that exist.
//!
//! Invariants:
//! - a name in a last column is that of a test function, of a scenario of the official clients, or the path of a file
//!   or folder that is there.

use std::collections::BTreeSet;
use std::fs;

use crate::behaviour::scenarios;
use crate::source::{root, sources};

const TABLES: [&str; 2] = ["docs/limits.md", "docs/field-problems.md"];
/// Fewer rows would mean that the tables are not read.
const ROWS_MIN: usize = 20;

/// What stands between back-quotes in the last columns of a table, and the number of its rows.
pub(crate) fn named(text: &str) -> (Vec<&str>, usize) {
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let last = rows.iter().filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    (last.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect(), rows.len())
}

#[test]
fn every_test_that_limits_and_field_problems_name_exists() {
    let sources = sources();
    let tests = sources.iter().flat_map(|source| source.functions()).map(|function| function.name);
    let tests: BTreeSet<String> = tests.chain(scenarios().into_keys()).collect();
    for table in TABLES {
        let text = fs::read_to_string(root().join(table)).expect("the table is there");
        let (names, rows) = named(&text);
        let is_there = |name: &str| tests.contains(name) || root().join(name).try_exists().unwrap_or(false);
        let missing: Vec<&str> = names.into_iter().filter(|name| !is_there(name)).collect();
        assert_eq!(missing, Vec::<&str>::new(), "{table}");
        assert!(rows > ROWS_MIN, "{table}: {rows} rows");
    }
}
