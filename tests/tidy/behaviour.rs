//! `docs/behaviour.md` names tests that exist, and every statement that clients rely on.
//!
//! Invariants:
//! - a name in its last column is that of a test function, or of a scenario of the official clients;
//! - of the scenarios of a statement one quotes its number, or the row says why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::source::{root, sources};

/// Where the scenarios of the official clients are, and how the line of one begins.
const SCENARIOS: [(&str, &str); 2] =
    [("tests/interop/java/src/main/java/interop", "list.add("), ("tests/interop/go", "\t{")];
/// What the last column says of a statement that no client can look at, or that does not apply.
const NO_SCENARIO: [&str; 3] = ["no scenario: ", "not here yet", "deliberately absent"];
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

/// Name and description of every scenario.
pub(crate) fn scenarios() -> BTreeMap<String, String> {
    let mut found = BTreeMap::<String, String>::new();
    for (folder, begin) in SCENARIOS {
        for file in fs::read_dir(root().join(folder)).expect("the scenarios are there").flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            for entry in text.split(begin).skip(1).filter(|entry| entry.starts_with('"')) {
                let mut words = entry.split('"').skip(1).step_by(2);
                let name = words.next().expect("it starts with a quotation mark");
                let holds = found.entry(name.to_owned()).or_default();
                holds.push_str(words.next().unwrap_or_default());
                holds.push('\n');
            }
        }
    }
    found
}

/// The statements that a row is about; none for a part of the broker.
fn statements(numbers: &str) -> Vec<u32> {
    let parts = numbers.split(", ").filter(|part| !part.contains('.'));
    parts
        .flat_map(|part| match part.split_once(" to ") {
            Some((from, to)) => number(from)..=number(to),
            None => number(part)..=number(part),
        })
        .collect()
}

/// Whether a description quotes this number.
fn quotes(holds: &str, number: u32) -> bool {
    let quoted = holds.split('#').skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    quoted.flatten().any(|digits| digits.parse() == Ok(number))
}

#[test]
fn every_test_that_the_table_of_behaviours_names_exists() {
    let tests: BTreeSet<String> = sources()
        .iter()
        .flat_map(|source| source.functions().into_iter().map(|function| function.name).collect::<Vec<_>>())
        .collect();
    let scenarios = scenarios();
    let rows = rows();
    let missing: Vec<&str> = rows
        .iter()
        .flat_map(|(_, held)| quoted(held))
        .filter(|name| !tests.contains(*name) && !scenarios.contains_key(*name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_statement_names_a_scenario_that_quotes_its_number_or_says_why_not() {
    let scenarios = scenarios();
    let mut missing = Vec::new();
    for (numbers, held) in rows() {
        if NO_SCENARIO.iter().any(|reason| held.contains(reason)) {
            continue;
        }
        let named: Vec<&String> = quoted(&held).filter_map(|name| scenarios.get(name)).collect();
        let is_quoted = |statement: &u32| named.iter().any(|holds| quotes(holds, *statement));
        missing.extend(statements(&numbers).into_iter().filter(|statement| !is_quoted(statement)));
    }
    assert_eq!(missing, Vec::<u32>::new());
}

#[test]
fn every_statement_stands_in_the_table_of_behaviours_once() {
    let mut found: Vec<u32> = rows().iter().flat_map(|(numbers, _)| statements(numbers)).collect();
    found.sort_unstable();
    assert_eq!(found, (1..=STATEMENTS).collect::<Vec<_>>());
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number of a statement"))
}
