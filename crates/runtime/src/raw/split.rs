//! Splits a list or a watch into its objects, as it comes in: no more than one object is held, and
//! one that is too large is not held at all. What is wrong with one is nothing to the others.

use std::ops::Range;

use super::scan::{Key, Mark, Scan, Size};

/// The largest object that is taken in, in bytes of its text. The API server stores 1.5 MB and sends
/// some more of it, since `<` is `\u003c` in JSON; only who wants it so makes six times as much of it.
pub const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// How many bytes there may be around the objects.
const MAX_ENVELOPE_BYTES: usize = 256 * 1024;

/// What comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A page of a list.
    List,
    /// Watch events, one after the other.
    Watch,
}

/// An object as it came.
#[derive(Debug)]
pub struct RawObject {
    /// Its text; only that of its metadata if it was too large.
    text: Vec<u8>,
    /// Where in the text its metadata is.
    metadata: Option<Range<usize>>,
    /// How many bytes it has.
    pub(crate) bytes: usize,
    /// How deep it nests, and how many values it has.
    pub(crate) size: Size,
    /// How many bytes are held of it at most.
    largest: usize,
}

impl RawObject {
    /// An object whose text is complete.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        Self::with_largest(text, MAX_OBJECT_BYTES)
    }

    /// As [`RawObject::new`], with another bound than [`MAX_OBJECT_BYTES`].
    pub(crate) fn with_largest(text: &[u8], largest: usize) -> Self {
        let mut splitter = Splitter::with_largest(Form::List, largest);
        let mut pieces = Vec::new();
        for part in [br#"{"items":["#, text, b"]}"] {
            splitter.push(part, &mut pieces);
        }
        let object = pieces.into_iter().find_map(|piece| match piece {
            Piece::Object(object) => Some(object),
            Piece::Around(_) => None,
        });
        object.unwrap_or_else(|| Self::empty(largest))
    }

    fn empty(largest: usize) -> Self {
        Self {
            text: Vec::new(),
            metadata: None,
            bytes: 0,
            size: Size::default(),
            largest,
        }
    }

    /// Its text, if it is not too large.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        (self.bytes <= self.largest).then_some(&self.text)
    }

    /// The text of its metadata, if it has any.
    pub(crate) fn metadata(&self) -> Option<&[u8]> {
        self.text.get(self.metadata.clone()?)
    }

    fn extend(&mut self, part: &[u8]) {
        let before = self.bytes;
        self.bytes += part.len();
        if self.bytes <= self.largest {
            if self.text.capacity() - self.text.len() < part.len() {
                // A quarter more each time: doubled, the largest would take twice its size.
                self.text
                    .reserve_exact(self.text.len() / 4 + part.len() + 4096);
            }
            self.text.extend_from_slice(part);
        } else if before <= self.largest {
            let known = self.metadata().map(<[u8]>::to_vec).unwrap_or_default();
            self.metadata = self.metadata.take().map(|_| 0..known.len());
            self.text = known;
        }
    }
}

/// A part of what came in.
#[derive(Debug)]
pub enum Piece {
    /// One object.
    Object(RawObject),
    /// What stands around the objects, with `[]` or `null` where they were: the end of the list, or of
    /// one event.
    Around(Vec<u8>),
}

/// Splits one list, or one watch.
#[derive(Debug)]
pub struct Splitter {
    form: Form,
    scan: Scan,
    object: Option<RawObject>,
    /// Where the metadata of the object began.
    metadata_from: Option<usize>,
    around: Vec<u8>,
    too_much: bool,
    largest: usize,
}

impl Splitter {
    /// At the beginning of a text.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Self::with_largest(form, MAX_OBJECT_BYTES)
    }

    /// As [`Splitter::new`], with another bound than [`MAX_OBJECT_BYTES`].
    pub(crate) fn with_largest(form: Form, largest: usize) -> Self {
        Self {
            largest,
            form,
            scan: Scan::default(),
            object: None,
            metadata_from: None,
            around: Vec::new(),
            too_much: false,
        }
    }

    /// Whether what stands around the objects is more than any API server sends.
    #[must_use]
    pub fn too_much(&self) -> bool {
        self.too_much
    }

    /// Takes in the next part of the text, and adds what is complete.
    pub fn push(&mut self, part: &[u8], pieces: &mut Vec<Piece>) {
        let mut rest = part;
        while let Some((&byte, after)) = rest.split_first() {
            let (run, later) = rest.split_at(self.pass(rest));
            if run.is_empty() {
                self.step(byte, pieces);
                rest = after;
            } else {
                match &mut self.object {
                    Some(object) => object.extend(run),
                    None => self.keep_around(run),
                }
                rest = later;
            }
        }
    }

    /// Goes on in a string, and in what is deeper than the metadata of an object. Returns how many bytes that were.
    fn pass(&mut self, rest: &[u8]) -> usize {
        let outside = self.outside();
        let Some(object) = &mut self.object else {
            return self.scan.run(rest);
        };
        let size = &mut object.size;
        self.scan.pass(rest, outside + 3, |mark, depth| {
            size.grow(mark, depth - outside.min(depth));
        })
    }

    fn keep_around(&mut self, part: &[u8]) {
        if self.around.len() + part.len() <= MAX_ENVELOPE_BYTES {
            self.around.extend_from_slice(part);
        } else {
            self.too_much = true;
        }
    }

    /// How many levels are around an object.
    fn outside(&self) -> usize {
        match self.form {
            Form::List => 2,
            Form::Watch => 1,
        }
    }

    fn step(&mut self, byte: u8, pieces: &mut Vec<Piece>) {
        let mark = self.scan.step(byte);
        let (outside, depth) = (self.outside(), self.scan.depth());
        if let Some(object) = &mut self.object {
            object.extend(&[byte]);
            object.size.grow(mark, depth - outside.min(depth));
            let in_metadata = self.scan.under(outside) == Key::Metadata;
            match mark {
                Mark::Opens if depth == outside + 2 && in_metadata => {
                    self.metadata_from = Some(object.bytes - 1);
                }
                Mark::Closes if depth == outside + 1 && in_metadata => {
                    let end = object.bytes;
                    if let Some(begin) = self.metadata_from.take()
                        && end <= self.largest
                    {
                        object.metadata = Some(begin..end);
                    }
                }
                Mark::Closes if depth == outside => {
                    pieces.extend(self.object.take().map(Piece::Object));
                    if self.form == Form::Watch {
                        self.around.extend_from_slice(b"null");
                    }
                }
                _ => {}
            }
            return;
        }
        let listed = self.form == Form::List && self.scan.under(0) == Key::Items;
        if mark == Mark::Opens && byte == b'{' && depth == outside + 1 {
            let wanted = match self.form {
                Form::List => listed,
                Form::Watch => self.scan.under(0) == Key::Object,
            };
            if wanted {
                let mut object = RawObject::empty(self.largest);
                object.size.grow(mark, 1);
                object.extend(&[byte]);
                self.object = Some(object);
                return;
            }
        }
        let between = listed && mark == Mark::Comma && depth == outside;
        let blank = byte.is_ascii_whitespace() && depth == 0;
        if !between && !blank {
            self.keep_around(&[byte]);
        }
        if mark == Mark::Closes && depth == 0 {
            pieces.push(Piece::Around(std::mem::take(&mut self.around)));
        }
    }
}
