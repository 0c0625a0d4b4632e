//! Turns parsed values into the types of bodies, as leniently as fastjson does.
//!
//! Invariants:
//! - the type that is asked for decides: a number is read from a text and the other way round;
//! - following references is limited in depth and in number, so that no circle is walked for ever.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use super::tree::{DEPTH_MAX, Json};
use crate::base64;
use crate::error::CodecError;

/// Deepest nesting once references are followed.
const DEPTH_WITH_REFERENCES_MAX: usize = DEPTH_MAX.saturating_mul(2);

/// Why a value does not fit its type.
#[derive(Debug)]
pub(super) struct Misfit(String);

impl From<Misfit> for CodecError {
    fn from(misfit: Misfit) -> CodecError {
        CodecError::Invalid { what: "JSON body", value: misfit.0 }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(cause: T) -> Misfit {
        Misfit(cause.to_string())
    }
}

/// How many values of a text may be read, and how many of them are left; shared by all its readers.
pub(super) struct Budget {
    max: usize,
    left: Cell<usize>,
}

impl Budget {
    pub(super) fn new(max: usize) -> Budget {
        Budget { max, left: Cell::new(max) }
    }

    /// Counts one value.
    fn take(&self) -> Result<(), Misfit> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(Misfit(format!("more than {} values, references followed", self.max)));
        };
        self.left.set(left);
        Ok(())
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
pub(super) struct Reader<'t> {
    json: &'t Json<'t>,
    root: &'t Json<'t>,
    budget: &'t Budget,
    depth: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(root: &'t Json<'t>, budget: &'t Budget) -> Reader<'t> {
        Reader { json: root, root, budget, depth: 0 }
    }

    /// A reader for a value inside or behind this one.
    fn to(self, json: &'t Json<'t>) -> Reader<'t> {
        Reader { json, depth: self.depth.saturating_add(1), ..self }
    }

    /// The value itself or what it refers to, counted.
    fn value(self) -> Result<Reader<'t>, Misfit> {
        self.budget.take()?;
        if self.depth > DEPTH_WITH_REFERENCES_MAX {
            let max = DEPTH_WITH_REFERENCES_MAX;
            return Err(Misfit(format!("nested deeper than {max}, references followed")));
        }
        match self.json.get("$ref") {
            Some(Json::Text(path)) => self.to(target(self.root, path).unwrap_or(&Json::Null)).value(),
            _ => Ok(self),
        }
    }

    fn integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        let Some(text) = reader.json.scalar() else { return Err(reader.misfit(&visitor)) };
        let digits = text.trim();
        let digits = digits.strip_suffix(".0").unwrap_or(digits);
        if let Ok(number) = digits.parse::<i64>() {
            return visitor.visit_i64(number);
        }
        match digits.parse::<u64>() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => Err(reader.misfit(&visitor)),
        }
    }

    #[cold]
    fn misfit(self, wanted: &dyn de::Expected) -> Misfit {
        let found = match self.json {
            Json::Null => "null".to_owned(),
            Json::Bool(truth) => truth.to_string(),
            Json::Number(number) => (*number).to_owned(),
            Json::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
            Json::List(_) => "a list".to_owned(),
            Json::Table(_) => "an object".to_owned(),
        };
        Misfit(format!("{found} where {wanted} is wanted"))
    }
}

/// Follows a path such as `$.a.b[0]`.
fn target<'t>(root: &'t Json<'t>, path: &str) -> Option<&'t Json<'t>> {
    let steps = path.strip_prefix('$')?;
    let mut at = root;
    for step in steps.split(['.', '[']).skip(1) {
        at = match (step.strip_suffix(']'), at) {
            (Some(index), Json::List(items)) => items.get(index.parse::<usize>().ok()?)?,
            _ => at.get(step)?,
        };
    }
    Some(at)
}

/// Several integer types are read alike.
macro_rules! integers {
    ($($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.integer(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match reader.json {
            Json::Null => visitor.visit_unit(),
            Json::Bool(truth) => visitor.visit_bool(*truth),
            Json::Text(text) => visitor.visit_str(text),
            Json::List(items) => visitor.visit_seq(Items { reader, rest: items.iter() }),
            Json::Table(pairs) => visitor.visit_map(Pairs { reader, rest: pairs.iter(), value: None }),
            Json::Number(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(number), _) => visitor.visit_i64(number),
                (_, Ok(number)) => visitor.visit_f64(number),
                _ => Err(reader.misfit(&visitor)),
            },
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match reader.json.scalar().map(str::parse::<f64>) {
            Some(Ok(number)) => visitor.visit_f64(number),
            _ => Err(reader.misfit(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match (reader.json, reader.json.scalar()) {
            (Json::Bool(truth), _) => visitor.visit_bool(*truth),
            (_, Some(text)) => visitor.visit_bool(text.eq_ignore_ascii_case("true") || text == "1"),
            _ => Err(reader.misfit(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match (reader.json, reader.json.scalar()) {
            (Json::Bool(truth), _) => visitor.visit_str(if *truth { "true" } else { "false" }),
            (_, Some(text)) => visitor.visit_str(text),
            _ => Err(reader.misfit(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match reader.json {
            Json::Text(text) => match base64::decode(text) {
                Ok(bytes) => visitor.visit_byte_buf(bytes),
                Err(_) => Err(reader.misfit(&visitor)),
            },
            _ => reader.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        if *reader.json == Json::Null { visitor.visit_none() } else { visitor.visit_some(reader) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match reader.json {
            Json::List(items) => visitor.visit_seq(Items { reader, rest: items.iter() }),
            _ => Err(reader.misfit(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        match reader.json {
            Json::Table(pairs) => visitor.visit_map(Pairs { reader, rest: pairs.iter(), value: None }),
            // An object as a key of legal JSON is a text that holds the object.
            Json::Text(text) if text.starts_with('{') => {
                let inner =
                    Json::parse(text, reader.budget.left.get()).map_err(|cause| Misfit(cause.to_string()))?;
                match inner {
                    Json::Table(_) => Reader::new(&inner, reader.budget).deserialize_map(visitor),
                    _ => Err(reader.misfit(&visitor)),
                }
            }
            _ => Err(reader.misfit(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let reader = self.value()?;
        let name = match reader.json {
            Json::Text(text) => Some(text.as_ref()),
            Json::Number(ordinal) => ordinal.parse::<usize>().ok().and_then(|at| variants.get(at).copied()),
            _ => None,
        };
        match name {
            Some(name) => visitor.visit_enum(name.into_deserializer()),
            None => Err(reader.misfit(&visitor)),
        }
    }
}

struct Items<'t> {
    reader: Reader<'t>,
    rest: std::slice::Iter<'t, Json<'t>>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        self.rest.next().map(|item| seed.deserialize(self.reader.to(item))).transpose()
    }
}

struct Pairs<'t> {
    reader: Reader<'t>,
    rest: std::slice::Iter<'t, (Json<'t>, Json<'t>)>,
    value: Option<&'t Json<'t>>,
}

impl<'de> de::MapAccess<'de> for Pairs<'_> {
    type Error = Misfit;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some((key, value)) = self.rest.find(|(_, value)| *value != Json::Null) else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(self.reader.to(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        let value = self.value.take().ok_or(Misfit("a value without a key".to_owned()))?;
        seed.deserialize(self.reader.to(value))
    }
}
