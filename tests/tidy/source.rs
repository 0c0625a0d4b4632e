//! The tree of sources as the rules see it: files, their code without comments and strings, their functions.
//!
//! Invariants:
//! - blanking keeps every line and column where it was, so that a finding points at the file as it is.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Folders with Rust sources; everything below them is looked at.
const FOLDERS: [&str; 7] = ["src", "codec", "store", "actors", "tests", "examples", "benches"];
/// Folders that are not ours to judge.
const SKIPPED: [&str; 5] = ["target", "golden", "interop", "browser", "node_modules"];

/// One Rust file.
pub(crate) struct Source {
    /// Path below the root of the repository.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The same with comments, strings and character literals blanked.
    pub(crate) code: String,
    /// Byte ranges of `#[cfg(test)]` modules in `code`; the whole file if it is test code.
    tests: Vec<Range<usize>>,
}

/// One function: where it begins, how long it is.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// The folder with the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source, sorted by path.
pub(crate) fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        files_below(&root().join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    paths.sort();
    paths.iter().map(|path| Source::read(path)).collect()
}

/// Every file below a folder that does not lie in a skipped folder.
pub(crate) fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        let skipped = path.file_name().is_some_and(|name| SKIPPED.iter().any(|skip| name == *skip));
        match path.is_dir() {
            true if skipped => {}
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

impl Source {
    fn read(path: &Path) -> Source {
        let text = fs::read_to_string(path).expect("a source is UTF-8");
        let below = path.strip_prefix(root()).expect("a source lies below the root");
        Source::of(&below.to_string_lossy(), text)
    }

    /// From a path and a text; what the rules' own tests use.
    pub(crate) fn of(path: &str, text: String) -> Source {
        let code = blanked(&text);
        // A program of its own that paces a load, not one of the tests that `cargo test` runs.
        let is_program = path.starts_with("tests/crash/");
        let whole_file = path.starts_with("tests/") && !is_program
            || path.contains("/tests/")
            || path.ends_with("_test.rs");
        let tests = if whole_file { std::iter::once(0..code.len()).collect() } else { test_modules(&code) };
        Source { path: path.to_owned(), text, code, tests }
    }

    /// Whether a byte of `code` belongs to tests.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The 1-based line of a byte of `code`.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        1 + self.code[..at].matches('\n').count()
    }

    /// The lines of the doc at the top of the file, without their marks.
    pub(crate) fn module_doc(&self) -> Vec<&str> {
        self.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect()
    }

    /// Every word of the code that could be a name, and where it stands.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        words_of(&self.code)
    }

    /// Every function with a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let words: Vec<_> = self.words().collect();
        let named = words.windows(2).filter(|pair| pair[0].1 == "fn");
        named.filter_map(|pair| self.function(pair[0].0, pair[1].1)).collect()
    }

    fn function(&self, at: usize, name: &str) -> Option<Function> {
        let end_of_head = at + self.code[at..].find(['{', ';'])?;
        if self.code.as_bytes()[end_of_head] == b';' && !self.code[at..end_of_head].contains('[') {
            return None;
        }
        let open = at + self.code[at..].find('{')?;
        let close = closing(&self.code, open);
        let line = self.line_of(at);
        Some(Function { name: name.to_owned(), line, lines: self.line_of(close) - line + 1 })
    }
}

/// The words that could be names, with their byte positions.
pub(crate) fn words_of(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let start = rest + code[rest..].find(is_name)?;
        let end = code[start..].find(|c| !is_name(c)).map_or(code.len(), |len| start + len);
        rest = end;
        Some((start, &code[start..end]))
    })
}

/// `SendMessageV2` and `send_message_v2` → `["send", "message", "v2"]`.
pub(crate) fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before_was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before_was_lower) {
            parts.push(String::new());
        }
        before_was_lower = c.is_lowercase() || c.is_numeric();
        if c != '_' {
            parts.last_mut().expect("there is always one part").extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Byte ranges of the modules behind `#[cfg(test)]`.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let attribute = "#[cfg(test)]";
    let starts = code.match_indices(attribute).map(|(at, _)| at);
    let with_body = |at: usize| {
        let open = at + code[at..].find(['{', ';'])?;
        Some(at..if code.as_bytes()[open] == b'{' { closing(code, open) } else { open })
    };
    starts.filter_map(with_body).collect()
}

/// The position of the brace that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The text with the inside of comments, strings and character literals replaced by spaces.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let skip = literal_len(rest);
        let taken = if skip > 0 { skip } else { plain_len(rest) };
        let (piece, after) = rest.split_at(taken);
        match skip {
            0 => out.push_str(piece),
            _ => out.extend(piece.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
        }
        rest = after;
    }
    out
}

/// A whole word, so that the `r` of `for"` is not taken for a raw string; or one character.
fn plain_len(text: &str) -> usize {
    let word = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    word.max(text.chars().next().map_or(0, char::len_utf8))
}

/// The length of the comment or literal at the start of the text, 0 if there is none.
fn literal_len(text: &str) -> usize {
    let until = |end: &str| text.find(end).unwrap_or(text.len());
    if text.starts_with("//") {
        return until("\n");
    }
    if text.starts_with("/*") {
        return block_comment_len(text);
    }
    let prefix = ["", "b", "c"].into_iter().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', 'r']) || rest.starts_with('\''))
    });
    let Some(prefix) = prefix else { return 0 };
    let rest = &text[prefix.len()..];
    let len = match rest.as_bytes() {
        [b'"', ..] => string_len(rest),
        [b'\'', ..] => char_len(rest),
        _ => raw_string_len(rest),
    };
    if len == 0 { 0 } else { prefix.len() + len }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// 0 for a lifetime.
fn char_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((after, _))) => {
            text[after + 1..].find('\'').map_or(0, |len| after + 1 + len + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// 0 if it is no raw string.
fn raw_string_len(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let from = 2 + hashes;
    text[from..].find(&end).map_or(text.len(), |len| from + len + end.len())
}

#[test]
fn comments_and_literals_are_blanked_and_nothing_moves() {
    let text = concat!(
        r#"let a = "fn \" x"; // fn b"#,
        "\n",
        r##"let c: &'static str = r#"unsafe " "#; /* a /* b */ */ let d = '\'';"##
    );
    let code = blanked(text);
    assert_eq!(code.len(), text.len());
    assert!(!code.contains("fn") && !code.contains("unsafe"), "{code}");
    assert!(code.contains("let c: &'static str =") && code.contains("let d ="), "{code}");
}

#[test]
fn functions_are_found_with_their_length() {
    let text =
        "fn a() {\n    b()\n}\ntrait T {\n    fn c();\n}\nfn d() -> [u8; 2] {\n    [1, 2]\n}\n".to_owned();
    let found: Vec<_> = Source::of("x.rs", text).functions().iter().map(|f| (f.line, f.lines)).collect();
    assert_eq!(found, [(1, 3), (7, 3)]);
}

#[test]
fn names_fall_into_their_parts() {
    assert_eq!(parts_of("SendMessageV2"), ["send", "message", "v2"]);
    assert_eq!(parts_of("BATCH_MQ"), ["batch", "mq"]);
}
