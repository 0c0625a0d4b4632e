//! Rules about the shape of the source that clippy does not know.
//!
//! Invariants:
//! - a rule stands here or in clippy's configuration, never in both and never in a third place;
//! - a rule has no exceptions.
#[path = "tidy/behaviour.rs"]
mod behaviour;
#[path = "tidy/limits.rs"]
mod limits;
#[path = "tidy/mqadmin.rs"]
mod mqadmin;
#[path = "tidy/readme.rs"]
mod readme;
#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::fs;

use source::{Source, parts_of, root, sources, words_of};

/// Longer files hold more than one notion.
const FILE_LINES_MAX: usize = 600;
/// Longer functions do not fit on one screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Longer lines do not fit beside another file.
const LINE_CHARS_MAX: usize = 120;
/// Longest example, exclusive.
const EXAMPLE_LINES_MAX: usize = 120;
/// Bags have no reason to refuse anything.
const BAGS: [&str; 12] = [
    "util",
    "utils",
    "common",
    "helper",
    "helpers",
    "core",
    "base",
    "manager",
    "service",
    "impl",
    "processor",
    "misc",
];
/// Words that the glossary replaces: what not to write, what to write.
const BANNED: [(&str, &str); 14] = [
    ("mapped_file", "segment"),
    ("message_ext", "record or message"),
    ("logics", "consume queue"),
    ("cq", "consume queue"),
    ("committed_position", "wrote_to, flushed_to, confirmed_to or dispatched_to"),
    ("where_flushed", "flushed_to"),
    ("reput", "dispatch"),
    ("message_bridge", "half, op, checker"),
    ("ck", "pop check point"),
    ("buffer_merge", "pop check point"),
    ("pull_request_hold", "pull hold"),
    ("correlation_id", "opaque"),
    ("mq", "queue"),
    ("cid", "group or client id"),
];
/// Which crates each floor may name.
const FLOORS: [(&str, &[&str]); 4] = [
    ("codec", &[]),
    ("store", &["troupemq_codec"]),
    ("actors", &["troupemq_codec", "troupemq_store"]),
    ("src", &["troupemq_codec", "troupemq_store", "troupemq_actors", "troupemq"]),
];

/// Something that breaks a rule.
struct Finding {
    path: String,
    line: usize,
    item: String,
    what: String,
}

impl Finding {
    fn at(source: &Source, at: usize, item: &str, what: impl Into<String>) -> Finding {
        Finding {
            path: source.path.clone(),
            line: source.line_of(at),
            item: item.to_owned(),
            what: what.into(),
        }
    }
}

/// Fails with every finding, one a line.
fn judge(findings: Vec<Finding>) {
    let mut report = String::new();
    for Finding { path, line, item, what } in findings {
        report += &format!("{path}:{line}: {item}: {what}\n");
    }
    assert!(report.is_empty(), "\n{report}");
}

fn in_crates(source: &Source) -> bool {
    ["src/", "codec/src/", "store/src/", "actors/src/"].iter().any(|folder| source.path.starts_with(folder))
}

#[test]
fn files_functions_and_lines_are_short() {
    let mut findings = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(Finding::at(
                &source,
                0,
                "file",
                format!("{lines} lines, at most {FILE_LINES_MAX}"),
            ));
        }
        for function in source.functions().iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            let what = format!("{} lines, at most {FUNCTION_LINES_MAX}", function.lines);
            let (path, item) = (source.path.clone(), function.name.clone());
            findings.push(Finding { path, line: function.line, item, what });
        }
        for (index, line) in source.text.lines().enumerate() {
            let chars = line.chars().count();
            if chars > LINE_CHARS_MAX {
                let (path, item) = (source.path.clone(), "line".to_owned());
                let what = format!("{chars} characters, at most {LINE_CHARS_MAX}");
                findings.push(Finding { path, line: index + 1, item, what });
            }
        }
    }
    judge(findings);
}

#[test]
fn every_module_says_what_it_is_and_what_always_holds() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| in_crates(source)) {
        let doc = source.module_doc();
        if doc.first().is_none_or(|line| line.is_empty()) {
            findings.push(Finding::at(
                source,
                0,
                "doc",
                "the file does not begin with a sentence of what it is",
            ));
        }
        let head = doc.iter().position(|line| line.starts_with("Invariants") && line.ends_with(':'));
        if head.and_then(|at| doc.get(at + 1)).is_none_or(|line| !line.starts_with(['-', '*', '1'])) {
            findings.push(Finding::at(source, 0, "doc", "no list of `Invariants:` in the module doc"));
        }
    }
    judge(findings);
}

#[test]
fn imports_go_down_only() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| in_crates(source)) {
        let floor = source.path.split('/').next().expect("a path has a first part");
        let (_, allowed) = FLOORS.iter().find(|(name, _)| *name == floor).expect("a crate is a floor");
        let named = source.words().filter(|(_, word)| *word == "troupemq" || word.starts_with("troupemq_"));
        for (at, word) in named.filter(|(at, word)| !source.is_test(*at) && !allowed.contains(word)) {
            findings.push(Finding::at(source, at, word, format!("{floor} must not know it")));
        }
    }
    for (floor, allowed) in FLOORS.iter().filter(|(floor, _)| *floor != "src") {
        let path = format!("{floor}/Cargo.toml");
        let manifest = fs::read_to_string(root().join(&path)).expect("every floor has a manifest");
        let (_, dependencies) = manifest.split_once("[dependencies]").expect("a floor has dependencies");
        for name in dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next()) {
            if name.starts_with("troupemq") && !allowed.contains(&name.replace('-', "_").as_str()) {
                let what = format!("{floor} must not depend on it");
                findings.push(Finding { path: path.clone(), line: 1, item: name.to_owned(), what });
            }
        }
    }
    judge(findings);
}

#[test]
fn no_module_or_type_is_a_bag() {
    let mut findings = Vec::new();
    let bag = |name: &str| parts_of(name).into_iter().find(|part| BAGS.contains(&part.as_str()));
    for source in sources() {
        for folder_or_file in source.path.trim_end_matches(".rs").split('/') {
            if let Some(word) = bag(folder_or_file) {
                findings.push(Finding::at(&source, 0, folder_or_file, format!("`{word}` names a bag")));
            }
        }
        let words: Vec<_> = source.words().collect();
        for pair in words.windows(2) {
            let (keyword_at, keyword) = pair[0];
            let (at, name) = pair[1];
            let in_macro = source.code[..keyword_at].ends_with('$');
            let declares =
                matches!(keyword, "struct" | "enum" | "trait" | "type" | "mod" | "union") && !in_macro;
            if let Some(word) = bag(name).filter(|_| declares) {
                findings.push(Finding::at(&source, at, name, format!("`{word}` names a bag")));
            }
        }
    }
    judge(findings);
}

#[test]
fn names_are_the_words_of_the_glossary() {
    let sources = sources();
    let requests = request_names(&sources);
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| in_crates(source)) {
        for (at, word) in source.words() {
            let parts = format!("_{}_", parts_of(word).join("_"));
            let banned = BANNED.iter().find(|(bad, _)| parts.contains(&format!("_{bad}_")));
            let from_rocketmq =
                word.to_uppercase() == word || requests.iter().any(|name| parts.contains(name.as_str()));
            if let Some((bad, good)) = banned.filter(|_| !from_rocketmq) {
                findings.push(Finding::at(source, at, word, format!("not `{bad}` but {good}")));
            }
        }
        let words: Vec<_> = source.words().collect();
        for pair in words.windows(2).filter(|pair| pair[0].1 == "fn") {
            let (at, name) = pair[1];
            let accesses = source.code[at + name.len()..].starts_with("(&self)");
            if name.starts_with("get_") && accesses {
                findings.push(Finding::at(source, at, name, "what it gives is name enough, without `get_`"));
            }
        }
    }
    judge(findings);
}

/// RocketMQ's own names of requests (those of properties and flags are constants in capitals), as `_lock_batch_mq_`.
fn request_names(sources: &[Source]) -> BTreeSet<String> {
    let files = sources.iter().filter(|source| source.path.starts_with("codec/src/request"));
    let names = files.flat_map(|source| source.text.lines()).filter_map(|line| {
        let (_, after) = line.split_once("NAME: &'static str = \"")?;
        Some(format!("_{}_", after.split_once('"')?.0.to_lowercase()))
    });
    names.collect()
}

#[test]
fn unsafe_code_stands_in_one_file() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.path != "store/src/mmap.rs") {
        for (at, word) in source.words().filter(|(_, word)| *word == "unsafe") {
            findings.push(Finding::at(source, at, word, "only store/src/mmap.rs may"));
        }
    }
    judge(findings);
}

#[test]
fn tests_neither_sleep_nor_are_ignored() {
    let mut findings = Vec::new();
    for source in sources() {
        for (at, word) in source.words().filter(|(at, _)| source.is_test(*at)) {
            if word == "sleep" {
                findings.push(Finding::at(&source, at, word, "wait for what is expected, with a time limit"));
            }
            if word == "ignore" && source.code[..at].ends_with("#[") {
                findings.push(Finding::at(&source, at, word, "a test runs or is not there"));
            }
        }
    }
    judge(findings);
}

#[test]
fn errors_are_not_judged_by_their_text() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| in_crates(source)) {
        for (at, found) in source.code.match_indices("to_string().contains(") {
            if !source.is_test(at) {
                findings.push(Finding::at(source, at, found, "match on the variant"));
            }
        }
    }
    judge(findings);
}

#[test]
fn every_golden_file_is_used_by_a_test() {
    let mut files = Vec::new();
    let folder = root().join("tests/golden");
    if let Ok(entries) = fs::read_dir(&folder) {
        for entry in entries {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() { source::files_below(&path, &mut files) } else { files.push(path) }
        }
    }
    let sources = sources();
    let tests: Vec<_> = sources
        .iter()
        .filter(|source| !source.path.starts_with("tests/tidy"))
        .map(|source| &source.text)
        .collect();
    let mut findings = Vec::new();
    for path in files {
        let below = path.strip_prefix(&folder).expect("listed below it").to_string_lossy().into_owned();
        let mut names = words_with_folders(&below);
        names.push("README.md".to_owned());
        let used =
            below == "README.md" || names.iter().any(|name| tests.iter().any(|text| text.contains(name)));
        if !used {
            let path = format!("tests/golden/{below}");
            findings.push(Finding {
                path,
                line: 1,
                item: "file".to_owned(),
                what: "no test names it".to_owned(),
            });
        }
    }
    judge(findings);
}

/// `store/plain-clean/config/topics.json` → each folder and the file, as a test would write it.
fn words_with_folders(below: &str) -> Vec<String> {
    let mut names = vec![below.to_owned()];
    let mut rest = below;
    while let Some((folder, _)) = rest.rsplit_once('/') {
        names.extend([format!("golden/{folder}\""), format!("golden/{folder}/"), format!("\"{folder}\"")]);
        rest = folder;
    }
    names
}

#[test]
fn every_request_is_listed() {
    let sources = sources();
    let table =
        sources.iter().find(|source| source.path == "codec/src/request.rs").expect("codec has requests");
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("codec/src/request/")) {
        for (at, _) in source.code.match_indices("impl Request for ") {
            let rest = &source.code[at + "impl Request for ".len()..];
            let (_, name) = words_of(rest).next().expect("an impl names its type");
            let listed =
                [format!("<{name}>"), format!("::{name}>")].iter().any(|form| table.code.contains(form));
            if table.code.contains("REQUESTS") && !listed {
                findings.push(Finding::at(source, at, name, "not in REQUESTS of codec/src/request.rs"));
            }
        }
    }
    judge(findings);
}

#[test]
fn end_to_end_tests_are_one_binary() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let tables: Vec<_> = manifest.split("[[test]]").skip(1).collect();
    let names: BTreeSet<_> = tables.iter().filter_map(|table| table.split('"').nth(1)).collect();
    let allowed = BTreeSet::from(["main", "tidy"]);
    assert!(names.is_subset(&allowed), "test binaries {names:?}, allowed {allowed:?}");
    assert!(manifest.contains("autotests = false"), "cargo must not look for further test binaries");
}

#[test]
fn an_example_fits_on_two_screens() {
    let examples = sources().into_iter().filter(|source| source.path.starts_with("examples/"));
    let lengths: Vec<_> = examples.map(|source| (source.text.lines().count(), source.path)).collect();
    assert!(lengths.len() >= 11, "{lengths:?}");
    let long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines >= EXAMPLE_LINES_MAX).collect();
    assert!(long.is_empty(), "{long:?}, fewer than {EXAMPLE_LINES_MAX} lines are wanted");
}
