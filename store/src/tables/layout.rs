//! Tables as a person wants to read them: one entry a line, indented with tabs, as Java writes them.
//!
//! Invariants:
//! - only blanks are added: the text means what it meant;
//! - maps with integer keys and lists of plain values stay on one line.

/// Lays compact JSON of fastjson's dialect out in lines.
pub(crate) fn lay_out(compact: &[u8]) -> Vec<u8> {
    let mut layout = Layout { out: Vec::with_capacity(compact.len() * 2), open: Vec::new() };
    let mut rest = compact;
    while let Some((&byte, after)) = rest.split_first() {
        let len = match byte {
            b'"' => string_len(rest),
            _ => 1,
        };
        match byte {
            b'{' | b'[' => layout.open(byte, after),
            b'}' | b']' => layout.close(byte),
            b',' => layout.next(),
            _ => layout.out.extend_from_slice(&rest[..len]),
        }
        rest = &rest[len..];
    }
    layout.out
}

struct Layout {
    out: Vec<u8>,
    /// For each open map or list whether its parts stand on lines of their own.
    open: Vec<bool>,
}

impl Layout {
    fn open(&mut self, byte: u8, after: &[u8]) {
        self.out.push(byte);
        let in_lines = matches!((byte, after.first()), (b'{', Some(b'"')) | (b'[', Some(b'{' | b'[')));
        self.open.push(in_lines);
        if in_lines {
            self.line();
        }
    }

    fn close(&mut self, byte: u8) {
        let in_lines = self.open.pop().unwrap_or(false);
        if in_lines {
            self.line();
        }
        self.out.push(byte);
    }

    fn next(&mut self) {
        self.out.push(b',');
        if self.open.last() == Some(&true) {
            self.line();
        }
    }

    fn line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + self.open.len(), b'\t');
    }
}

/// Bytes of the string that begins with the quote in front, both quotes included.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_on_lines_and_offsets_on_one() {
        let compact = r#"{"a{,":{0:1,1:2},"b":{},"c":["x","y\"]"],"d":[{"e":1},{"e":2}],"f":[]}"#;
        let wanted = [
            "{",
            "\t\"a{,\":{0:1,1:2},",
            "\t\"b\":{},",
            "\t\"c\":[\"x\",\"y\\\"]\"],",
            "\t\"d\":[",
            "\t\t{",
            "\t\t\t\"e\":1",
            "\t\t},",
            "\t\t{",
            "\t\t\t\"e\":2",
            "\t\t}",
            "\t],",
            "\t\"f\":[]",
            "}",
        ]
        .join("\n");
        assert_eq!(String::from_utf8(lay_out(compact.as_bytes())).unwrap(), wanted);
    }

    #[test]
    fn a_torn_string_ends_the_text() {
        assert_eq!(lay_out(b"{\"a\\"), b"{\n\t\"a\\");
        assert_eq!(lay_out(b"}]"), b"}]");
    }
}
