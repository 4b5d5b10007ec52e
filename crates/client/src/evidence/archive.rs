//! The archive of a bundle: a tar in which names and contents determine every byte. The writer writes files in pieces;
//! the reader accepts only the names that a bundle has, no links, no duplicate names, and no data between or after the
//! files: it detects a byte that differs anywhere.
//! See <https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html>.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use oz_api::encode::hex;
use oz_compliance::evidence::Sums;
use sha2::{Digest as _, Sha256};

use super::problem::Problem;

/// The directory of the files in the archive.
const DIRECTORY: &str = "oz-evidence/";
const BLOCK: usize = 512;
const END: usize = 2 * BLOCK;
/// The size limit of a file that is written or read.
const LONGEST_FILE: u64 = 4 << 30;
/// The size limit of a line. No audit record reaches it: the cluster accepts no object of more than 1.5 MiB.
const LONGEST_LINE: u64 = 4 << 20;

/// Returns the header of a file. All fields except name and size are the same for each.
fn header(name: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_path(format!("{DIRECTORY}{name}"))?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// The writer of an archive.
pub(super) struct Writer<F: Write + Seek> {
    file: BufWriter<F>,
    sums: Sums,
}

/// A file during writing.
pub(super) struct Open {
    name: &'static str,
    begins: u64,
    size: u64,
    digest: Sha256,
}

impl<F: Write + Seek> Writer<F> {
    pub(super) fn new(file: F) -> Self {
        Self {
            file: BufWriter::with_capacity(1 << 16, file),
            sums: Sums::default(),
        }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &'static str, content: &[u8]) -> io::Result<()> {
        let mut open = self.begin(name)?;
        self.write(&mut open, content)?;
        self.end(open)
    }

    /// Begins a file of unknown length.
    pub(super) fn begin(&mut self, name: &'static str) -> io::Result<Open> {
        let begins = self.file.stream_position()?;
        self.file.write_all(header(name, 0)?.as_bytes())?;
        Ok(Open {
            name,
            begins,
            size: 0,
            digest: Sha256::new(),
        })
    }

    pub(super) fn write(&mut self, open: &mut Open, bytes: &[u8]) -> io::Result<()> {
        open.size = open.size.saturating_add(bytes.len() as u64);
        if open.size > LONGEST_FILE {
            let message = format!("{} is longer than {LONGEST_FILE} bytes", open.name);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        open.digest.update(bytes);
        self.file.write_all(bytes)
    }

    /// Ends a file: writes its length into its header.
    pub(super) fn end(&mut self, open: Open) -> io::Result<()> {
        self.file.write_all(&[0; BLOCK][..padding(open.size)])?;
        let after = self.file.stream_position()?;
        self.file.seek(SeekFrom::Start(open.begins))?;
        self.file
            .write_all(header(open.name, open.size)?.as_bytes())?;
        self.file.seek(SeekFrom::Start(after))?;
        self.sums.add(open.name, hex(&open.digest.finalize()));
        Ok(())
    }

    /// Returns the digests of the files so far.
    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<F> {
        self.file.write_all(&[0; END])?;
        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }
}

/// The reader of an archive.
pub(super) struct Reader<R: Read> {
    from: R,
    seen: BTreeSet<String>,
    name: String,
    size: u64,
    left: u64,
}

impl<R: Read> Read for Reader<R> {
    /// Reads from the current file, and no byte beyond it.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.from.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            seen: BTreeSet::new(),
            name: String::new(),
            size: 0,
            left: 0,
        }
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), Problem> {
        self.from
            .read_exact(buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Problem::CutOff,
                _ => Problem::Archive(error),
            })
    }

    /// Begins the next file, if there is one: returns its name and length.
    pub(super) fn next(&mut self) -> Result<Option<(String, u64)>, Problem> {
        let mut block = [0; BLOCK];
        self.exact(&mut block)?;
        if block == [0; BLOCK] {
            self.exact(&mut block)?;
            if block != [0; BLOCK] {
                return Err(Problem::AfterEnd);
            }
            let mut more = [0];
            return match self.from.read(&mut more) {
                Ok(0) => Ok(None),
                Ok(_) => Err(Problem::AfterEnd),
                Err(error) => Err(Problem::Archive(error)),
            };
        }
        let found = tar::Header::from_byte_slice(&block);
        let full = String::from_utf8_lossy(&found.path_bytes()).into_owned();
        let path: String = full
            .chars()
            .take(100)
            .flat_map(char::escape_debug)
            .collect();
        let kind = found.entry_type();
        if !kind.is_file() {
            return Err(Problem::NotPlain { path, kind });
        }
        let is_plain =
            |name: &&str| !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.');
        let Some(name) = full.strip_prefix(DIRECTORY).filter(is_plain) else {
            return Err(Problem::Misnamed { path });
        };
        if !self.seen.insert(name.to_owned()) {
            return Err(Problem::Twice { path });
        }
        let size = match found.entry_size() {
            Ok(size) if size > LONGEST_FILE => return Err(Problem::Oversized { path, size }),
            Ok(size) => size,
            Err(error) => return Err(Problem::Header { path, error }),
        };
        match header(name, size) {
            Ok(expected) if expected.as_bytes() == &block => {}
            Ok(_) => return Err(Problem::OtherHeader { path }),
            Err(error) => return Err(Problem::Header { path, error }),
        }
        name.clone_into(&mut self.name);
        (self.size, self.left) = (size, size);
        Ok(Some((name.to_owned(), size)))
    }

    /// Returns the content of the current file, and its digest.
    pub(super) fn whole(&mut self, longest: u64) -> Result<(Vec<u8>, String), Problem> {
        if self.size > longest {
            let (name, size) = (self.name.clone(), self.size);
            return Err(Problem::TooLong { name, size });
        }
        let mut content = Vec::new();
        self.read_to_end(&mut content)
            .map_err(|error| unreadable(&self.name, error))?;
        self.padding()?;
        let digest = hex(&Sha256::digest(&content));
        Ok((content, digest))
    }

    /// Passes each line of the current file to `each`, without its line end, and returns the digest of all.
    pub(super) fn lines(
        &mut self,
        mut each: impl FnMut(usize, &[u8]) -> Result<(), Problem>,
    ) -> Result<String, Problem> {
        let (mut digest, mut content, mut line) = (Sha256::new(), Vec::new(), 0);
        let name = self.name.clone();
        let mut lines = BufReader::with_capacity(1 << 16, &mut *self);
        loop {
            content.clear();
            let read = lines
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut content);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(unreadable(&name, error)),
            }
            digest.update(&content);
            line += 1;
            match content.strip_suffix(b"\n") {
                Some(content) => each(line, content)?,
                None => return Err(Problem::Endless { name, line }),
            }
        }
        self.padding()?;
        Ok(hex(&digest.finalize()))
    }

    fn padding(&mut self) -> Result<(), Problem> {
        let mut block = [0; BLOCK];
        let block = &mut block[..padding(self.size)];
        self.exact(block)?;
        match block.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(Problem::Between {
                name: self.name.clone(),
            }),
        }
    }
}

fn unreadable(name: &str, error: io::Error) -> Problem {
    let name = name.to_owned();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::CutOffIn { name },
        _ => Problem::Unreadable { name, error },
    }
}
