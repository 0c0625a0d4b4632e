//! Typed headers: a struct for the extension fields of one request or answer.
//!
//! Invariants:
//! - the Rust type alone says whether a key is required: `Text` is, `Option<Text>` is not;
//! - a key is the literal beside its field and stands nowhere else;
//! - an empty value counts as absent where a number or a truth value is wanted, as the binary form writes it.

use std::fmt::Display;

use crate::command::HeadWriter;
use crate::error::CodecError;
use crate::fields::Fields;
use crate::text::Text;

/// The extension fields of one request or answer as a struct.
pub trait Header: Sized {
    /// The keys on the wire, in the order of the fields.
    const KEYS: &'static [&'static str];

    /// Reads all fields; an error names the first that is missing or bad.
    fn read(fields: &Fields) -> Result<Self, CodecError>;

    /// Adds all fields that are there.
    fn write(&self, fields: &mut Fields);

    /// Writes all fields that are there into a frame, without making fields of them first.
    fn encode(&self, writer: &mut HeadWriter<'_, '_>);
}

/// The header of a request or answer that has no fields of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoHeader;

impl Header for NoHeader {
    const KEYS: &'static [&'static str] = &[];

    fn read(_: &Fields) -> Result<NoHeader, CodecError> {
        Ok(NoHeader)
    }

    fn write(&self, _: &mut Fields) {}

    fn encode(&self, _: &mut HeadWriter<'_, '_>) {}
}

/// A type that can be a field of a header.
pub trait FieldValue: Sized {
    /// Reads the value of `key`.
    fn read(fields: &Fields, key: &'static str) -> Result<Self, CodecError>;

    /// Adds the value under `key`, if there is one.
    fn write(&self, fields: &mut Fields, key: &'static str);

    /// Writes the value under `key` into a frame, if there is one.
    fn encode(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str);
}

/// A value with one text form; what [`FieldValue`] is built from.
pub trait FieldText: Sized {
    /// From the text; `None` if it counts as absent.
    fn from_text(value: &str, key: &'static str) -> Result<Option<Self>, CodecError>;

    /// From the value of `key`; `None` if there is none, or it counts as absent.
    fn of(fields: &Fields, key: &'static str) -> Result<Option<Self>, CodecError> {
        fields.get(key).map_or(Ok(None), |value| Self::from_text(value, key))
    }

    /// To the text.
    fn to_text(&self) -> Text;

    /// Writes the text under `key` into a frame.
    fn encode_text(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        writer.field(key, &self.to_text());
    }
}

impl<T: FieldText> FieldValue for T {
    fn read(fields: &Fields, key: &'static str) -> Result<T, CodecError> {
        T::of(fields, key)?.ok_or(CodecError::Missing { key })
    }

    fn write(&self, fields: &mut Fields, key: &'static str) {
        fields.put(key, self.to_text());
    }

    fn encode(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        self.encode_text(writer, key);
    }
}

impl<T: FieldText> FieldValue for Option<T> {
    fn read(fields: &Fields, key: &'static str) -> Result<Option<T>, CodecError> {
        T::of(fields, key)
    }

    fn write(&self, fields: &mut Fields, key: &'static str) {
        if let Some(value) = self {
            fields.put(key, value.to_text());
        }
    }

    fn encode(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        if let Some(value) = self {
            value.encode_text(writer, key);
        }
    }
}

impl FieldText for Text {
    fn from_text(value: &str, _: &'static str) -> Result<Option<Text>, CodecError> {
        Ok(Some(Text::from(value)))
    }

    fn of(fields: &Fields, key: &'static str) -> Result<Option<Text>, CodecError> {
        Ok(fields.text(key))
    }

    fn to_text(&self) -> Text {
        self.clone()
    }

    fn encode_text(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        writer.field(key, self);
    }
}

impl FieldText for i32 {
    fn from_text(value: &str, key: &'static str) -> Result<Option<i32>, CodecError> {
        number(value, key)
    }

    fn to_text(&self) -> Text {
        number_text(self)
    }

    fn encode_text(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        writer.number(key, *self);
    }
}

impl FieldText for i64 {
    fn from_text(value: &str, key: &'static str) -> Result<Option<i64>, CodecError> {
        number(value, key)
    }

    fn to_text(&self) -> Text {
        number_text(self)
    }

    fn encode_text(&self, writer: &mut HeadWriter<'_, '_>, key: &'static str) {
        writer.number(key, *self);
    }
}

impl FieldText for f64 {
    fn from_text(value: &str, key: &'static str) -> Result<Option<f64>, CodecError> {
        number(value, key)
    }

    fn to_text(&self) -> Text {
        Text::from(format!("{self:?}"))
    }
}

impl FieldText for bool {
    fn from_text(value: &str, _: &'static str) -> Result<Option<bool>, CodecError> {
        Ok(if value.is_empty() { None } else { Some(value.eq_ignore_ascii_case("true")) })
    }

    fn to_text(&self) -> Text {
        Text::from_static(if *self { "true" } else { "false" })
    }
}

fn number<N: std::str::FromStr>(value: &str, key: &'static str) -> Result<Option<N>, CodecError> {
    let digits = value.trim();
    if digits.is_empty() {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| CodecError::invalid(key, digits))
}

fn number_text(number: &impl Display) -> Text {
    Text::from(number.to_string())
}

/// Declares a header: each line is `field: Type = "key on the wire",`.
macro_rules! header {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$note:meta])* $field:ident: $type:ty = $key:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default)]
        $vis struct $name {
            $($(#[$note])* #[doc = concat!("On the wire: `", $key, "`.")] pub $field: $type,)*
        }
        impl $crate::header::Header for $name {
            const KEYS: &'static [&'static str] = &[$($key),*];
            fn read(fields: &$crate::fields::Fields) -> Result<Self, $crate::error::CodecError> {
                Ok($name { $($field: $crate::header::FieldValue::read(fields, $key)?,)* })
            }
            fn write(&self, fields: &mut $crate::fields::Fields) {
                $($crate::header::FieldValue::write(&self.$field, fields, $key);)*
            }
            fn encode(&self, writer: &mut $crate::command::HeadWriter<'_, '_>) {
                $($crate::header::FieldValue::encode(&self.$field, writer, $key);)*
            }
        }
    };
}
pub(crate) use header;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::command::{Command, Head, HeaderForm};
    use crate::response::ResponseCode;

    header! {
        /// All kinds of fields.
        struct SampleHeader {
            topic: Text = "topic",
            queue_id: i32 = "queueId",
            offset: Option<i64> = "offset",
            order: Option<bool> = "order",
            rate: Option<f64> = "rate",
        }
    }

    fn read(pairs: &[(&str, &str)]) -> Result<SampleHeader, CodecError> {
        SampleHeader::read(&pairs.iter().copied().collect())
    }

    #[test]
    fn what_was_written_reads_back() {
        let full = SampleHeader {
            topic: Text::from("T"),
            queue_id: -1,
            offset: Some(i64::MIN),
            order: Some(true),
            rate: Some(2.0),
        };
        for header in [full, SampleHeader::default()] {
            let mut fields = Fields::new();
            header.write(&mut fields);
            for form in [HeaderForm::Json, HeaderForm::Binary] {
                let (mut short, mut long) = (BytesMut::new(), BytesMut::new());
                let mut writer = Head::answer(ResponseCode::SUCCESS, 7, form).begin(&mut short);
                header.encode(&mut writer);
                writer.finish(0);
                let mut command = Command::response(ResponseCode::SUCCESS).with_header(&header);
                (command.opaque, command.form) = (7, form);
                command.encode(&mut long);
                assert_eq!(short, long);
            }
            assert_eq!(SampleHeader::read(&fields), Ok(header));
        }
        assert_eq!(SampleHeader::KEYS, ["topic", "queueId", "offset", "order", "rate"]);
    }

    #[test]
    fn a_required_key_is_missed_and_an_optional_one_is_not() {
        assert_eq!(read(&[("queueId", "1")]), Err(CodecError::Missing { key: "topic" }));
        assert_eq!(read(&[("topic", "T"), ("queueId", "")]), Err(CodecError::Missing { key: "queueId" }));
        assert_eq!(read(&[("topic", ""), ("queueId", "1"), ("offset", "")]).unwrap().offset, None);
    }

    #[test]
    fn a_number_must_be_one_and_only_true_is_true() {
        let bad = read(&[("topic", "T"), ("queueId", "2147483648")]);
        assert_eq!(bad, Err(CodecError::invalid("queueId", "2147483648")));
        let order = |value| read(&[("topic", "T"), ("queueId", "0"), ("order", value)]).unwrap().order;
        assert_eq!(order("TRUE"), Some(true));
        assert_eq!(order("1"), Some(false));
    }
}
