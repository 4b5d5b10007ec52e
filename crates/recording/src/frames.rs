//! Lines of a recording that are encrypted separately with each write: so they survive a process that is killed, and
//! a reader without the identity can determine how far they are complete, and nothing else.
//!
//! [`MAGIC`] and a length (4 bytes, big-endian, as all numbers here) precede an age file, which contains a key of
//! ChaCha20-Poly1305. Each frame has the length of its sealed data (4 bytes), its number (8 bytes), which is the end
//! of the nonce and increases, the first 8 bytes of the SHA-256 of the sealed data, and the sealed data.

use zeroize::Zeroizing;

use crate::age::{self, AgeError, Cipher, CryptoError, Identity, Recipient};

/// The first bytes of a file of frames.
pub const MAGIC: &[u8] = b"oz-frames/v1\n";
const LENGTH: usize = 4;
const NUMBER: usize = 8;
const CHECK: usize = 8;
const TAG: usize = 16;
const HEAD: usize = LENGTH + NUMBER + CHECK;
/// The number of bytes by which a frame is longer than its lines.
pub const OVERHEAD: usize = HEAD + TAG;

/// The reason why frames cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// The data is not a sequence of frames, or is damaged.
    #[error("its frames are damaged: {0}")]
    Damaged(&'static str),
    /// The key is not available.
    #[error(transparent)]
    Key(#[from] AgeError),
    /// The frames contain more data than the limit.
    #[error("its frames have more than {0} bytes")]
    TooLarge(usize),
}

/// The key that seals frames. Only its holder, or the identity of a recipient, can read them.
#[derive(Debug)]
pub struct Sealer {
    cipher: Cipher,
    next: u64,
}

impl Sealer {
    /// Creates a sealer with a new key; also returns the first bytes of the file.
    ///
    /// # Errors
    /// The same as for [`age::encrypt`].
    pub fn begin(recipients: &[Recipient]) -> Result<(Self, Vec<u8>), CryptoError> {
        let key = age::random::<32>()?;
        let wrapped = age::encrypt(recipients, key.as_slice())?;
        let length = u32::try_from(wrapped.len()).map_err(|_| CryptoError)?;
        let beginning = [MAGIC, &length.to_be_bytes(), &wrapped].concat();
        let cipher = Cipher::new(&key)?;
        Ok((Self { cipher, next: 0 }, beginning))
    }

    /// Returns the frame with these lines. The caller may discard it: no number is used twice.
    ///
    /// # Errors
    /// When the lines are over 4 GiB, or the library fails.
    pub fn seal(&mut self, lines: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(CryptoError)?;
        let length = u32::try_from(lines.len() + TAG).map_err(|_| CryptoError)?;
        let mut frame = Vec::with_capacity(lines.len() + OVERHEAD);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&number.to_be_bytes());
        frame.extend_from_slice(&[0; CHECK]);
        self.cipher.seal(nonce(number), lines, &mut frame)?;
        let check = check(&frame[HEAD..]);
        frame[LENGTH + NUMBER..HEAD].copy_from_slice(&check);
        Ok(frame)
    }

    /// Returns the lines that were sealed with this key.
    ///
    /// # Errors
    /// When any part of the file is something else.
    pub fn open(&self, file: &[u8]) -> Result<Vec<u8>, FramesError> {
        open_with(&self.cipher, split(file)?.1, usize::MAX)
    }
}

/// Returns the part of a file that is certainly complete: its beginning and whole frames; empty if there is
/// no frame.
#[must_use]
pub fn whole(file: &[u8]) -> &[u8] {
    let Ok((_, mut rest)) = split(file) else {
        return &[];
    };
    let beginning = file.len() - rest.len();
    while let Ok(Some((_, _, after))) = frame(rest) {
        rest = after;
    }
    let end = file.len() - rest.len();
    if end == beginning { &[] } else { &file[..end] }
}

/// Returns the lines in a file with a key that was encrypted to one of `identities`. The lines are at most `limit`
/// bytes.
///
/// # Errors
/// When the key was not encrypted to one of them, when any frame was changed, and when the last frame is cut. The
/// function cannot detect missing frames at the end.
pub fn open(file: &[u8], identities: &[Identity], limit: usize) -> Result<Vec<u8>, FramesError> {
    let (wrapped, frames) = split(file)?;
    let key = Zeroizing::new(age::decrypt(wrapped, identities)?);
    let key: Zeroizing<[u8; 32]> = match key.as_slice().try_into() {
        Ok(key) => Zeroizing::new(key),
        Err(_) => {
            return Err(FramesError::Damaged(
                "the key of its frames has another length",
            ));
        }
    };
    let cipher = Cipher::new(&key).map_err(AgeError::from)?;
    open_with(&cipher, frames, limit)
}

/// Returns the recipients that a file names, as [`age::named_recipients`].
///
/// # Errors
/// When the data is not a file of frames.
pub fn named_recipients(file: &[u8]) -> Result<Vec<Recipient>, FramesError> {
    Ok(age::named_recipients(split(file)?.0)?)
}

fn open_with(cipher: &Cipher, mut rest: &[u8], limit: usize) -> Result<Vec<u8>, FramesError> {
    let mut lines = Vec::new();
    let mut next = 0;
    while let Some((number, sealed, after)) = frame(rest)? {
        let opened = number >= next && cipher.open(nonce(number), sealed, &mut lines);
        if !opened {
            return Err(FramesError::Damaged("a frame is not as written"));
        }
        if lines.len() > limit {
            return Err(FramesError::TooLarge(limit));
        }
        next = number.saturating_add(1);
        rest = after;
    }
    Ok(lines)
}

/// Splits a file into the age file and the frames.
fn split(file: &[u8]) -> Result<(&[u8], &[u8]), FramesError> {
    let damaged = FramesError::Damaged("its header is invalid");
    let split = || {
        let rest = file.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_first_chunk::<LENGTH>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    };
    split().ok_or(damaged)
}

/// Returns the number of the first frame, its sealed data, and the rest; `None` at the end.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
fn frame(rest: &[u8]) -> Result<Option<(u64, &[u8], &[u8])>, FramesError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let whole = || {
        let (length, rest) = rest.split_first_chunk::<LENGTH>()?;
        let (number, rest) = rest.split_first_chunk::<NUMBER>()?;
        let (expected, rest) = rest.split_first_chunk::<CHECK>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (sealed, rest) = rest.split_at_checked(length)?;
        (check(sealed) == *expected).then_some((u64::from_be_bytes(*number), sealed, rest))
    };
    let cut = FramesError::Damaged("a frame is truncated or changed");
    whole().map(Some).ok_or(cut)
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

fn check(sealed: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&age::digest(sealed).as_ref()[..CHECK]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &[&[u8]], identity: &Identity) -> (Sealer, Vec<u8>) {
        let (mut sealer, mut file) = Sealer::begin(&[identity.recipient()]).unwrap();
        for lines in lines {
            file.extend(sealer.seal(lines).unwrap());
        }
        (sealer, file)
    }

    fn identity() -> Identity {
        Identity::generate().unwrap().0
    }

    #[test]
    fn sealed_frames_are_opened_with_identity_or_sealer() {
        let one = [identity()];
        let lines: [&[u8]; 3] = [b"[1]\n", b"", b"[2]\n[3]\n"];
        let (sealer, file) = written(&lines, &one[0]);
        assert_eq!(open(&file, &one, 12).unwrap(), b"[1]\n[2]\n[3]\n");
        assert_eq!(sealer.open(&file).unwrap(), b"[1]\n[2]\n[3]\n");
        assert_eq!(open(&file, &one, 11), Err(FramesError::TooLarge(11)));
        assert_eq!(whole(&file), file);
        assert_eq!(named_recipients(&file).unwrap(), [one[0].recipient()]);
        let stranger = [identity()];
        let refused = open(&file, &stranger, 100);
        assert_eq!(refused, Err(FramesError::Key(AgeError::NoMatch)));
        let (other, _) = written(&[], &one[0]);
        assert!(other.open(&file).is_err(), "each file has its own key");
        assert!(!file.windows(3).any(|three| three == b"[1]"));
    }

    #[test]
    fn half_written_frame_is_omitted_without_key() {
        let one = [identity()];
        let (_, begun) = written(&[], &one[0]);
        assert_eq!(whole(&begun), b"", "nothing was written into it");
        let (_, file) = written(&[b"[1]\n", b"[2]\n"], &one[0]);
        let frame = OVERHEAD + 4;
        let (first, second) = (file.len() - frame, file.len());
        for length in 0..=second {
            let expected = match length {
                _ if length == second => second,
                _ if length >= first => first,
                _ => 0,
            };
            // The file is cut, or has a length of which the disk stored only a part.
            let cut = &file[..length];
            let zeros = [cut, &[0; 100]].concat();
            for found in [cut, &zeros] {
                let whole = whole(found);
                assert_eq!(whole, &file[..expected], "{length}");
                if !whole.is_empty() {
                    assert!(open(whole, &one, 100).is_ok(), "{length}");
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_and_a_frame_in_another_place_are_found() {
        let one = [identity()];
        let (_, file) = written(&[b"[1]\n", b"[2]\n"], &one[0]);
        for at in 0..file.len() * 8 {
            let mut changed = file.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(open(&changed, &one, 100).is_err(), "bit {at}");
        }
        let (rest, second) = file.split_at(file.len() - OVERHEAD - 4);
        let (begin, first) = rest.split_at(rest.len() - OVERHEAD - 4);
        for order in [[second, first], [first, first], [second, second]] {
            let other = [begin, &order.concat()].concat();
            assert!(open(&other, &one, 100).is_err());
        }
        for nothing in [&b""[..], MAGIC, b"oz-frames/v1\n\xff\xff\xff\xff"] {
            assert!(open(nothing, &one, 100).is_err());
            assert_eq!(whole(nothing), b"");
        }
    }
}
