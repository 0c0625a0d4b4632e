//! Unpacks the compressed archives of golden data: GNU tar, as far as they need it.
//!
//! Invariants:
//! - nothing is written outside the target folder: the archives are ours, and paths are joined as they are.

use std::io::Read;
use std::path::Path;

const BLOCK_BYTES: usize = 512;

/// Unpacks `archive` below `target`.
pub(super) fn unpack(archive: &Path, target: &Path) {
    let packed = std::fs::File::open(archive).expect("the archive is in tests/golden/store");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("the archive is whole");
    let mut rest = &bytes[..];
    let mut long_name = None;
    while let Some((head, behind)) = rest.split_at_checked(BLOCK_BYTES) {
        if head[0] == 0 {
            return;
        }
        let len = octal(&head[124..135]);
        let content = &behind[..len];
        rest = &behind[len.next_multiple_of(BLOCK_BYTES)..];
        let name = long_name.take().unwrap_or_else(|| text(&head[..100]));
        match head[156] {
            b'L' => long_name = Some(text(content)),
            b'5' => std::fs::create_dir_all(target.join(name)).expect("a folder can be made"),
            b'0' => std::fs::write(target.join(name), content).expect("a file can be written"),
            other => panic!("entry of kind {other}"),
        }
    }
}

fn octal(digits: &[u8]) -> usize {
    usize::from_str_radix(&text(digits), 8).expect("sizes are octal")
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).expect("names are UTF-8")
}
