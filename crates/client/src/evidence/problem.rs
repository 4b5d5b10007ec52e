//! The reasons why a bundle is not whole.

use std::io;

use jiff::Timestamp;
use oz_compliance::evidence::{self as files, Difference, FORMAT, SealError};
use oz_trail::KeyError;

/// A reason why a bundle is not whole.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The archive ends between two files.
    #[error("the archive is truncated")]
    CutOff,
    /// The archive ends in a file.
    #[error("the archive is truncated in {name}")]
    CutOffIn {
        /// The file.
        name: String,
    },
    /// The archive cannot be read.
    #[error("failed to read the archive: {0}")]
    Archive(io::Error),
    /// The archive has data after its end.
    #[error("there is data after the end of the archive")]
    AfterEnd,
    /// The archive has a link, a directory or a device.
    #[error("the archive has {path} in it, which is not a plain file ({kind:?})")]
    NotPlain {
        /// The path in the archive.
        path: String,
        /// The type of the entry.
        kind: tar::EntryType,
    },
    /// No bundle has a file of this name.
    #[error("the archive has {path} in it, which is not a file of a bundle")]
    Misnamed {
        /// The path in the archive.
        path: String,
    },
    /// The archive has two files of this name.
    #[error("the archive has {path} in it twice")]
    Twice {
        /// The path in the archive.
        path: String,
    },
    /// The header of a file cannot be read.
    #[error("{path}: {error}")]
    Header {
        /// The path in the archive.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The header of a file differs from the one that the writer writes.
    #[error("the header of {path} is not as written")]
    OtherHeader {
        /// The path in the archive.
        path: String,
    },
    /// A file exceeds the limit for every file.
    #[error("{path} is longer than the maximum of a file: {size} bytes")]
    Oversized {
        /// The path in the archive.
        path: String,
        /// The length in bytes.
        size: u64,
    },
    /// A file exceeds the limit for this file.
    #[error("{name} is too long: {size} bytes")]
    TooLong {
        /// The file.
        name: String,
        /// The length in bytes.
        size: u64,
    },
    /// A line exceeds the limit, or is the last and has no line end.
    #[error("line {line} of {name} is too long, or has no end")]
    Endless {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// The space after a file is not empty.
    #[error("there is data between {name} and the next file")]
    Between {
        /// The file.
        name: String,
    },
    /// A file cannot be read.
    #[error("failed to read {name}: {error}")]
    Unreadable {
        /// The file.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// A file is not the JSON that it should be.
    #[error("failed to read {name}: {error}")]
    Malformed {
        /// The file.
        name: String,
        /// The reason.
        error: serde_json::Error,
    },
    /// The bundle is of another form.
    #[error(
        "the bundle has the unsupported form {form:?}; this version reads {}",
        FORMAT
    )]
    OtherForm {
        /// The form of the bundle.
        form: String,
    },
    /// The keys in the bundle are not valid.
    #[error("{}: {}", files::KEYS, .0)]
    Keys(KeyError),
    /// A pinned key is not valid.
    #[error("a key that was pinned: {0}")]
    Pinned(KeyError),
    /// The next file is not the expected one.
    #[error("the bundle has {found} instead of {name}")]
    Misplaced {
        /// The file that follows.
        found: String,
        /// The file that should follow.
        name: String,
    },
    /// A file is missing.
    #[error("the bundle has no {name}")]
    Missing {
        /// The file.
        name: String,
    },
    /// A file has no sum.
    #[error("the bundle has {name} in it, which is not among its sums")]
    Unsummed {
        /// The file.
        name: String,
    },
    /// A file follows the seal.
    #[error("the bundle has more data after {}", files::SEAL)]
    AfterSeal,
    /// The seal is not in the form in which it is written.
    #[error("{} does not have the form in which oz writes it", files::SEAL)]
    Reformatted,
    /// The sums are not those of the files.
    #[error("{}: {difference}", files::SUMS)]
    Sums {
        /// The first difference.
        difference: Difference,
    },
    /// The seal signs other sums.
    #[error(
        "{}: the audit key signed the sums {signed}, and the bundle has {sums}",
        files::SEAL
    )]
    OtherSums {
        /// The sums that the seal signs.
        signed: String,
        /// The sums of the bundle.
        sums: String,
    },
    /// The seal is not one of a trusted audit key.
    #[error("{}: the seal proves nothing: {}", files::SEAL, .0)]
    Seal(SealError),
    /// The digest of the users who could get access is not that of their list.
    #[error("{} does not have the digest that it states", files::ENTITLEMENTS)]
    Digest,
    /// A file differs from the one that follows from the others.
    #[error("line {line} of {name} does not follow from the rest of the bundle")]
    NotFollowing {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// A line of audit records is not JSON.
    #[error("line {line} of {name} is not JSON")]
    NoJson {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// An audit record is in the file of another period.
    #[error("line {line} of {name} is of {time}, which is outside of the bundle's time")]
    OtherPeriod {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The time of the audit record.
        time: Timestamp,
    },
    /// A file has more audit records than are read.
    #[error("{name} has more than {most} records")]
    TooManyRecords {
        /// The file.
        name: String,
        /// The limit.
        most: usize,
    },
    /// A file has more unexpected lines than are reported.
    #[error("{name} has more than {most} unexpected lines")]
    TooManyBadLines {
        /// The file.
        name: String,
        /// The limit.
        most: usize,
    },
}
