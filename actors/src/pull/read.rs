//! What a pull finds: consume-queue units, filtered, as slices of the log. Java: `DefaultMessageStore.getMessage`.
//!
//! Invariants:
//! - the first message that matches is always taken, however large it is;
//! - what leaves is the record that the unit speaks of: units that this process has not written itself are compared;
//! - records that stand side by side in the log leave as one slice;
//! - `next_offset` is behind everything that was looked at and not left for the next pull.

use std::ops::Range;

use troupemq_codec::ResponseCode;
use troupemq_codec::filter::MessageFilter;
use troupemq_codec::message::RecordView;
use troupemq_store::{ConsumeQueue, LogReader, Pieces, QueueKind, Unit};

use crate::config::BrokerConfig;
use crate::pull::check::Selects;
use crate::read_ahead::tell_damaged;

/// Bytes of a consume-queue unit, in which the scan limit is given.
const UNIT_BYTES: usize = 20;

/// Pieces for which room is made at first.
const PIECES: usize = 32;

/// Bytes at the end of the log that are in memory if this node has written them.
const HOT_BYTES: u64 = 64 << 20;

/// Bytes a cold reader fetches ahead for a filter that looks at properties.
const AHEAD_BYTES: usize = 1 << 20;

/// Bytes of properties and expressions that one read goes through, so that long ones do not hold its arbiter up:
/// some 2 ms. What is left is for the next pull.
const LOOK_MAX_BYTES: usize = 2 << 20;

/// How a read ended. The names, in Java's spelling, are the remark of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Messages were found.
    Found,
    /// Units were looked at, none matched.
    NoMatchedMessage,
    /// The records are being deleted.
    MessageWasRemoving,
    /// The queue is empty.
    NoMessageInQueue,
    /// Exactly the next offset was asked for.
    OffsetOverflowOne,
    /// An offset beyond the next one was asked for.
    OffsetOverflowBadly,
    /// The offset is no longer kept.
    OffsetTooSmall,
    /// The units of the offset cannot be read.
    OffsetFoundNull,
    /// Administration has sent the group elsewhere.
    OffsetReset,
}

/// The bounds of one read.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Messages wished for.
    pub wish: usize,
    /// Units looked at.
    pub scan_max: usize,
    /// Messages and bytes when they are in memory.
    pub near: (usize, usize),
    /// Messages and bytes when they are likely on disk only.
    pub far: (usize, usize),
    /// Distance from the end of the log beyond which a message counts as far, in bytes.
    pub far_bytes: u64,
    /// End of the log when the node started: what this node wrote last is in memory.
    pub hot_from: u64,
    /// The time, in seconds of any clock: what was in memory a moment ago is not asked about again.
    pub now_s: u32,
    /// Whether a cold reader has fetched what is wanted.
    pub is_warm: bool,
}

/// Where to look.
#[derive(Debug)]
pub struct Source<'a> {
    /// The queue.
    pub units: &'a ConsumeQueue,
    /// The log.
    pub log: &'a LogReader,
    /// What is selected.
    pub selects: &'a Selects,
    /// How much.
    pub bounds: Bounds,
}

/// What was found.
#[derive(Debug)]
pub struct Reading {
    /// How it ended.
    pub status: Status,
    /// Where to go on.
    pub next_offset: i64,
    /// First offset of the queue.
    pub min_offset: i64,
    /// Offset behind the last message of the queue.
    pub max_offset: i64,
    /// The records, in pieces, by the segments they are in.
    pub pieces: Vec<Pieces>,
    /// Messages in them.
    pub count: usize,
    /// Bytes in them.
    pub bytes: usize,
    /// How long the reading took, in milliseconds.
    pub took_ms: u64,
    /// Whether the reader is far behind: it should read from a slave if that is allowed.
    pub is_far: bool,
    /// The ranges of the log that are not in memory: log offset and length.
    pub cold: Vec<(u64, usize)>,
    /// Whether the units themselves are not in memory: then nothing was looked at.
    pub lacks_units: bool,
}

impl Status {
    /// Java's name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Found => "FOUND",
            Status::OffsetReset => "OFFSET_RESET",
            Status::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Status::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Status::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
            Status::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Status::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Status::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Status::OffsetFoundNull => "OFFSET_FOUND_NULL",
        }
    }

    /// The response code for a pull from `offset`.
    pub fn code(self, offset: i64) -> ResponseCode {
        match self {
            Status::Found => ResponseCode::SUCCESS,
            Status::NoMatchedMessage | Status::MessageWasRemoving => ResponseCode::PULL_RETRY_IMMEDIATELY,
            Status::NoMessageInQueue if offset != 0 => ResponseCode::PULL_OFFSET_MOVED,
            Status::NoMessageInQueue | Status::OffsetOverflowOne | Status::OffsetFoundNull => {
                ResponseCode::PULL_NOT_FOUND
            }
            Status::OffsetOverflowBadly | Status::OffsetTooSmall | Status::OffsetReset => {
                ResponseCode::PULL_OFFSET_MOVED
            }
        }
    }

    /// Whether a pull from `offset` that ends so may be held.
    pub fn is_nothing_new(self, offset: i64) -> bool {
        self.code(offset) == ResponseCode::PULL_NOT_FOUND
    }
}

impl Bounds {
    /// The bounds of a configuration for a pull that wishes for `wish` messages.
    pub fn of(config: &BrokerConfig, memory_bytes: u64, hot_from: u64, wish: i32) -> Bounds {
        let wish = usize::try_from(wish).unwrap_or(0).max(1);
        Bounds {
            wish,
            scan_max: (config.max_filter_message_size / UNIT_BYTES).max(wish.min(4096)),
            near: (
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
            ),
            far: (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk),
            far_bytes: memory_bytes / 100 * config.access_message_in_memory_max_ratio,
            hot_from,
            now_s: 0,
            is_warm: false,
        }
    }
}

impl Reading {
    /// Whether something it found must be read from the disk first.
    pub fn is_cold(&self) -> bool {
        self.lacks_units || !self.cold.is_empty()
    }

    /// What a pull is answered whose group is to go on at `queue_offset`.
    pub fn reset_to(queue_offset: i64, units: &ConsumeQueue) -> Reading {
        Reading::ended(Status::OffsetReset, queue_offset, units.min_offset(), units.max_offset())
    }

    fn ended(status: Status, next_offset: i64, min_offset: i64, max_offset: i64) -> Reading {
        Reading {
            status,
            next_offset,
            min_offset,
            max_offset,
            pieces: Vec::new(),
            count: 0,
            bytes: 0,
            took_ms: 0,
            is_far: false,
            cold: Vec::new(),
            lacks_units: false,
        }
    }
}

/// Reads from `offset` on.
pub fn read(source: &Source<'_>, offset: i64) -> Reading {
    let (min, max) = (source.units.min_offset(), source.units.max_offset());
    let ended = |status, next| Reading::ended(status, next, min, max);
    if max == 0 {
        return ended(Status::NoMessageInQueue, 0);
    }
    if offset < min {
        return ended(Status::OffsetTooSmall, min);
    }
    if offset == max {
        return ended(Status::OffsetOverflowOne, offset);
    }
    if offset > max {
        return ended(Status::OffsetOverflowBadly, max);
    }
    let Source { units, bounds, .. } = source;
    if !bounds.is_warm && !units.was_resident(offset, bounds.scan_max, bounds.now_s) {
        return Reading { lacks_units: true, ..ended(Status::OffsetFoundNull, offset) };
    }
    let mut gathering = Gathering::new(source, ended(Status::OffsetFoundNull, offset));
    source.units.units(offset, source.bounds.scan_max).each_while(|unit| gathering.look_at(unit));
    gathering.finish()
}

/// What a unit tells of the tags of its messages. In a batch queue it may hold many, each with its own: then it tells
/// nothing, and consumers, who take it apart, look at the tags themselves.
pub(crate) fn told_tags(units: &ConsumeQueue, unit: &Unit) -> Option<i64> {
    (units.kind() == QueueKind::Plain || unit.tags_code != 0).then_some(unit.tags_code)
}

/// A read under way.
struct Gathering<'a> {
    source: &'a Source<'a>,
    log_end: u64,
    /// From here on the log is in memory.
    hot_from: u64,
    /// A part of it before that was seen in memory.
    seen: Range<u64>,
    log_min: u64,
    /// Range of the log that has been taken and not yet been cut.
    open: Option<(u64, u64)>,
    /// Units of that range that are compared with their records first.
    doubtful: Vec<Unit>,
    /// Bytes of properties and expressions gone through.
    looked_bytes: usize,
    /// Whether the filter need not be asked.
    takes_all: bool,
    reading: Reading,
}

impl<'a> Gathering<'a> {
    fn new(source: &'a Source<'a>, reading: Reading) -> Gathering<'a> {
        let (log_end, log_min) = (source.log.wrote_to(), source.log.min_offset());
        Gathering {
            source,
            log_end,
            hot_from: source.bounds.hot_from.max(log_end.saturating_sub(HOT_BYTES)),
            seen: 0..0,
            log_min,
            open: None,
            doubtful: Vec::new(),
            looked_bytes: 0,
            takes_all: source.selects.filter.is_all(),
            reading,
        }
    }

    /// Looks at one unit; false when the read is over.
    fn look_at(&mut self, unit: &Unit) -> bool {
        let bounds = &self.source.bounds;
        if self.reading.count >= bounds.wish || self.looked_bytes > LOOK_MAX_BYTES {
            return false;
        }
        if unit.log_offset < self.log_min || unit.is_hole() {
            self.pass(unit, Status::MessageWasRemoving);
            return true;
        }
        match if self.takes_all { Some(true) } else { self.selects(unit) } {
            Some(true) => {}
            Some(false) => {
                self.pass(unit, Status::NoMatchedMessage);
                return true;
            }
            None => return false,
        }
        let size = usize::try_from(unit.size).unwrap_or(usize::MAX);
        let is_far = self.log_end.saturating_sub(unit.log_offset) > bounds.far_bytes;
        let (count_max, bytes_max) = if is_far { bounds.far } else { bounds.near };
        let is_full = self.reading.count >= count_max
            || self.reading.count + usize::from(unit.count) > bounds.wish
            || self.reading.bytes.saturating_add(size) > bytes_max;
        if self.reading.count > 0 && is_full {
            return false;
        }
        self.take(unit, size);
        self.reading.is_far = is_far;
        true
    }

    /// Whether the filter selects a message; none if its properties must be read from the disk first.
    fn selects(&mut self, unit: &Unit) -> Option<bool> {
        let Source { selects: Selects { filter, bits }, log, units, .. } = *self.source;
        let MessageFilter::Sql(sql) = &**filter else {
            return Some(told_tags(units, unit).is_none_or(|code| filter.may_match(code)));
        };
        if let Some(bits) = bits
            && units.extension_unit(unit.queue_offset).is_some_and(|known| !bits.may_want(&known))
        {
            return Some(false);
        }
        let size = usize::try_from(unit.size).unwrap_or(usize::MAX);
        if self.is_cold(unit.log_offset, size) {
            let ahead = usize::try_from(self.log_end - unit.log_offset).unwrap_or(usize::MAX);
            self.reading.cold.push((unit.log_offset, ahead.min(AHEAD_BYTES).max(size)));
            return None;
        }
        let mut looked = sql.expression().len();
        let matches = |bytes: &[u8]| {
            let Ok(record) = RecordView::parse(bytes) else { return false };
            looked += record.properties().as_bytes().len();
            sql.matches(record.properties())
        };
        let is_selected = log.look(unit.log_offset, size, matches).unwrap_or(false);
        self.looked_bytes += looked;
        Some(is_selected)
    }

    /// Whether reading these bytes may wait for the disk. Those that one read wants mostly lie near each other: it is
    /// asked about the first of them.
    fn is_cold(&mut self, log_offset: u64, len: usize) -> bool {
        let Source { log, bounds, .. } = self.source;
        let is_seen = log_offset >= self.seen.start && log_offset.saturating_add(len as u64) <= self.seen.end;
        if bounds.is_warm || log_offset >= self.hot_from || is_seen {
            return false;
        }
        let resident_to = log.resident_to(log_offset, len, bounds.now_s);
        self.seen = log_offset..resident_to.unwrap_or(log_offset);
        resident_to.is_none()
    }

    fn pass(&mut self, unit: &Unit, status: Status) {
        if self.reading.count == 0 {
            self.reading.status = status;
        }
        self.reading.next_offset = unit.next_offset();
    }

    fn take(&mut self, unit: &Unit, size: usize) {
        match &mut self.open {
            Some((_, end)) if *end == unit.log_offset => *end = unit.log_end(),
            _ => {
                self.cut();
                self.open = Some((unit.log_offset, unit.log_end()));
            }
        }
        self.reading.status = Status::Found;
        self.reading.next_offset = unit.next_offset();
        self.reading.count += usize::from(unit.count);
        self.reading.bytes += size;
        if self.source.units.is_doubtful(unit) {
            self.doubtful.push(*unit);
        }
    }

    /// Turns the open range into a piece.
    fn cut(&mut self) {
        let Some((from, to)) = self.open.take() else { return };
        let is_seen = self.seen.start <= from && to <= self.seen.end;
        let is_there = is_seen || self.source.bounds.is_warm || from >= self.hot_from;
        if !is_there || !self.doubtful.is_empty() {
            return self.cut_with_care(from, to);
        }
        self.add_range(from, to);
    }

    /// The same for a range that may be on the disk only, or may hold something else than its units say.
    fn cut_with_care(&mut self, from: u64, to: u64) {
        let len = usize::try_from(to - from).unwrap_or(usize::MAX);
        let doubtful = std::mem::take(&mut self.doubtful);
        if self.is_cold(from, len) {
            self.reading.cold.push((from, len));
        } else if doubtful.iter().any(|unit| !self.is_right(unit)) {
            return self.cut_apart((from, to), &doubtful);
        }
        self.add_range(from, to);
    }

    fn add_range(&mut self, from: u64, to: u64) {
        let len = usize::try_from(to - from).unwrap_or(usize::MAX);
        if !self.add(from, len) {
            // Deleted between the look at the start of the log and now.
            self.reading.bytes -= len;
        }
    }

    /// Whether the log has the record that a unit speaks of.
    fn is_right(&self, unit: &Unit) -> bool {
        let Source { units, log, .. } = self.source;
        let size = usize::try_from(unit.size).unwrap_or(usize::MAX);
        log.look(unit.log_offset, size, |bytes| units.is_record_of(unit, bytes)).unwrap_or(false)
    }

    /// Takes of a range what is left without the units whose records are others: a consumer never gets those.
    fn cut_apart(&mut self, (from, to): (u64, u64), doubtful: &[Unit]) {
        let Source { units, .. } = self.source;
        let mut at = from;
        for unit in doubtful {
            if self.is_right(unit) {
                continue;
            }
            tell_damaged(units, unit);
            self.take_whole(at, unit.log_offset);
            at = unit.log_end();
            self.reading.count = self.reading.count.saturating_sub(usize::from(unit.count));
            self.reading.bytes =
                self.reading.bytes.saturating_sub(usize::try_from(unit.size).unwrap_or(usize::MAX));
        }
        self.take_whole(at, to);
    }

    fn take_whole(&mut self, from: u64, to: u64) {
        let len = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        if len > 0 {
            self.add(from, len);
        }
    }

    /// Adds a piece of the log; false if it is gone. The next one is most likely of the same segment.
    fn add(&mut self, from: u64, len: usize) -> bool {
        let pieces = &mut self.reading.pieces;
        if pieces.last_mut().is_some_and(|last| last.add(from, len)) {
            return true;
        }
        let room = self.source.bounds.wish.min(PIECES);
        let Some(mut segment) = self.source.log.pieces(from, room) else { return false };
        let is_there = segment.add(from, len);
        if is_there {
            pieces.push(segment);
        }
        is_there
    }

    fn finish(mut self) -> Reading {
        self.cut();
        if self.reading.status == Status::Found && self.reading.pieces.is_empty() {
            self.reading.count = 0;
            self.reading.status = Status::MessageWasRemoving;
        }
        self.reading
    }
}
