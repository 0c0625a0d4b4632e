//! What a replay of recorded requests finds: where ours answers otherwise than Java did.
//!
//! Invariants:
//! - a difference that is not in the table of intended ones fails the test, with all others of the run;
//! - one in the table that is none any more fails it too: the table only says what is so.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use troupemq_codec::Command;

use crate::golden::Frame;

/// A difference that is intended: file, number of the request (0: any of the file), reason.
pub(crate) type Intended = (&'static str, i64, &'static str);

/// The findings of one test.
pub(crate) struct Replay {
    intended: &'static [Intended],
    compared: BTreeMap<i32, usize>,
    found: BTreeSet<(&'static str, i64)>,
    wrong: Vec<String>,
}

/// A request with the answer that Java gave, if it gave one.
pub(crate) struct Asked<'a> {
    /// The request.
    pub(crate) request: &'a Frame,
    /// Java's answer.
    pub(crate) java: Option<&'a Command>,
}

impl Replay {
    /// Nothing found yet.
    pub(crate) fn new(intended: &'static [Intended]) -> Replay {
        Replay { intended, compared: BTreeMap::new(), found: BTreeSet::new(), wrong: Vec::new() }
    }

    /// Notes that an answer was compared, and how it differs, if it does.
    pub(crate) fn note(&mut self, file: &str, request: &Frame, difference: Option<String>) {
        let code = request.command.code;
        *self.compared.entry(code).or_insert(0) += 1;
        let Some(why) = difference else { return };
        let is_it = |known: &&Intended| known.0 == file && [0, request.number].contains(&known.1);
        match self.intended.iter().find(is_it) {
            Some(known) => _ = self.found.insert((known.0, known.1)),
            None => self.wrong.push(format!("{file} {}: {code}: {why}", request.number)),
        }
    }

    /// Fails with what is wrong; gives how many answers were compared, by request.
    pub(crate) fn end(self) -> BTreeMap<i32, usize> {
        let count: usize = self.compared.values().sum();
        assert!(self.wrong.is_empty(), "{} of {count} answers:\n{}", self.wrong.len(), self.wrong.join("\n"));
        let listed: BTreeSet<_> = self.intended.iter().map(|known| (known.0, known.1)).collect();
        assert_eq!(self.found, listed, "differences that are none any more");
        self.compared
    }
}

/// The requests of a conversation that clients sent, in their order, each with its answer.
pub(crate) fn asked(frames: &[Frame]) -> Vec<Asked<'_>> {
    let mut answers = HashMap::new();
    let mut asked = Vec::new();
    // From the end: an answer belongs to the last request before it that has its number.
    for frame in frames.iter().rev() {
        let key = (frame.conn, frame.command.opaque);
        match (frame.is_from_server, frame.command.is_response()) {
            (true, true) => _ = answers.insert(key, &frame.command),
            (false, false) => {
                let java = answers.remove(&key).filter(|_| !frame.command.is_oneway());
                asked.push(Asked { request: frame, java });
            }
            _ => {}
        }
    }
    asked.reverse();
    asked
}

/// How ours differs from Java's answer in its code, its fields or the remark of a refusal. Clients read codes and
/// fields; what a remark of ours says behind Java's words is more for its reader.
pub(crate) fn difference(java: &Command, ours: &Command) -> Option<String> {
    if java.code != ours.code {
        return Some(format!("code {} instead of {}, {:?}", ours.code, java.code, ours.remark));
    }
    let keys =
        |command: &Command| command.fields.iter().map(|(key, _)| key.to_owned()).collect::<BTreeSet<_>>();
    if keys(java) != keys(ours) {
        return Some(format!("fields {:?} instead of {:?}", ours.fields, java.fields));
    }
    // On success Java leaves the text in place that it began with.
    (java.code != 0 && !says(ours, java)).then(|| format!("{:?} instead of {:?}", ours.remark, java.remark))
}

/// Whether ours says what Java says, up to the numbers of ports, and perhaps more.
pub(crate) fn says(ours: &Command, java: &Command) -> bool {
    let words = |command: &Command| without_ports(command.remark.as_deref().unwrap_or_default());
    let (ours, java) = (words(ours), words(java));
    ours == java || (!java.is_empty() && ours.starts_with(&java))
}

/// A text with the numbers of ports, which differ from run to run, left out.
fn without_ports(text: &str) -> String {
    let Some(at) = text.find("127.0.0.1:") else { return text.to_owned() };
    let (head, tail) = text.split_at(at + "127.0.0.1:".len());
    format!("{head}{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
}
