//! Reads a header that is like one before it by comparing the two: clients write the same header again and again, with
//! other numbers in it.
//!
//! Invariants:
//! - two headers are alike if they are equally long and differ in nothing but digits of numbers, and letters and digits
//!   of texts: then every piece of them stands at the same place;
//! - a mold changes how long it takes to read a header, never what is read: what is not alike is parsed;
//! - the molds of one reader are few, and of short headers.

use std::ops::Range;

use crate::command::escape::escape_len;
use crate::command::json::{self, int_from};
use crate::command::span::{FieldSpans, Span};
use crate::command::view::Parsed;
use crate::command::{HeaderForm, binary};
use crate::error::CodecError;
use crate::language::Language;

/// Molds of one reader; a header's length and form choose among them.
const MOLDS: usize = 64;
/// Headers longer than this are always parsed.
const HEADER_MAX_BYTES: usize = 1024;
/// A mold that did not fit so often is replaced by the header it did not fit.
const MISSES_MAX: u8 = 8;

/// What headers looked like that were read before. Belongs to one reader of frames, or to several that take turns.
#[derive(Debug, Default)]
pub struct Molds(Vec<Option<Box<Mold>>>);

/// What one header looked like.
#[derive(Debug)]
struct Mold {
    form: HeaderForm,
    header: Vec<u8>,
    /// What else may stand at each byte.
    free: Vec<Free>,
    opaque: Span,
    code: i32,
    language: Language,
    version: i32,
    flag: i32,
    remark: Option<Span>,
    fields: FieldSpans,
    /// The part that is text.
    text: Range<usize>,
    misses: u8,
}

/// What may stand at a place of a header beside what stands there, without changing its layout: kinds of bytes.
type Free = u8;

/// Nothing else.
const NOTHING: Free = 0;
/// Any digit, where there is one.
const DIGIT: Free = 0x80;
/// Any letter or digit of ASCII, where there is one.
const WORD: Free = DIGIT | LETTER;
const LETTER: Free = 0x40;
/// Any byte.
const BYTE: Free = 0x20;

impl Molds {
    /// Reads a whole header.
    pub(super) fn read<'a>(
        &mut self,
        (form, header): (HeaderForm, &'a [u8]),
        parsed: &mut Parsed<'a>,
    ) -> Result<(), CodecError> {
        if self.0.is_empty() {
            self.0.resize_with(MOLDS, || None);
        }
        let slot = self.0.get_mut(place_of(form, header)).filter(|_| header.len() <= HEADER_MAX_BYTES);
        let Some(slot) = slot else { return parse(form, header, parsed) };
        if let Some(mold) = slot {
            if mold.form == form && mold.is_like(header) && mold.pour(header, parsed) {
                return Ok(());
            }
            mold.misses = mold.misses.saturating_add(1);
        }
        parse(form, header, parsed)?;
        if slot.as_ref().is_none_or(|mold| mold.misses >= MISSES_MAX) {
            *slot = Some(Box::new(Mold::of(form, header, parsed)));
        }
        Ok(())
    }
}

impl Mold {
    fn of(form: HeaderForm, header: &[u8], parsed: &Parsed<'_>) -> Mold {
        let mut free = vec![NOTHING; header.len()];
        for field in parsed.fields.iter() {
            loosen((form, header), &mut free, field.value);
        }
        match form {
            HeaderForm::Json => loosen((form, header), &mut free, parsed.opaque_at),
            HeaderForm::Binary => {
                free.get_mut(parsed.opaque_at.range()).unwrap_or_default().fill(BYTE);
            }
        }
        Mold {
            form,
            header: header.to_vec(),
            free,
            opaque: parsed.opaque_at,
            code: parsed.code,
            language: parsed.language,
            version: parsed.version,
            flag: parsed.flag,
            remark: parsed.remark,
            fields: parsed.fields.clone(),
            text: parsed.text_at..parsed.text_at.saturating_add(parsed.text.len()),
            misses: 0,
        }
    }

    /// Whether all pieces of `header` stand where those of the mold do.
    fn is_like(&self, header: &[u8]) -> bool {
        if header.len() != self.header.len() {
            return false;
        }
        // Long pieces first: most are the same.
        let (pieces, rest) = header.as_chunks::<32>();
        let (old_pieces, old_rest) = self.header.as_chunks::<32>();
        let (free_pieces, free_rest) = self.free.as_chunks::<32>();
        let mut triples = pieces.iter().zip(old_pieces).zip(free_pieces);
        triples.all(|((piece, old), free)| piece == old || are_alike(piece, old, free))
            && are_alike(rest, old_rest, free_rest)
    }

    /// What a header says that is like the mold; false if its numbers are too large.
    fn pour<'a>(&mut self, header: &'a [u8], parsed: &mut Parsed<'a>) -> bool {
        let opaque = header.get(self.opaque.range()).and_then(|bytes| match self.form {
            HeaderForm::Json => int_from(bytes),
            HeaderForm::Binary => bytes.try_into().ok().map(i32::from_be_bytes),
        });
        let text = header.get(self.text.clone()).and_then(|text| std::str::from_utf8(text).ok());
        let (Some(opaque), Some(text)) = (opaque, text) else { return false };
        self.misses = 0;
        parsed.code = self.code;
        parsed.language = self.language;
        parsed.version = self.version;
        parsed.opaque = opaque;
        parsed.opaque_at = self.opaque;
        parsed.flag = self.flag;
        parsed.remark = self.remark;
        // Most of the room for fields is empty: that is not moved.
        parsed.fields.clone_from(&self.fields);
        (parsed.text, parsed.text_at) = (text, self.text.start);
        true
    }
}

/// Whether the bytes differ in nothing but what is free.
fn are_alike(new: &[u8], old: &[u8], free: &[Free]) -> bool {
    let (words, rest) = new.as_chunks::<8>();
    let (old_words, old_rest) = old.as_chunks::<8>();
    let (free_words, free_rest) = free.as_chunks::<8>();
    let mut triples = words.iter().zip(old_words).zip(free_words);
    triples.all(|((word, old), free)| word == old || are_words_alike(*word, *old, *free))
        && (rest == old_rest || are_words_alike(word_of(rest), word_of(old_rest), word_of(free_rest)))
}

/// The same of eight bytes, all at once: the top bit of each says what is true of it.
fn are_words_alike(new: [u8; 8], old: [u8; 8], free: [Free; 8]) -> bool {
    let [new, old, free] = [new, old, free].map(u64::from_be_bytes);
    let low = new & !TOPS;
    let lower = low | each(0x20);
    // Bytes that are at least this: what is added carries into the top bit, and no further.
    let from = |bytes: u64, least: u8| bytes.wrapping_add(each(0x80_u8.wrapping_sub(least)));
    let digits = from(low, b'0') & !from(low, b'9' + 1) & !new & TOPS;
    let letters = from(lower, b'a') & !from(lower, b'z' + 1) & !new & TOPS;
    let is_free = free & (digits | letters >> 1 | each(BYTE));
    let is_free = is_free | is_free << 1 | is_free << 2;
    let differ = new ^ old;
    let differ = (differ & !TOPS).wrapping_add(!TOPS) | differ;
    differ & !is_free & TOPS == 0
}

/// The top bit of each byte.
const TOPS: u64 = each(0x80);

/// A byte eight times.
const fn each(byte: u8) -> u64 {
    u64::from_be_bytes([byte; 8])
}

/// A piece shorter than a word, with zeros behind.
fn word_of(rest: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    word.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    word
}

fn place_of(form: HeaderForm, header: &[u8]) -> usize {
    header.len().wrapping_mul(2).wrapping_add(usize::from(form.number())) % MOLDS
}

fn parse<'a>(form: HeaderForm, header: &'a [u8], parsed: &mut Parsed<'a>) -> Result<(), CodecError> {
    match form {
        HeaderForm::Json => json::parse(header, parsed),
        HeaderForm::Binary => binary::parse(header, parsed),
    }
}

/// Notes what may change in a value: letters and digits where it has some, but not those of an escape; digits alone
/// where it stands without the quotes of JSON.
fn loosen((form, header): (HeaderForm, &[u8]), free: &mut [Free], value: Span) {
    let range = value.range();
    let is_json = form == HeaderForm::Json;
    let before = range.start.checked_sub(1).and_then(|before| header.get(before));
    let is_text = !is_json || before == Some(&b'"');
    let mut at = range.start;
    while let Some((byte, place)) = header.get(at).zip(free.get_mut(at)).filter(|_| at < range.end) {
        match byte {
            b'\\' if is_json => {
                let escape = escape_len(header.get(at..).unwrap_or_default()).unwrap_or(range.len());
                at = at.saturating_add(escape);
                continue;
            }
            b'0'..=b'9' if !is_text => *place = DIGIT,
            byte if is_text && byte.is_ascii_alphanumeric() => *place = WORD,
            _ => {}
        }
        at = at.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Head;
    use crate::response::ResponseCode;

    const HEADER: &str = concat!(
        r#"{"code":310,"extFields":{"a":"group","d":4,"g":"1795967622258","i":"KEY\u0001a1\n\u0002b","x":true},"#,
        r#""flag":0,"language":"JAVA","opaque":100,"serializeTypeCurrentRPC":"JSON","version":479}"#
    );

    /// Reads by molds that know `HEADER`, and without; the ways must agree. Tells whether the mold was used.
    fn read(header: &str) -> bool {
        let (mut molds, mut known) = (Molds::default(), Parsed::default());
        molds.read((HeaderForm::Json, HEADER.as_bytes()), &mut known).unwrap();
        let (mut by_mold, mut plainly) = (Parsed::default(), Parsed::default());
        let first = molds.read((HeaderForm::Json, header.as_bytes()), &mut by_mold);
        assert_eq!(first, json::parse(header.as_bytes(), &mut plainly), "{header}");
        if first.is_ok() {
            assert_eq!(by_mold, plainly, "{header}");
        }
        let mold = molds.0.get(place_of(HeaderForm::Json, header.as_bytes())).and_then(Option::as_ref);
        first.is_ok() && mold.is_some_and(|mold| mold.misses == 0 && mold.header == HEADER.as_bytes())
    }

    #[test]
    fn other_numbers_and_words_fit_into_the_mold() {
        for (from, to) in [
            ("\"opaque\":100", "\"opaque\":977"),
            ("1795967622258", "1795967699999"),
            ("\"d\":4", "\"d\":9"),
            ("group", "Gr0up"),
            ("a1\\n\\u0002b", "z7\\n\\u0002c"),
        ] {
            assert!(read(&HEADER.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn what_changes_the_layout_or_the_meaning_is_parsed() {
        for (from, to) in [
            ("310", "311"),
            ("\"flag\":0", "\"flag\":2"),
            ("JAVA", "RUST"),
            ("\"a\"", "\"b\""),
            ("group", "gr\\np"),
            ("group", "gro\"p"),
            ("group", "gro\u{e4}"),
            ("\\u0001", "\\u0041"),
            ("true", "null"),
            ("\"d\":4", "\"d\":x"),
            ("100", "1e0"),
            ("100", "1000"),
            ("\"version\":479", "\"version\":480"),
        ] {
            assert!(!read(&HEADER.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn every_changed_byte_reads_as_it_does_without_a_mold() {
        for place in 0..HEADER.len() {
            for byte in 0x20..0x7f_u8 {
                let mut header = HEADER.as_bytes().to_vec();
                *header.get_mut(place).unwrap() = byte;
                read(std::str::from_utf8(&header).unwrap());
            }
        }
    }

    #[test]
    fn a_binary_header_is_read_by_a_mold_as_it_is_without() {
        let mut frame = bytes::BytesMut::new();
        let head = Head::answer(ResponseCode::SUCCESS, 7, HeaderForm::Binary).with_remark("remark");
        let mut writer = Head { flag: 0, code: 310, ..head }.begin(&mut frame);
        writer.field("a", "group \\ 1").number("g", 1_795_967_622_258_i64).field("i", "\u{e4}\u{1}");
        writer.finish(0);
        let header = frame.get(8..).unwrap();
        let mut used = 0;
        for place in 0..header.len() {
            for byte in 0..=0xff_u8 {
                let (mut molds, mut known) = (Molds::default(), Parsed::default());
                molds.read((HeaderForm::Binary, header), &mut known).unwrap();
                let mut other = header.to_vec();
                *other.get_mut(place).unwrap() = byte;
                let (mut by_mold, mut plainly) = (Parsed::default(), Parsed::default());
                let first = molds.read((HeaderForm::Binary, &other), &mut by_mold);
                assert_eq!(first, binary::parse(&other, &mut plainly), "{byte} at {place}");
                if first.is_ok() {
                    assert_eq!(by_mold, plainly, "{byte} at {place}");
                }
                let mold = molds.0.get(place_of(HeaderForm::Binary, header)).and_then(Option::as_ref);
                used += usize::from(mold.unwrap().misses == 0 && byte != *header.get(place).unwrap());
            }
        }
        // Four bytes of the opaque, and the letters and digits of two values.
        assert_eq!(used, 4 * 255 + (6 + 13) * 61);
    }

    #[test]
    fn a_number_that_is_too_large_is_an_error_with_a_mold_too() {
        let large = |digits| HEADER.replace("\"opaque\":100", &format!("\"opaque\":{digits}"));
        let mut molds = Molds::default();
        molds.read((HeaderForm::Json, large("1000000000").as_bytes()), &mut Parsed::default()).unwrap();
        assert!(
            molds.read((HeaderForm::Json, large("9000000000").as_bytes()), &mut Parsed::default()).is_err()
        );
    }

    #[test]
    fn a_mold_that_fits_no_more_is_replaced() {
        let mut molds = Molds::default();
        molds.read((HeaderForm::Json, HEADER.as_bytes()), &mut Parsed::default()).unwrap();
        let other = HEADER.replace("JAVA", "RUST");
        for _ in 0..MISSES_MAX {
            molds.read((HeaderForm::Json, other.as_bytes()), &mut Parsed::default()).unwrap();
        }
        let mold =
            molds.0.get(place_of(HeaderForm::Json, other.as_bytes())).and_then(Option::as_ref).unwrap();
        assert_eq!(mold.header, other.as_bytes());
    }
}
