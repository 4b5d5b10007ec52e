//! Parts of recordings as they are stored: lines of an asciicast, compressed, and encrypted if the gate has
//! recipients. The gate packs them, ozctl unpacks them; neither trusts the data, as an administrator of the store may
//! have written any data there. All functions take and return bytes.

pub mod age;
pub mod frames;

use std::io::{self, Read as _};

/// The default of zstd: it reduces the output of a terminal to about a tenth.
const LEVEL: i32 = 3;
/// The window that an unpacker allocates, as a power of two: 8 MiB, more than the size of a part that the gate
/// packs.
const MAX_WINDOW: u32 = 23;

/// The reason why stored data is not a part.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The data is not the output of [`pack`].
    #[error("it is not compressed by zstd, or is damaged: {0}")]
    Damaged(#[source] io::Error),
    /// The part has more lines than the gate packs.
    #[error("it has more than {limit} bytes once it is unpacked")]
    TooLarge {
        /// The maximum number of bytes to unpack.
        limit: usize,
    },
}

/// Returns the part with these lines in its stored form. The same lines always result in the same
/// bytes.
///
/// # Errors
/// When there is not enough memory.
pub fn pack(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(lines)
}

/// Returns the lines of a stored part, which are at most `limit` bytes. The function holds no more than that,
/// and a window, in memory.
///
/// # Errors
/// When the data is not a part, or the part has more bytes.
pub fn unpack(stored: &[u8], limit: usize) -> Result<Vec<u8>, UnpackError> {
    let mut decoder = zstd::stream::read::Decoder::new(stored).map_err(UnpackError::Damaged)?;
    let windowed = decoder.window_log_max(MAX_WINDOW);
    windowed.map_err(UnpackError::Damaged)?;
    let mut lines = Vec::new();
    let enough = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = decoder.take(enough).read_to_end(&mut lines);
    read.map_err(UnpackError::Damaged)?;
    if lines.len() > limit {
        return Err(UnpackError::TooLarge { limit });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"{\"version\": 2}\n[0.1, \"o\", \"$ \"]\n";

    #[test]
    fn packed_lines_are_unpacked_unchanged() {
        let long = LINES.repeat(100_000);
        for lines in [b"".as_slice(), LINES, &long] {
            let stored = pack(lines).unwrap();
            assert_eq!(stored, pack(lines).unwrap(), "it is the same each time");
            assert_eq!(unpack(&stored, lines.len()).unwrap(), lines);
        }
    }

    #[test]
    fn no_more_is_unpacked_than_was_asked_for() {
        let bomb = pack(&vec![b'\n'; 64 << 20]).unwrap();
        assert!(bomb.len() < 64 << 10);
        let error = unpack(&bomb, 1 << 20).unwrap_err();
        assert!(matches!(error, UnpackError::TooLarge { limit } if limit == 1 << 20));
        let stored = pack(LINES).unwrap();
        assert!(unpack(&stored, LINES.len() - 1).is_err());
        assert!(unpack(&[stored.as_slice(), bomb.as_slice()].concat(), 1 << 20).is_err());
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let stored = pack(&LINES.repeat(50)).unwrap();
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 0x40;
            let unpacked = unpack(&changed, 1 << 20);
            assert!(
                unpacked.is_err() || unpacked.is_ok_and(|lines| lines == LINES.repeat(50)),
                "byte {at}"
            );
        }
        for length in 1..stored.len() {
            assert!(
                unpack(&stored[..length], 1 << 20).is_err(),
                "{length} bytes"
            );
        }
        assert!(unpack(b"no part at all", 1 << 20).is_err());
    }
}
