//! Java's properties text, `key=value` a line: how configuration is told and changed, and what `broker.conf` is.
//!
//! Invariants:
//! - every text is read as `java.util.Properties` reads it: comments, `=`, `:` or blanks between key and value,
//!   continued lines, escapes; of two equal keys the last one counts;
//! - a value gets the type that the field has; one that does not fit is refused, with nothing changed.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a text cannot be merged into a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    /// The value is not of the field's type.
    #[error("{key} = {value} is no {kind}")]
    WrongType {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What the field is.
        kind: &'static str,
    },
    /// The value is beyond what the field holds, or none of the words that it may be.
    #[error("{key} = {value} cannot be: {why}")]
    Misfit {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What the type says.
        why: String,
    },
}

/// A configuration after a text was merged into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged<T> {
    /// With the values of the text.
    pub config: T,
    /// Keys of the text that the configuration does not have.
    pub unknown: Vec<String>,
}

/// Reads a text.
pub fn parse(text: &str) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    for line in logical_lines(text) {
        let (key, value) = split(&line);
        pairs.insert(unescaped(key), unescaped(value));
    }
    pairs
}

/// A key that cannot be the name of a setting: the text it comes from is no configuration.
pub fn no_key(pairs: &BTreeMap<String, String>) -> Option<String> {
    let is_key =
        |key: &str| !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
    let found = pairs.keys().find(|key| !is_key(key))?;
    Some(format!("{:?} is no name of a setting", found.chars().take(64).collect::<String>()))
}

/// Writes a configuration, one field a line; fields that are `null` are left out.
pub fn write<T: Serialize>(config: &T) -> String {
    let mut text = String::new();
    for (key, value) in fields(config) {
        let value = match value {
            Value::Null => continue,
            Value::String(value) => value,
            value => value.to_string(),
        };
        text.push_str(&key);
        text.push('=');
        text.push_str(&value.replace('\\', "\\\\").replace('\n', "\\n"));
        text.push('\n');
    }
    text
}

/// A configuration with the values of a text.
pub fn merge<T: Serialize + DeserializeOwned + Clone>(
    config: &T,
    pairs: &BTreeMap<String, String>,
) -> Result<Merged<T>, PropertiesError> {
    let mut config = config.clone();
    let mut fields = fields(&config);
    let mut unknown = Vec::new();
    for (key, text) in pairs {
        let Some(value) = fields.get_mut(key) else {
            unknown.push(key.clone());
            continue;
        };
        *value = typed(key, text, value)?;
        // After each, so that it is known which one does not fit.
        config = T::deserialize(&fields).map_err(|error| PropertiesError::Misfit {
            key: key.clone(),
            value: text.clone(),
            why: error.to_string(),
        })?;
    }
    Ok(Merged { config, unknown })
}

fn fields<T: Serialize>(config: &T) -> serde_json::Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    }
}

/// The text as a value of the same type as the one before.
fn typed(key: &str, text: &str, before: &Value) -> Result<Value, PropertiesError> {
    let wrong = |kind| PropertiesError::WrongType { key: key.to_owned(), value: text.to_owned(), kind };
    match before {
        Value::Bool(_) => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(wrong("boolean")),
        },
        Value::Number(_) => match serde_json::from_str(text) {
            Ok(Value::Number(number)) => Ok(Value::Number(number)),
            _ => Err(wrong("number")),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Lines without comments and blank lines; a `\` at the end continues a line.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for natural in text.split(['\n', '\r']) {
        let line = natural.trim_start_matches([' ', '\t', '\x0c']);
        if open.is_none() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let mut whole = open.take().unwrap_or_default();
        let slashes = line.len() - line.trim_end_matches('\\').len();
        if slashes % 2 == 1 {
            whole.push_str(&line[..line.len() - 1]);
            open = Some(whole);
        } else {
            whole.push_str(line);
            lines.push(whole);
        }
    }
    lines.extend(open.filter(|line| !line.is_empty()));
    lines
}

/// Cuts at the first `=`, `:` or blank that is not escaped, and drops the blanks around it.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let is_end = |(_, c): &(usize, char)| {
        let ends = !is_escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\x0c');
        is_escaped = !is_escaped && *c == '\\';
        ends
    };
    let Some((at, _)) = line.char_indices().find(is_end) else { return (line, "") };
    let blanks = [' ', '\t', '\x0c'];
    let rest = line[at..].trim_start_matches(blanks);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(blanks);
    (&line[..at], value)
}

fn unescaped(piece: &str) -> String {
    let mut text = String::with_capacity(piece.len());
    let mut chars = piece.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => text.push('\t'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('f') => text.push('\x0c'),
            Some('u') => text.extend(unicode(&mut chars)),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

/// The character of four hexadecimal digits; nothing if they are none.
fn unicode(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let digits: String = chars.by_ref().take(4).collect();
    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        broker_name: String,
        is_open: bool,
        port: u16,
        ratio: f64,
    }

    fn config() -> Config {
        Config { broker_name: "b".to_owned(), is_open: false, port: 9876, ratio: 0.5 }
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).into_iter().collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_text_is_read_as_java_reads_it() {
        let text = "# comment\n! too\n\n a = 1 \r\nb:2\nc 3\nd\ne=x=y\nf = one, \\\n    two\na=9\n";
        let wanted = [("a", "9"), ("b", "2"), ("c", "3"), ("d", ""), ("e", "x=y"), ("f", "one, two")];
        assert_eq!(pairs(text), owned(&wanted));
        assert_eq!(pairs("a\\ b\\:c = C:\\\\x\\n\\u0041"), owned(&[("a b:c", "C:\\x\nA")]));
        assert_eq!(pairs("nope"), owned(&[("nope", "")]));
        assert_eq!(pairs("a=1\\"), owned(&[("a", "1")]));
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn what_is_written_reads_back() {
        let odd = Config { broker_name: "a\\b\nc".to_owned(), ..config() };
        let text = write(&odd);
        assert!(text.contains("isOpen=false\n") && text.contains("port=9876\n"), "{text}");
        assert_eq!(merge(&config(), &parse(&text)).unwrap().config, odd);
    }

    #[test]
    fn values_take_the_type_of_their_field() {
        let merged = merge(&config(), &parse("isOpen=TRUE\nport=1\nbrokerName=7\nother=x")).unwrap();
        let wanted = Config { broker_name: "7".to_owned(), is_open: true, port: 1, ratio: 0.5 };
        assert_eq!(merged, Merged { config: wanted, unknown: vec!["other".to_owned()] });
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let refused = |text: &str| merge(&config(), &parse(text)).unwrap_err().to_string();
        assert_eq!(refused("isOpen=1"), "isOpen = 1 is no boolean");
        assert_eq!(refused("port=many"), "port = many is no number");
        let misfit = refused("isOpen=true\nport=70000\nratio=1");
        assert!(misfit.starts_with("port = 70000 cannot be: invalid value"), "{misfit}");
    }
}
