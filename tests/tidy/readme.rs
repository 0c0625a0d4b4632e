//! README and the documents name only what is there.
//!
//! Invariants:
//! - what the table of compatibility says a row is shown by is a path, a file of tests, a part of the interop run, a
//!   scenario of it or a recorded conversation; `*` stands for the rest of a name;
//! - a path into the sources is that of a file or folder, in whatever document it stands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::behaviour::scenarios;
use crate::limits::named;
use crate::source::{files_below, root};

/// Fewer rows would mean that the table is not read.
const ROWS_MIN: usize = 20;
/// Folders with sources.
const FOLDERS: [&str; 8] =
    ["actors/src/", "benches/", "codec/src/", "docs/", "examples/", "src/", "store/src/", "tests/"];

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).expect("the file is there and is text")
}

/// Whether one of these names is the given one, or begins as it does before its `*`.
fn is_one_of(names: &BTreeSet<String>, name: &str) -> bool {
    match name.split_once('*') {
        Some((begin, end)) => names.iter().any(|one| one.starts_with(begin) && one.ends_with(end)),
        None => names.contains(name),
    }
}

/// Names of the files below a folder, with their endings and without.
fn file_names(folder: &str) -> BTreeSet<String> {
    let mut files = Vec::new();
    files_below(&root().join(folder), &mut files);
    let name = |path: &PathBuf| path.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let names = files.iter().map(name);
    names.flat_map(|name| [name.split('.').next().unwrap_or_default().to_owned(), name]).collect()
}

/// Parts of the interop run, and its scenarios.
fn interop_names() -> BTreeSet<String> {
    let run = read("tests/interop/run");
    let parts = run.split_once("parts=${*:-").and_then(|(_, rest)| rest.split_once('}'));
    let (parts, _) = parts.expect("the run tells its parts");
    parts.split(' ').map(str::to_owned).chain(scenarios().into_keys()).collect()
}

/// Whether something is there that has a path; the last part may have a `*`.
fn is_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return false };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    is_one_of(&names, name)
}

#[test]
fn what_readme_says_a_row_is_shown_by_exists() {
    let readme = read("README.md");
    let table = readme.split_once("## Compatibility").and_then(|(_, rest)| rest.split_once("\n## "));
    let (shown_by, rows) = named(table.expect("README has the table").0);
    assert!(rows > ROWS_MIN, "{rows} rows");
    let known =
        [file_names("actors"), file_names("store"), file_names("tests/golden/frames"), interop_names()];
    let is_there = |name: &str| is_path(name) || known.iter().any(|names| is_one_of(names, name));
    let missing: Vec<&str> = shown_by.into_iter().filter(|name| !is_there(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_path_into_the_sources_that_a_document_names_is_there() {
    let mut documents = Vec::new();
    files_below(&root().join("docs"), &mut documents);
    let mut missing = Vec::new();
    for document in
        documents.iter().map(PathBuf::as_path).chain(["README.md", "BENCHMARKS.md"].map(Path::new))
    {
        let text = read(document);
        let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let words = quoted.filter_map(|command| command.split(' ').next());
        let paths = words.filter(|text| FOLDERS.iter().any(|folder| text.starts_with(folder)));
        let gone = paths.filter(|path| !is_path(path));
        missing.extend(gone.map(|path| format!("{}: {path}", document.display())));
    }
    assert_eq!(missing, Vec::<String>::new());
}
