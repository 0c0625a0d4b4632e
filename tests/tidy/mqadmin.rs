//! `docs/mqadmin.md` marks what the scenarios run.
//!
//! Invariants:
//! - each sub-command that is not marked `not run` is run by a scenario.

use std::fs;

use crate::source::root;

/// The scenarios that run sub-commands.
const SCENARIOS: [&str; 2] = ["AdminScenarios.java", "ToolScenarios.java"];

#[test]
fn every_marked_sub_command_of_mqadmin_is_run_by_a_scenario() {
    let folder = root().join("tests/interop/java/src/main/java/interop");
    let scenarios: String = SCENARIOS
        .map(|file| fs::read_to_string(folder.join(file)).expect("the scenarios are there"))
        .concat();
    let table = fs::read_to_string(root().join("docs/mqadmin.md")).expect("the table is there");
    let mut marked = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells[3].starts_with("not run") {
            continue;
        }
        for name in cells[1].split(", ").filter_map(|command| command.split(' ').next()) {
            assert!(scenarios.contains(&format!("\"{name}\"")), "no scenario runs {name}");
            marked += 1;
        }
    }
    assert!(marked > 80, "{marked} sub-commands");
}
