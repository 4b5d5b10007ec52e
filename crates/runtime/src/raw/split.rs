//! Splits a list or a watch into its objects while it arrives: at most one object is in memory, and
//! an object that is too large is never in memory as a whole. An error in one object does not
//! affect the others.

use std::ops::Range;

use super::scan::{Key, Mark, Scan, Size};

/// The largest object that is decoded, in bytes of its text. The API server stores 1.5 MB and sends
/// somewhat more of it, since `<` is `\u003c` in JSON; only an object that is made for this purpose
/// grows to six times its size.
pub const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of bytes around the objects.
const MAX_ENVELOPE_BYTES: usize = 256 * 1024;

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A page of a list.
    List,
    /// Watch events in sequence.
    Watch,
}

/// An object as received.
#[derive(Debug)]
pub struct RawObject {
    /// The text of the object; only that of its metadata if the object is too large.
    text: Vec<u8>,
    /// The position of the metadata in the text.
    metadata: Option<Range<usize>>,
    /// The number of bytes of the object.
    pub(crate) bytes: usize,
    /// The depth of the object, and its number of values.
    pub(crate) size: Size,
    /// The maximum number of bytes of the object to hold.
    largest: usize,
}

impl RawObject {
    /// Creates an object from its complete text.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        Self::with_largest(text, MAX_OBJECT_BYTES)
    }

    /// Does the same as [`RawObject::new`], with a bound other than [`MAX_OBJECT_BYTES`].
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

    /// Returns the text of the object, if it is not too large.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        (self.bytes <= self.largest).then_some(&self.text)
    }

    /// Returns the text of the object's metadata, if it has any.
    pub(crate) fn metadata(&self) -> Option<&[u8]> {
        self.text.get(self.metadata.clone()?)
    }

    fn extend(&mut self, part: &[u8]) {
        let before = self.bytes;
        self.bytes += part.len();
        if self.bytes <= self.largest {
            if self.text.capacity() - self.text.len() < part.len() {
                // The buffer grows by a quarter each time: if it doubled, the largest object would
                // take twice its size.
                self.text
                    .reserve_exact(self.text.len() / 4 + part.len() + 4096);
            }
            self.text.extend_from_slice(part);
        } else if before <= self.largest {
            let known = self.metadata().map_or_else(Vec::new, <[u8]>::to_vec);
            self.metadata = self.metadata.take().map(|_| 0..known.len());
            self.text = known;
        }
    }
}

/// A part of a text.
#[derive(Debug)]
pub enum Piece {
    /// An object.
    Object(RawObject),
    /// The text around the objects, with `[]` or `null` at their positions: the end of the list, or of
    /// one event.
    Around(Vec<u8>),
}

/// The splitter of one list, or one watch.
#[derive(Debug)]
pub struct Splitter {
    form: Form,
    scan: Scan,
    object: Option<RawObject>,
    /// The start of the object's metadata.
    metadata_from: Option<usize>,
    around: Vec<u8>,
    too_much: bool,
    largest: usize,
}

impl Splitter {
    /// Creates a splitter for the start of a text.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Self::with_largest(form, MAX_OBJECT_BYTES)
    }

    /// Does the same as [`Splitter::new`], with a bound other than [`MAX_OBJECT_BYTES`].
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

    /// Checks whether the text around the objects is longer than any API server sends.
    #[must_use]
    pub fn too_much(&self) -> bool {
        self.too_much
    }

    /// Reads the next part of the text, and adds the complete pieces.
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

    /// Advances in a string, and in the parts of an object that are deeper than its metadata. Returns the number of
    /// bytes.
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

    /// Returns the number of levels around an object.
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
