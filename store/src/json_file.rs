//! A JSON file that is replaced as a whole, and the generation before it.
//!
//! Invariants:
//! - at any moment one whole generation is on the disk: the new one is written beside the old one, forced, and
//!   renamed; the old one becomes `<file>.bak`;
//! - a damaged file is never made the old generation: it is put aside as `<file>.damaged`, and counts as the newest
//!   generation, which is lost, until another one is saved; then it is `<file>.old.damaged`;
//! - without a generation that can be read nobody goes on: the table would be lost with the next save;
//! - that neither file exists is no failure: there is nothing yet.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use troupemq_codec::CodecError;
use troupemq_codec::loose_json::from_loose_trusted;

use crate::error::StoreError;
use crate::faults::{self, Op};
use crate::paths::{create_dir, sync_dir};

/// Ending of the generation before the newest.
pub(crate) const OLDER: &str = "bak";
/// Ending of one that was put aside.
pub(crate) const DAMAGED: &str = "damaged";
/// Ending of one that was put aside before a younger one was saved.
const LONG_DAMAGED: &str = "old.damaged";

/// A file of a table.
#[derive(Debug, Clone)]
pub struct JsonFile {
    path: PathBuf,
}

impl JsonFile {
    /// The file at `path`, whether it exists or not.
    pub fn at(path: PathBuf) -> JsonFile {
        JsonFile { path }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the newest generation that can be read; nothing if there is none.
    ///
    /// Fails if only damaged generations are left: to go on without them would lose what they held.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        self.load_with(from_loose_trusted)
    }

    /// Same, with a reader of the caller's.
    pub fn load_with<T>(
        &self,
        parse: impl Fn(&[u8]) -> Result<T, CodecError>,
    ) -> Result<Option<T>, StoreError> {
        match read(&self.path)? {
            Some(bytes) if !is_blank(&bytes) => match whole(&bytes).and_then(&parse) {
                Ok(table) => return Ok(Some(table)),
                Err(error) if read(&self.beside(OLDER))?.is_none_or(|old| is_blank(&old)) => {
                    tracing::error!(file = %self.path.display(), %error, "a table cannot be read");
                    let why = "no readable table and no older one; moved away, an empty one takes its place";
                    return Err(StoreError::Corrupt { file: self.path.clone(), at: 0, why });
                }
                Err(error) => {
                    let file = self.path.display();
                    tracing::warn!(%file, %error, "table cannot be read, the generation before it is taken");
                    self.put_aside()?;
                }
            },
            // An empty file must not become the old generation either.
            Some(_) => self.put_aside()?,
            None => {}
        }
        self.load_old(parse)
    }

    /// Whether the newest generation is gone, as far as is known: it was put aside and none was saved since, or there
    /// is none at all. One that is only missing was not saved to its end.
    pub fn has_lost(&self) -> Result<bool, StoreError> {
        let is_gone = is_there(&self.beside(DAMAGED))? || !is_there(&self.beside(OLDER))?;
        Ok(is_gone && !is_there(&self.path)?)
    }

    fn put_aside(&self) -> Result<(), StoreError> {
        let aside = self.beside(DAMAGED);
        let rename = || fs::rename(&self.path, &aside);
        faults::pass(Op::Rename, &self.path, rename).map_err(StoreError::io("put aside", &self.path))
    }

    /// Makes `bytes` the newest generation; returns when the disk has it.
    pub fn save(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        create_dir(dir)?;
        let fresh = self.beside("tmp");
        write_forced(&fresh, bytes).map_err(StoreError::io("write", &fresh))?;
        self.forget_damaged()?;
        match faults::pass(Op::Rename, &self.path, || fs::rename(&self.path, self.beside(OLDER))) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("rename", &self.path)(cause));
            }
            _ => {}
        }
        let rename = || fs::rename(&fresh, &self.path);
        faults::pass(Op::Rename, &fresh, rename).map_err(StoreError::io("rename", &fresh))?;
        sync_dir(dir)
    }

    /// If there is a newest generation, one that was put aside is none: should this save be cut off, nothing is lost.
    fn forget_damaged(&self) -> Result<(), StoreError> {
        let aside = self.beside(DAMAGED);
        if !is_there(&self.path)? || !is_there(&aside)? {
            return Ok(());
        }
        let rename = || fs::rename(&aside, self.beside(LONG_DAMAGED));
        faults::pass(Op::Rename, &aside, rename).map_err(StoreError::io("rename", &aside))
    }

    fn load_old<T>(&self, parse: impl Fn(&[u8]) -> Result<T, CodecError>) -> Result<Option<T>, StoreError> {
        let path = self.beside(OLDER);
        match read(&path)? {
            Some(bytes) if !is_blank(&bytes) => whole(&bytes).and_then(parse).map(Some).map_err(|error| {
                tracing::error!(file = %path.display(), %error, "the last generation of a table cannot be read");
                StoreError::Corrupt { file: path, at: 0, why: "no readable table and no newer one" }
            }),
            _ => Ok(None),
        }
    }

    /// The file with one more ending.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }
}

fn is_there(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look at", path))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(StoreError::io("read", path)(cause)),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// The bytes, unless the disk has lost some: what it loses reads as zeros, which nobody writes into such a file.
pub(crate) fn whole(bytes: &[u8]) -> Result<&[u8], CodecError> {
    match memchr::memchr(0, bytes) {
        None => Ok(bytes),
        Some(at) => Err(CodecError::Invalid { what: "table", value: format!("zeros from byte {at} on") }),
    }
}

fn write_forced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = faults::pass(Op::Create, path, || File::create(path))?;
    faults::write_at(&file, path, bytes, 0)?;
    faults::pass(Op::Flush, path, || file.sync_all())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Numbers = BTreeMap<String, i64>;

    fn file(dir: &Path) -> JsonFile {
        JsonFile::at(dir.join("config").join("t.json"))
    }

    fn numbers(file: &JsonFile) -> Option<i64> {
        file.load::<Numbers>().unwrap().map(|numbers| numbers["n"])
    }

    #[test]
    fn what_was_saved_is_read_and_the_generation_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        assert_eq!(numbers(&file), None);
        file.save(b"{\"n\":1}").unwrap();
        file.save(b"{\"n\":2}").unwrap();
        assert_eq!(numbers(&file), Some(2));
        assert_eq!(fs::read(file.beside(OLDER)).unwrap(), b"{\"n\":1}");
        assert!(!file.beside("tmp").try_exists().unwrap());
    }

    #[test]
    fn a_stop_between_the_renames_leaves_the_old_generation() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        file.save(b"{\"n\":1}").unwrap();
        fs::write(file.beside("tmp"), b"{\"n\":").unwrap();
        assert_eq!(numbers(&file), Some(1));
        fs::rename(file.path(), file.beside(OLDER)).unwrap();
        assert_eq!(numbers(&file), Some(1));
        file.save(b"{\"n\":3}").unwrap();
        assert_eq!(numbers(&file), Some(3));
    }

    #[test]
    fn a_damaged_file_gives_way_to_the_old_generation_and_never_becomes_it() {
        for damage in [&b""[..], b" \n", b"{\"n\":", b"\0\0\0\0", b"{\"n\":2,\"\0\":5}", b"\xff\xfe"] {
            let dir = tempfile::tempdir().unwrap();
            let file = file(dir.path());
            file.save(b"{\"n\":1}").unwrap();
            file.save(b"{\"n\":2}").unwrap();
            fs::write(file.path(), damage).unwrap();
            assert_eq!(numbers(&file), Some(1), "{damage:?}");
            file.save(b"{\"n\":3}").unwrap();
            assert_eq!(fs::read(file.beside(OLDER)).unwrap(), b"{\"n\":1}", "{damage:?}");
            assert_eq!(numbers(&file), Some(3));
        }
    }

    #[test]
    fn a_save_is_done_when_the_disk_has_the_file_and_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        for nth in 0..2 {
            let fault = faults::arm(dir.path(), Op::Flush, nth, 5);
            assert!(file.save(b"{\"n\":1}").is_err() && fault.has_struck(), "flush {nth}");
        }
        let fault = faults::arm(dir.path(), Op::Flush, 2, 5);
        assert!(file.save(b"{\"n\":2}").is_ok() && !fault.has_struck());
    }

    #[test]
    fn a_newest_generation_that_is_lost_is_known_until_another_is_saved() {
        for damage in [&b""[..], b"{\"n\":"] {
            let dir = tempfile::tempdir().unwrap();
            let file = file(dir.path());
            assert!(file.has_lost().unwrap(), "there is none");
            file.save(b"{\"n\":1}").unwrap();
            file.save(b"{\"n\":2}").unwrap();
            assert!(!file.has_lost().unwrap());
            fs::rename(file.path(), file.beside(OLDER)).unwrap();
            assert_eq!((numbers(&file), file.has_lost().unwrap()), (Some(2), false), "a save was cut off");
            fs::write(file.path(), damage).unwrap();
            assert_eq!((numbers(&file), file.has_lost().unwrap()), (Some(2), true));
            assert_eq!((numbers(&file), file.has_lost().unwrap()), (Some(2), true), "of the next start too");
            file.save(b"{\"n\":3}").unwrap();
            assert!(!file.has_lost().unwrap());
            let cut_off = faults::arm(&file.beside("tmp"), Op::Rename, 0, 5);
            assert!(file.save(b"{\"n\":4}").is_err() && cut_off.has_struck());
            assert_eq!((numbers(&file), file.has_lost().unwrap()), (Some(3), false), "long after the damage");
        }
    }

    #[test]
    fn a_refusal_at_any_step_of_a_save_leaves_a_whole_generation() {
        for op in [Op::Create, Op::Write, Op::Flush, Op::Rename] {
            for nth in 0..3 {
                let dir = tempfile::tempdir().unwrap();
                let file = file(dir.path());
                file.save(b"{\"n\":1}").unwrap();
                file.save(b"{\"n\":2}").unwrap();
                let fault = faults::arm(dir.path(), op, nth, 28);
                let saved = file.save(b"{\"n\":3}");
                assert_eq!(saved.is_err(), fault.has_struck(), "{op:?} {nth}: {saved:?}");
                drop(fault);
                let newest = numbers(&file);
                assert!(newest == Some(3) || saved.is_err() && newest == Some(2), "{op:?} {nth}: {newest:?}");
                file.save(b"{\"n\":4}").unwrap();
                assert_eq!(numbers(&file), Some(4), "{op:?} {nth}");
            }
        }
    }

    #[test]
    fn a_damaged_only_generation_is_an_error_that_names_it_until_it_is_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        file.save(b"{\"n\":1}").unwrap();
        fs::write(file.path(), b"{\"n\"").unwrap();
        for _ in 0..2 {
            let error = file.load::<Numbers>().unwrap_err();
            assert!(error.to_string().contains("t.json is damaged"), "{error}");
        }
        fs::remove_file(file.path()).unwrap();
        assert_eq!(numbers(&file), None);
    }

    #[test]
    fn a_damaged_last_generation_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        file.save(b"{\"n\":1}").unwrap();
        fs::rename(file.path(), file.beside(OLDER)).unwrap();
        fs::write(file.beside(OLDER), b"{\"n\"").unwrap();
        let error = file.load::<Numbers>().unwrap_err();
        assert!(error.to_string().contains("t.json.bak"), "{error}");
    }
}
