//! SQL92 against what the Java filter answered, and the limits that are ours.
//!
//! Invariants:
//! - each line of the golden table is `result expression name=value …`, separated by tabs; a result is T, F,
//!   N (unknown), E (evaluation failed) or P (does not compile); `\n` stands for a line end.

use std::path::PathBuf;

use super::*;
use crate::filter::BloomFilter;
use crate::filter::parser::{DEPTH_MAX, EXPRESSION_MAX_BYTES};
use crate::message::properties::put_property;

fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    let packed = std::fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    String::from_utf8(zstd::stream::decode_all(&packed[..]).unwrap()).unwrap()
}

fn answer(expression: &str, properties: &[u8]) -> &'static str {
    let Ok(filter) = SqlFilter::compile(expression) else { return "P" };
    let result = match filter.evaluate(PropertiesView(properties)) {
        Ok(Value::Bool(true)) => "T",
        Ok(Value::Bool(false)) => "F",
        Ok(Value::Null) => "N",
        Ok(other) => panic!("{expression} gave {other:?}"),
        Err(Incomparable) => "E",
    };
    assert_eq!(filter.matches(PropertiesView(properties)), result == "T");
    result
}

#[test]
fn every_answer_is_that_of_java() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in golden("sql92.tsv.zst").lines() {
        let mut parts = line.split('\t');
        let (result, expression) = (parts.next().unwrap(), parts.next().unwrap().replace("\\n", "\n"));
        let mut text = Vec::new();
        for (name, value) in parts.filter_map(|pair| pair.split_once('=')) {
            put_property(&mut text, name, value);
        }
        let found = answer(&expression, &text);
        if found != result {
            wrong.push(format!("{found} instead of {line}"));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 4000, "{compared}");
}

#[test]
fn what_java_ignores_behind_an_expression_is_an_error() {
    for expression in ["a = 1 garbage", "a = 1 )", "a LIKE 'x%'", "a + 1 = 2", "a = 05", "a = 1 'x'"] {
        assert_eq!(answer(expression, b""), "P", "{expression}");
    }
    assert_eq!(answer("a = 1 -- a comment to the end", b"a\x011\x02"), "T");
}

#[test]
fn zero_with_a_point_is_a_number() {
    assert_eq!(answer("a = 0.0", b"a\x010\x02"), "T");
    assert_eq!(answer("a >= 0e5", b"a\x01-1\x02"), "F");
    assert_eq!(answer("a = 1e-400", b""), "P");
}

#[test]
fn an_error_tells_what_is_wrong_and_where() {
    let cases = [
        (
            "price >",
            "a constant, a property, NOT, a sign or ( was expected, found the end at line 1, column 8",
        ),
        ("a = 1 AND\nb @ 2", "'@' is no part of SQL92 at line 2, column 3"),
        ("a IN (1)", "a text in single quotes was expected, found 1 at line 1, column 7"),
        ("a BETWEEN 5 AND 1", "the low bound is above the high bound, which ends at line 1, column 18"),
        (
            "a > 'x'",
            "only numbers and properties can be put in order; another constant ends at line 1, column 8",
        ),
    ];
    for (expression, message) in cases {
        let found = SqlFilter::compile(expression).unwrap_err().to_string();
        assert_eq!(found, format!("SQL92 expression is invalid: {message}"));
    }
}

#[test]
fn length_depth_and_names_have_limits_that_a_long_list_does_not_meet() {
    let or = (0..2000).map(|i| format!("a = {i}")).collect::<Vec<_>>().join(" OR ");
    assert_eq!(answer(&or, b"a\x011999\x02"), "T");
    let list = (0..3000).map(|i| format!("'{i}'")).collect::<Vec<_>>().join(",");
    assert_eq!(answer(&format!("a IN ({list})"), b"a\x012999\x02"), "T");
    assert_eq!(answer(&format!("a NOT IN ({list})"), b"a\x013000\x02"), "T");
    let nested = |depth: usize| format!("{}a = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(answer(&nested(DEPTH_MAX - 1), b"a\x011\x02"), "T");
    for too_deep in [nested(DEPTH_MAX), nested(30_000), "NOT ".repeat(16_000), "-".repeat(65_000)] {
        assert_eq!(answer(&too_deep, b""), "P");
    }
    assert_eq!(answer(&format!("a{}", " IS NULL".repeat(5000)), b""), "P");
    let names = |count: usize| (0..count).map(|i| format!("p{i} = 1")).collect::<Vec<_>>().join(" OR ");
    assert_eq!(answer(&names(PROPERTIES_MAX), b"p63\x011\x02"), "T");
    assert_eq!(answer(&names(PROPERTIES_MAX + 1), b""), "P");
    let long = "a".repeat(EXPRESSION_MAX_BYTES + 1);
    assert!(matches!(SqlFilter::compile(&long), Err(CodecError::TooLong { .. })));
}

#[test]
fn cut_and_changed_expressions_never_panic() {
    let table = golden("sql92.tsv.zst");
    for expression in table.lines().filter_map(|line| line.split('\t').nth(1)).step_by(5) {
        for (at, _) in expression.char_indices() {
            answer(&expression[..at], b"a\x011\x02");
            answer(&expression[at..], b"a\x01x\x02b\x012.5\x02");
        }
    }
}

#[test]
fn the_bit_maps_of_java_are_what_the_filters_of_its_groups_give() {
    let bloom = BloomFilter::default();
    let groups =
        [("cg_sql_1", "price > 30"), ("cg_sql_2", "region IN ('r1', 'r2') AND price BETWEEN 5 AND 50")].map(
            |(group, expression)| (bloom.of_group(group, "GoldSql"), SqlFilter::compile(expression).unwrap()),
        );
    let mut seen = 0;
    for line in golden("records/batch-cq.jsonl.zst").lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(wanted) = line["cqExt"]["filterBitMap"].as_str() else { continue };
        let mut text = Vec::new();
        for (name, value) in line["properties"].as_object().unwrap() {
            put_property(&mut text, name, value.as_str().unwrap());
        }
        let mut map = bloom.empty_map();
        for (data, filter) in &groups {
            if filter.matches(PropertiesView(&text)) {
                data.set_in(&mut map);
            }
        }
        let found: String = map.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(found, wanted.to_uppercase(), "{line}");
        seen += usize::from(wanted.bytes().any(|digit| digit != b'0'));
    }
    assert!(seen > 50, "{seen}");
}
