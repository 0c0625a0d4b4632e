//! Writes values in fastjson's own form or as legal JSON.
//!
//! Invariants:
//! - a field whose value is null is taken back with its key;
//! - a key that is no text stands as it is in the fastjson form and in quotes in the standard form.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

use crate::base64;
use crate::command::{escape, escape_to_ascii};

/// How to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Fastjson,
    Standard,
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Null,
    Value,
}

/// Collects the text.
pub(super) struct Writer {
    out: Vec<u8>,
    dialect: Dialect,
}

/// A refusal of a type's own `Serialize`; none of this crate has one.
#[derive(Debug)]
pub(super) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(cause: T) -> Refused {
        Refused(cause.to_string())
    }
}

type Outcome = Result<Written, Refused>;

impl Writer {
    pub(super) fn new(dialect: Dialect) -> Writer {
        Writer { out: Vec::with_capacity(256), dialect }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    fn plain(&mut self, text: &str) -> Outcome {
        self.out.extend_from_slice(text.as_bytes());
        Ok(Written::Value)
    }

    fn null(&mut self) -> Outcome {
        self.out.extend_from_slice(b"null");
        Ok(Written::Null)
    }

    fn quoted(&mut self, text: &str) -> Outcome {
        self.out.push(b'"');
        match self.dialect {
            Dialect::Fastjson => escape(text, &mut self.out),
            Dialect::Standard => escape_to_ascii(text, &mut self.out),
        }
        self.out.push(b'"');
        Ok(Written::Value)
    }

    fn key(&mut self, key: &(impl Serialize + ?Sized)) -> Result<(), Refused> {
        let start = self.out.len();
        key.serialize(&mut *self)?;
        let written = self.out.get(start..).unwrap_or_default();
        if self.dialect == Dialect::Standard && written.first() != Some(&b'"') {
            let written = String::from_utf8_lossy(written).into_owned();
            self.out.truncate(start);
            self.quoted(&written)?;
        }
        self.out.push(b':');
        Ok(())
    }
}

/// Several types are written with their own digits.
macro_rules! digits {
    ($($name:ident: $type:ty,)*) => {
        $(fn $name(self, value: $type) -> Outcome {
            self.plain(&value.to_string())
        })*
    };
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = Written;
    type Error = Refused;
    type SerializeSeq = Parts<'w>;
    type SerializeTuple = Parts<'w>;
    type SerializeTupleStruct = Parts<'w>;
    type SerializeTupleVariant = ser::Impossible<Written, Refused>;
    type SerializeMap = Parts<'w>;
    type SerializeStruct = Parts<'w>;
    type SerializeStructVariant = ser::Impossible<Written, Refused>;

    digits! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_f32(self, value: f32) -> Outcome {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Outcome {
        if value.is_finite() { self.plain(&format!("{value:?}")) } else { self.null() }
    }

    fn serialize_char(self, value: char) -> Outcome {
        self.quoted(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Outcome {
        self.quoted(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Outcome {
        self.quoted(&base64::encode(value))
    }

    fn serialize_none(self) -> Outcome {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Outcome {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        self.null()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Outcome {
        self.quoted(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Outcome {
        Err(ser::Error::custom(format_args!("{variant} has no form in Java's JSON")))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'w>, Refused> {
        Ok(Parts::begin(self, b'[', b']'))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'w>, Refused> {
        Ok(Parts::begin(self, b'[', b']'))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, Refused> {
        Ok(Parts::begin(self, b'[', b']'))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ser::Impossible<Written, Refused>, Refused> {
        Err(ser::Error::custom(format_args!("{variant} has no form in Java's JSON")))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'w>, Refused> {
        Ok(Parts::begin(self, b'{', b'}'))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, Refused> {
        Ok(Parts::begin(self, b'{', b'}'))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ser::Impossible<Written, Refused>, Refused> {
        Err(ser::Error::custom(format_args!("{variant} has no form in Java's JSON")))
    }
}

/// A list or an object whose parts are being written.
pub(super) struct Parts<'w> {
    writer: &'w mut Writer,
    close: u8,
    is_first: bool,
    /// Length of the output before the member that is being written.
    before: usize,
}

impl<'w> Parts<'w> {
    fn begin(writer: &'w mut Writer, open: u8, close: u8) -> Parts<'w> {
        writer.out.push(open);
        let before = writer.out.len();
        Parts { writer, close, is_first: true, before }
    }

    fn comma(&mut self) {
        self.before = self.writer.out.len();
        if !self.is_first {
            self.writer.out.push(b',');
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Refused> {
        self.comma();
        item.serialize(&mut *self.writer)?;
        self.is_first = false;
        Ok(())
    }

    fn member_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        self.comma();
        self.writer.key(key)
    }

    fn member_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        match value.serialize(&mut *self.writer)? {
            Written::Null => self.writer.out.truncate(self.before),
            Written::Value => self.is_first = false,
        }
        Ok(())
    }

    fn close(self) -> Outcome {
        self.writer.out.push(self.close);
        Ok(Written::Value)
    }
}

impl ser::SerializeSeq for Parts<'_> {
    type Ok = Written;
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Refused> {
        self.item(item)
    }

    fn end(self) -> Outcome {
        self.close()
    }
}

impl ser::SerializeTuple for Parts<'_> {
    type Ok = Written;
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Refused> {
        self.item(item)
    }

    fn end(self) -> Outcome {
        self.close()
    }
}

impl ser::SerializeTupleStruct for Parts<'_> {
    type Ok = Written;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Refused> {
        self.item(item)
    }

    fn end(self) -> Outcome {
        self.close()
    }
}

impl ser::SerializeMap for Parts<'_> {
    type Ok = Written;
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        self.member_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.member_value(value)
    }

    fn end(self) -> Outcome {
        self.close()
    }
}

impl ser::SerializeStruct for Parts<'_> {
    type Ok = Written;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.member_key(key)?;
        self.member_value(value)
    }

    fn end(self) -> Outcome {
        self.close()
    }
}
