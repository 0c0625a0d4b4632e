//! The timer log: one unit for each timer, linked backwards through its slot (RocketMQ: `TimerLog`).
//!
//! Invariants:
//! - units are written through the file: a full disk is an error, after which the log is as it was;
//! - units never cross a file; sixteen bytes stay free for the blank that closes it;
//! - behind the end all bytes of the last file are zero;
//! - a unit links only to an older one, so every walk along a chain ends;
//! - what may not be in memory is read through the file first: what the disk cannot read is an error.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use troupemq_codec::timer_record::{
    TimerScan, TimerUnit, UNIT_BLANK_BYTES, UNIT_BYTES, scan_timer_log, timer_blank,
};

use crate::blocks;
use crate::error::StoreError;
use crate::paths::{create_dir, remove, sync_dir};
use crate::segment::{Ahead, Allocate, Segment, SegmentWriter};
use crate::segments::{SegmentFile, Segments, list_files};

/// Bytes in front of a unit that the system is asked about together with it.
const NEAR_BYTES: u64 = 64 << 10;
/// Bytes from the first to the last unit read above which they leave the process.
const READ_BYTES: u64 = 1 << 20;

/// The timer log, owned by its one writer.
#[derive(Debug)]
pub(crate) struct TimerLog {
    dir: PathBuf,
    segments: Arc<Segments>,
    writer: Option<SegmentWriter>,
    segment_bytes: u64,
    /// Units that follow the end and are not written yet.
    staged: Vec<u8>,
}

impl TimerLog {
    /// Opens the files and finds the end: the first place from the segment of `from` on that holds no unit, or
    /// one that `keep` refuses. Hands each unit of those segments to `visit` with its position.
    pub(crate) fn open(
        dir: PathBuf,
        new_bytes: u64,
        from: u64,
        mut keep: impl FnMut(u64, &TimerUnit) -> bool,
    ) -> Result<TimerLog, StoreError> {
        let files = sound_row(&dir)?;
        let segment_bytes = files.first().map_or(new_bytes, |first| first.len);
        let mut opened = Vec::new();
        let mut writer = None;
        for file in files {
            if writer.is_some() {
                // Behind the end.
                remove(&file.path)?;
                continue;
            }
            let mut segment = SegmentWriter::open(&file.path, file.start, segment_bytes)?;
            let end = match file.start + segment_bytes > from {
                true => find_end(segment.segment(), segment.whole(), &mut keep)?,
                false => None,
            };
            opened.push(Arc::clone(segment.segment()));
            match end {
                None => segment.publish(file.start + segment_bytes),
                Some(end) if file.start + segment_bytes - end < UNIT_BLANK_BYTES as u64 => {
                    // No file is written so far: it has lost its end, and is the only one.
                    tracing::warn!(file = %file.path.display(), "timer log has lost its end and is removed");
                    opened.pop();
                    remove(&file.path)?;
                }
                Some(end) => {
                    segment.publish(end);
                    blocks::clear(&file.path, end - file.start)?;
                    writer = Some(segment);
                }
            }
        }
        let segments = Arc::new(Segments::new(opened));
        Ok(TimerLog { dir, segments, writer, segment_bytes, staged: Vec::new() })
    }

    /// The segments, for the thread that forces them to the disk.
    pub(crate) fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// Position behind the last unit.
    pub(crate) fn end(&self) -> u64 {
        match &self.writer {
            Some(writer) => writer.position(),
            None => self.segments.last().map_or(0, |last| last.end()),
        }
    }

    /// Whether the next unit goes to another file: what is staged must be written before.
    pub(crate) fn is_full(&self) -> bool {
        let room = self.writer.as_ref().map_or(0, SegmentWriter::remaining);
        room < self.staged.len() + UNIT_BYTES + UNIT_BLANK_BYTES
    }

    /// Takes in a unit that is to be written with others and answers what will be its position.
    ///
    /// # Panics
    /// If it goes to another file than those that are staged.
    pub(crate) fn stage(&mut self, unit: &TimerUnit) -> Result<u64, StoreError> {
        if self.is_full() {
            assert!(self.staged.is_empty(), "units that are written together stand in one file");
            self.roll()?;
        }
        let position = self.end() + self.staged.len() as u64;
        self.staged.extend_from_slice(&unit.encode());
        Ok(position)
    }

    /// Appends what is staged, by one write. If that fails, the log is as it was.
    pub(crate) fn append_staged(&mut self) -> Result<(), StoreError> {
        let staged = std::mem::take(&mut self.staged);
        let Some(writer) = self.writer.as_mut().filter(|_| !staged.is_empty()) else { return Ok(()) };
        let appended = writer.append(&staged);
        if appended.is_err() {
            // Whole units may stand there. The file has these bytes already; if it takes no zeros either, the next
            // start enters some timers twice, which counts once.
            let end = writer.position();
            if let Err(error) = writer.write_zeros(end..end + staged.len() as u64) {
                tracing::warn!(%error, end, "what is left of timers that were not entered stays in the timer log");
            }
        }
        self.staged = staged;
        self.staged.clear();
        appended
    }

    /// The last unit of the log.
    pub(crate) fn last(&self) -> Result<Option<TimerUnit>, StoreError> {
        let end = self.end();
        let Some(segment) = end.checked_sub(1).and_then(|last| self.segments.at(last)) else {
            return Ok(None);
        };
        let used = end - segment.start();
        let full = used == self.segment_bytes;
        let unit_bytes = UNIT_BYTES as u64;
        // In a closed file the last unit stands in front of the blank.
        let units = if full { (used - UNIT_BLANK_BYTES as u64) / unit_bytes } else { used / unit_bytes };
        let Some(before) = units.checked_sub(1) else { return Ok(None) };
        unit_at(&self.segments, (segment.start() + before * unit_bytes).cast_signed())
    }

    /// Hands every unit from position `from` on to `visit`.
    pub(crate) fn each_from(
        &self,
        from: u64,
        mut visit: impl FnMut(u64, &TimerUnit),
    ) -> Result<(), StoreError> {
        for segment in self.segments.snapshot().iter().filter(|segment| segment.end() > from) {
            let mut walk = |position: u64, unit: &TimerUnit| {
                if position >= from {
                    visit(position, unit);
                }
                true
            };
            find_end(segment, segment.mapping().bytes(), &mut walk)?;
        }
        Ok(())
    }

    /// Start of the first segment whose units were written at `written_ms` or later, as far as the first units
    /// tell: everything older stands in front.
    pub(crate) fn start_of(&self, written_ms: i64) -> Result<u64, StoreError> {
        let mut found = self.start();
        for start in self.starts() {
            match unit_at(&self.segments, start.cast_signed())? {
                Some(unit) if unit.written_ms <= written_ms => found = start,
                _ => break,
            }
        }
        Ok(found)
    }

    /// Position of the first file.
    pub(crate) fn start(&self) -> u64 {
        self.segments.start().unwrap_or(0)
    }

    fn starts(&self) -> Vec<u64> {
        self.segments.snapshot().iter().map(|segment| segment.start()).collect()
    }

    /// The first unit of each file that has one.
    pub(crate) fn first_of_each(&self) -> Result<Vec<TimerUnit>, StoreError> {
        let units = self.starts().into_iter().map(|start| unit_at(&self.segments, start.cast_signed()));
        units.filter_map(Result::transpose).collect()
    }

    /// Removes all files; the disk knows then.
    pub(crate) fn remove(self) -> Result<(), StoreError> {
        // From the end on, as everywhere: a kill in between leaves a row.
        self.segments.snapshot().iter().rev().try_for_each(|segment| remove(segment.path()))?;
        if self.dir.is_dir() { sync_dir(&self.dir) } else { Ok(()) }
    }

    /// The oldest unit that is kept.
    pub(crate) fn first(&self) -> Result<Option<TimerUnit>, StoreError> {
        match self.segments.start() {
            Some(start) => unit_at(&self.segments, start.cast_signed()),
            None => Ok(None),
        }
    }

    fn roll(&mut self) -> Result<(), StoreError> {
        create_dir(&self.dir)?;
        let start = self.segments.last().map_or(0, |last| last.end());
        let writer = SegmentWriter::create(&self.dir, start, self.segment_bytes, Allocate::Sparse)?;
        // First the new file, then the blank: without room for more, the log stays as it is.
        if let Some(full) = &mut self.writer {
            let remaining = i32::try_from(full.remaining()).expect("a segment is shorter than 2 GiB");
            full.append(&timer_blank(remaining))?;
            full.publish(full.segment().end());
        }
        self.segments.push(Arc::clone(writer.segment()));
        self.writer = Some(writer);
        Ok(())
    }
}

/// Hands every unit to `visit`, with its position.
pub(crate) fn each(segments: &Segments, mut visit: impl FnMut(u64, &TimerUnit)) -> Result<(), StoreError> {
    let mut walk = |position: u64, unit: &TimerUnit| {
        visit(position, unit);
        true
    };
    for segment in segments.snapshot().iter() {
        find_end(segment, segment.mapping().bytes(), &mut walk)?;
    }
    Ok(())
}

/// The unit at a position.
pub(crate) fn unit_at(segments: &Segments, position: i64) -> Result<Option<TimerUnit>, StoreError> {
    Units::of(segments).at(position)
}

/// Looks at units one after the other: the system is asked once for those that stand side by side.
#[derive(Debug)]
pub(crate) struct Units<'a> {
    segments: &'a Segments,
    segment: Option<Arc<Segment>>,
    /// Positions that can be read through the map.
    ready: Range<u64>,
    /// Positions of that segment between which units were read that may still be in the process.
    read: Range<u64>,
}

impl<'a> Units<'a> {
    /// Those of a log.
    pub(crate) fn of(segments: &'a Segments) -> Units<'a> {
        Units { segments, segment: None, ready: 0..0, read: 0..0 }
    }

    /// The unit at a position. Waits for the disk.
    pub(crate) fn at(&mut self, position: i64) -> Result<Option<TimerUnit>, StoreError> {
        let Ok(position) = u64::try_from(position) else { return Ok(None) };
        let end = position.saturating_add(UNIT_BYTES as u64);
        if position < self.ready.start || end > self.ready.end {
            let Some(segment) = self.segments.at(position) else { return Ok(None) };
            // Chains lead back. What is not in memory is read by itself: what stands in front may not be wanted.
            let from = end.saturating_sub(NEAR_BYTES).max(segment.start());
            let near = usize::try_from(end - from).unwrap_or(UNIT_BYTES);
            let ready = match segment.is_resident(from, near) {
                true => from..end,
                false => segment.ready(position, UNIT_BYTES).map(|()| position..end)?,
            };
            self.go_on(segment, ready);
        }
        let bytes = self.segment.as_ref().and_then(|segment| segment.slice(position, UNIT_BYTES));
        Ok(bytes.and_then(|bytes| TimerUnit::decode(bytes).ok()))
    }

    /// Goes on with units of this segment. What was read before leaves the process once it is much.
    fn go_on(&mut self, segment: Arc<Segment>, ready: Range<u64>) {
        let is_same = self.segment.as_ref().is_some_and(|known| Arc::ptr_eq(known, &segment));
        let is_much = self.read.end - self.read.start > READ_BYTES;
        match &self.segment {
            Some(known) if is_much || !is_same => {
                known.unmap(self.read.clone());
                self.read = ready.clone();
            }
            Some(_) => self.read = self.read.start.min(ready.start)..self.read.end.max(ready.end),
            None => self.read = ready.clone(),
        }
        (self.segment, self.ready) = (Some(segment), ready);
    }
}

/// Deletes the files, except the last, all of whose units belong to slots before `read_to_ms`. If there are any, `note`
/// is told before where the log will begin.
pub(crate) fn expire(
    segments: &Segments,
    read_to_ms: i64,
    note: impl FnOnce(u64) -> Result<(), StoreError>,
) -> Result<usize, StoreError> {
    let list = segments.snapshot();
    let mut below = 0;
    for segment in list.iter().take(list.len().saturating_sub(1)) {
        // The last one was written last, but others may wait longer.
        let mut is_done = |_: u64, unit: &TimerUnit| unit.due_ms() < read_to_ms;
        if find_end(segment, segment.mapping().bytes(), &mut is_done)?.is_some() {
            break;
        }
        below = segment.end();
    }
    if below == 0 {
        return Ok(0);
    }
    note(below)?;
    let gone = segments.take_before(below);
    for segment in &gone {
        remove(segment.path())?;
    }
    Ok(gone.len())
}

/// Walks over the units in `bytes`, the front of a segment; answers where they end if it is not closed by a blank.
fn find_end(
    segment: &Segment,
    bytes: &[u8],
    keep: &mut impl FnMut(u64, &TimerUnit) -> bool,
) -> Result<Option<u64>, StoreError> {
    let mut ahead = Ahead::over(segment);
    let mut at = 0;
    loop {
        let position = segment.start() + at as u64;
        let rest = bytes.get(at..).unwrap_or_default();
        ahead.want(position, UNIT_BYTES.min(rest.len()))?;
        match scan_timer_log(rest) {
            TimerScan::Unit(unit) if unit.previous < position.cast_signed() && keep(position, &unit) => {
                at += UNIT_BYTES;
            }
            TimerScan::Blank => return Ok(None),
            _ => return Ok(Some(position)),
        }
    }
}

/// The files of the log, as long as they form a row of equal files; what does not is removed: the timers of the
/// topic make it again.
fn sound_row(dir: &Path) -> Result<Vec<SegmentFile>, StoreError> {
    let mut files = list_files(dir)?;
    let len = match &files[..] {
        [] => 0,
        [only] => only.len,
        [first, second, ..] => second.start - first.start,
    };
    let min = (UNIT_BYTES + UNIT_BLANK_BYTES) as u64;
    let mut expected = files.first().map(|first| first.start);
    let sound = files.iter().take_while(|file| {
        let fits = len >= min && file.len == len && expected == Some(file.start);
        expected = Some(file.start + len);
        fits
    });
    let sound = sound.count();
    for file in files.drain(sound..) {
        tracing::warn!(file = %file.path.display(), "file does not fit the timer log and is removed");
        remove(&file.path)?;
    }
    Ok(files)
}
