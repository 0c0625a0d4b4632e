//! `docs/behaviour.md` names tests that exist, and every statement that clients rely on.
//!
//! Invariants:
//! - a name in its last column is that of a test function, or of a scenario of the official clients.

use std::collections::BTreeSet;
use std::fs;

use crate::source::{root, sources};

/// Where the scenarios of the Java clients are.
const SCENARIOS: &str = "tests/interop/java/src/main/java/interop";
/// The last statement of the list that tests quote by number.
const STATEMENTS: u32 = 140;

/// The rows of all tables: number and what holds it.
fn rows() -> Vec<(String, String)> {
    let text =
        fs::read_to_string(root().join("docs/behaviour.md")).expect("the table of behaviours is there");
    let cells = |line: &str| {
        let line = line.replace("\\|", " ");
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells.len() == 5).then(|| (cells[1].clone(), cells[3].clone()))
    };
    text.lines()
        .filter_map(cells)
        .filter(|(number, _)| number.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

/// The text between back-quotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_the_table_of_behaviours_names_exists() {
    let tests: BTreeSet<String> = sources()
        .iter()
        .flat_map(|source| source.functions().into_iter().map(|function| function.name).collect::<Vec<_>>())
        .collect();
    let files = fs::read_dir(root().join(SCENARIOS)).expect("the scenarios are there");
    let scenarios: String = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let is_there = |name: &str| tests.contains(name) || scenarios.contains(&format!("\"{name}\""));
    let rows = rows();
    let missing: Vec<&str> =
        rows.iter().flat_map(|(_, held)| quoted(held)).filter(|name| !is_there(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_statement_stands_in_the_table_of_behaviours_once() {
    let mut found = Vec::new();
    for (numbers, _) in rows() {
        for part in numbers.split(", ").filter(|part| !part.contains('.')) {
            match part.split_once(" to ") {
                Some((from, to)) => found.extend(number(from)..=number(to)),
                None => found.push(number(part)),
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, (1..=STATEMENTS).collect::<Vec<_>>());
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number of a statement"))
}
