//! The programming language a peer says it is written in (RocketMQ's `LanguageCode`).
//!
//! Invariants:
//! - a name or number that is not known is `Other`, never an error.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::Text;

/// Language of a peer; the number is the one of the binary header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say all there is to say")]
pub enum Language {
    #[default]
    Java = 0,
    Cpp = 1,
    DotNet = 2,
    Python = 3,
    Delphi = 4,
    Erlang = 5,
    Ruby = 6,
    Other = 7,
    Http = 8,
    Go = 9,
    Php = 10,
    Oms = 11,
    Rust = 12,
    NodeJs = 13,
}

/// Every language with its name in JSON, by number.
const LANGUAGES: [(Language, &str); 14] = [
    (Language::Java, "JAVA"),
    (Language::Cpp, "CPP"),
    (Language::DotNet, "DOTNET"),
    (Language::Python, "PYTHON"),
    (Language::Delphi, "DELPHI"),
    (Language::Erlang, "ERLANG"),
    (Language::Ruby, "RUBY"),
    (Language::Other, "OTHER"),
    (Language::Http, "HTTP"),
    (Language::Go, "GO"),
    (Language::Php, "PHP"),
    (Language::Oms, "OMS"),
    (Language::Rust, "RUST"),
    (Language::NodeJs, "NODE_JS"),
];

impl Language {
    /// The name that stands in JSON.
    pub fn name(self) -> &'static str {
        LANGUAGES.get(usize::from(self.number())).map_or("OTHER", |(_, name)| name)
    }

    /// The number that stands in the binary header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// By name.
    pub fn from_name(name: &[u8]) -> Language {
        let found = LANGUAGES.iter().find(|(_, known)| known.as_bytes() == name);
        found.map_or(Language::Other, |(language, _)| *language)
    }

    /// By number.
    pub fn from_number(number: u8) -> Language {
        LANGUAGES.get(usize::from(number)).map_or(Language::Other, |(language, _)| *language)
    }
}

impl Serialize for Language {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Language {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Language, D::Error> {
        Text::deserialize(deserializer).map(|name| Language::from_name(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_number_lead_back_to_the_language() {
        for (language, name) in LANGUAGES {
            assert_eq!(language.name(), name);
            assert_eq!(Language::from_name(name.as_bytes()), language);
            assert_eq!(Language::from_number(language.number()), language);
        }
        assert_eq!(Language::from_name(b"COBOL"), Language::Other);
        assert_eq!(Language::from_number(200), Language::Other);
    }
}
