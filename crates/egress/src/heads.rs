//! The heads of requests as their bytes arrive. hyper drops a `Content-Length` beside another length, so that the
//! decision about the request no longer sees that two servers could find its end at two places (RFC 9112, section 6.3).
//! This reader finds such a head in the bytes. It decides nothing else: hyper parses the request.
//! See <https://www.rfc-editor.org/rfc/rfc9112#section-6.3>.

/// The number of bytes of a line that are kept. The lines that matter are shorter.
const MAX_LINE: usize = 256;

/// The requests of one connection, byte by byte.
#[derive(Debug, Default)]
pub struct Heads {
    state: State,
    /// The beginning of the current line.
    line: Vec<u8>,
    head: Head,
    /// The number of heads so far.
    count: u64,
}

/// The part of a request to which the next byte belongs.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    /// A body with this number of further bytes.
    Body(u64),
    ChunkSize,
    /// A chunk with this number of further bytes.
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    Trailers,
    /// What follows a head that no server accepts.
    Unknown,
}

/// The lengths in a head.
#[derive(Debug, Default)]
struct Head {
    /// Whether the line of the request was read.
    begun: bool,
    lengths: usize,
    encodings: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Heads {
    /// Reads further bytes of the connection. Returns the number of the request with more than one length, from one, once
    /// its head is complete. The connection must not be used after that request.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<u64> {
        while !bytes.is_empty() {
            match self.state {
                State::Unknown => return None,
                State::Body(left) => {
                    let left = skip(&mut bytes, left);
                    self.state = match left {
                        0 => State::Head,
                        left => State::Body(left),
                    };
                }
                State::Chunk(left) => {
                    let left = skip(&mut bytes, left);
                    self.state = match left {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                }
                State::Head | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    if self.read_line(&mut bytes) && self.end_line() {
                        return Some(self.count);
                    }
                }
            }
        }
        None
    }

    /// Reads up to the end of the line. Returns whether it is there.
    fn read_line(&mut self, bytes: &mut &[u8]) -> bool {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        *bytes = rest;
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.line.extend(part.iter().take(room));
        end.is_some()
    }

    /// Ends the line. Returns whether it ends a head with more than one length.
    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        match self.state {
            State::Head if !text.is_empty() => self.head.add(text),
            // Empty lines may precede a request.
            State::Head if !self.head.begun => {}
            State::Head => {
                self.count += 1;
                let head = std::mem::take(&mut self.head);
                self.state = head.body();
                return head.lengths + head.encodings > 1;
            }
            State::ChunkSize => {
                self.state = match chunk_size(text) {
                    Some(0) => State::Trailers,
                    Some(size) => State::Chunk(size),
                    None => State::Unknown,
                };
            }
            State::ChunkEnd => self.state = State::ChunkSize,
            State::Trailers if text.is_empty() => self.state = State::Head,
            _ => {}
        }
        // The line is empty again, and keeps its memory.
        self.line = line;
        self.line.clear();
        false
    }
}

impl Head {
    fn add(&mut self, line: &[u8]) {
        if !self.begun {
            self.begun = true;
            return;
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name = name.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            self.length = str::from_utf8(value).ok().and_then(|it| it.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.encodings += 1;
            let last = value.rsplit(|&byte| byte == b',').next();
            let last = last.unwrap_or_default().trim_ascii();
            self.chunked = last.eq_ignore_ascii_case(b"chunked");
        }
    }

    /// Returns what follows the head.
    fn body(&self) -> State {
        match (self.lengths, self.encodings, self.length) {
            (0, 0, _) | (1, 0, Some(0)) => State::Head,
            (1, 0, Some(length)) => State::Body(length),
            (0, 1, _) if self.chunked => State::ChunkSize,
            _ => State::Unknown,
        }
    }
}

/// Skips at most this number of bytes. Returns the number that remains.
fn skip(bytes: &mut &[u8], left: u64) -> u64 {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    *bytes = bytes.get(here..).unwrap_or_default();
    left.saturating_sub(here as u64)
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|&byte| byte == b';').next()?.trim_ascii();
    u64::from_str_radix(str::from_utf8(size).ok()?, 16).ok()
}
