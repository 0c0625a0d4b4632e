//! Files of settings: `troupemq.toml`, or RocketMQ's `key=value` lines for any other name.
//!
//! Invariants:
//! - every value comes with the line it stands on;
//! - both forms know the same keys; a TOML file may sort them into tables, each key into its own.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Given, Origin, Part, SettingsError};

/// What a file says.
pub(super) fn given(file: &Path, text: &str) -> Result<Vec<Given>, SettingsError> {
    match file.extension().is_some_and(|ending| ending == "toml") {
        true => of_toml(file, text),
        false => of_properties(file, text),
    }
}

fn of_properties(file: &Path, text: &str) -> Result<Vec<Given>, SettingsError> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let origin = Origin::Line { file: file.to_owned(), line: at + 1 };
        let Some((key, value)) = line.split_once('=') else {
            let cause = SettingsError::NoValue { text: line.to_owned() };
            return Err(SettingsError::At { origin, cause: Box::new(cause) });
        };
        let (key, text) = (key.trim().to_owned(), unquoted(value.trim()).to_owned());
        all.push(Given { table: None, key, text, origin });
    }
    Ok(all)
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn of_toml(file: &Path, text: &str) -> Result<Vec<Given>, SettingsError> {
    let place = |at: usize| Origin::Line {
        file: file.to_owned(),
        line: 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count(),
    };
    let wrong = |at, cause| SettingsError::At { origin: place(at), cause: Box::new(cause) };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        wrong(at, SettingsError::Syntax { why: error.message().to_owned() })
    })?;
    let mut all = Vec::new();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        match value.get_ref() {
            DeValue::Table(inner) => {
                if !Part::ALL.iter().any(|part| part.table() == key.get_ref()) {
                    let tables: Vec<_> = Part::ALL.iter().map(|part| part.table().to_owned()).collect();
                    let nearest = super::known::nearest(key.get_ref(), tables.iter());
                    let unknown = SettingsError::Unknown { key: key.get_ref().to_string(), nearest };
                    return Err(wrong(at, unknown));
                }
                for (name, value) in inner {
                    let at = name.span().start;
                    let text = scalar(name.get_ref(), value).map_err(|cause| wrong(at, cause))?;
                    let table = Some(key.get_ref().to_string());
                    all.push(Given { table, key: name.get_ref().to_string(), text, origin: place(at) });
                }
            }
            _ => {
                let text = scalar(key.get_ref(), value).map_err(|cause| wrong(at, cause))?;
                all.push(Given { table: None, key: key.get_ref().to_string(), text, origin: place(at) });
            }
        }
    }
    Ok(all)
}

/// A value as text; lists and further tables are no settings.
fn scalar(key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, SettingsError> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(is) => Ok(is.to_string()),
        other => Err(SettingsError::Value {
            key: key.to_owned(),
            value: other.type_str().to_owned(),
            wanted: "a text, a number, true or false",
        }),
    }
}
