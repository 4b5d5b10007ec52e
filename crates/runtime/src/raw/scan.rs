//! A position in a JSON text, advanced byte after byte and without recursion: the depth, whether it
//! is in a string, and under which of the few relevant keys it is. However the text is cut into
//! pieces, and however deeply it nests, a scan takes a few dozen bytes of memory.

/// The maximum depth of an object: below the 128 at which the decoder fails, so that a decoded
/// object can also be written within another value.
pub(crate) const MAX_DEPTH: usize = 120;
/// The maximum number of values of an object, the names of its fields included. A decoded value
/// takes up to some 350 bytes, however short its text is: `{"a":{"a":{"a":` is a separate tree at
/// each level.
pub(crate) const MAX_VALUES: usize = 32_768;

/// The number of levels at which keys are distinguished: no relevant key of a list or a watch is
/// below.
const LEVELS: usize = 4;
/// The length of the longest relevant key.
const LONGEST_KEY: usize = b"managedFields".len();

/// The key of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Key {
    /// `items`.
    Items,
    /// `object`.
    Object,
    /// `metadata`.
    Metadata,
    /// `managedFields`.
    ManagedFields,
    /// Any other key, or an item of an array.
    #[default]
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    array: bool,
    expects_key: bool,
    key: Key,
}

/// The effect of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The byte opens an object or an array; the depth already includes it.
    Opens,
    /// The byte closes an object or an array; the depth no longer includes it.
    Closes,
    /// The byte separates a key from its value.
    Colon,
    /// The byte separates two items, or a value from the next key.
    Comma,
    /// The byte is part of another token.
    Within,
}

/// The depth of a text and its number of values, which determine the cost of decoding it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) depth: usize,
    pub(crate) values: usize,
}

/// A bound of a text to decode that a text exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unbounded {
    /// The text nests too deeply.
    #[error("it nests {depth} levels, and the maximum is {MAX_DEPTH}")]
    Depth {
        /// The depth.
        depth: usize,
    },
    /// The text has too many values.
    #[error("it has {values} values, and the maximum is {MAX_VALUES}")]
    Values {
        /// The number of values.
        values: usize,
    },
}

impl Size {
    /// Returns the size of a whole text.
    pub(crate) fn measure(text: &[u8]) -> Self {
        let (mut scan, mut size) = (Scan::default(), Self::default());
        scan.pass(text, 0, |mark, depth| size.grow(mark, depth));
        size
    }

    /// Adds a byte with this effect, at this depth.
    pub(crate) fn grow(&mut self, mark: Mark, depth: usize) {
        self.depth = self.depth.max(depth);
        // A value within an array or an object follows its opening or a comma, and a colon if it has
        // a name.
        self.values += usize::from(matches!(mark, Mark::Opens | Mark::Colon | Mark::Comma));
    }

    /// Checks that such a text may be decoded.
    ///
    /// # Errors
    /// The bound that it exceeds.
    pub(crate) fn bounded(self) -> Result<(), Unbounded> {
        match self {
            Self { depth, .. } if depth > MAX_DEPTH => Err(Unbounded::Depth { depth }),
            Self { values, .. } if values > MAX_VALUES => Err(Unbounded::Values { values }),
            _ => Ok(()),
        }
    }
}

/// A position in a text.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    depth: usize,
    levels: [Level; LEVELS],
    in_string: bool,
    escaped: bool,
    /// The key that is being read, as far as it may be relevant.
    reading: Option<(usize, [u8; LONGEST_KEY])>,
}

impl Scan {
    /// Advances by one byte.
    pub(crate) fn step(&mut self, byte: u8) -> Mark {
        if self.in_string {
            self.in_string(byte);
            return Mark::Within;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.reading = self
                    .level()
                    .is_some_and(|level| level.expects_key)
                    .then_some((0, [0; LONGEST_KEY]));
                Mark::Within
            }
            b'{' | b'[' => {
                self.depth += 1;
                let array = byte == b'[';
                if let Some(level) = self.level() {
                    *level = Level {
                        array,
                        expects_key: !array,
                        key: Key::Other,
                    };
                }
                Mark::Opens
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                Mark::Closes
            }
            b':' => {
                if let Some(level) = self.level() {
                    level.expects_key = false;
                }
                Mark::Colon
            }
            b',' => {
                if let Some(level) = self.level() {
                    level.expects_key = !level.array;
                    level.key = Key::Other;
                }
                Mark::Comma
            }
            _ => Mark::Within,
        }
    }

    /// Advances to the end of the current string, and as long as at least `least` objects and arrays are
    /// open. Calls `each` for each byte outside strings, with its effect and the number of open objects and
    /// arrays after it. Returns the number of bytes; no relevant key is among them.
    pub(crate) fn pass(
        &mut self,
        rest: &[u8],
        least: usize,
        mut each: impl FnMut(Mark, usize),
    ) -> usize {
        let mut passed = self.run(rest);
        while self.depth >= least
            && let Some((&byte, left)) = rest.get(passed..).and_then(<[u8]>::split_first)
        {
            let mark = self.step(byte);
            each(mark, self.depth);
            passed += 1;
            passed += self.run(left);
        }
        passed
    }

    /// Returns the number of bytes that continue the current string and have no other effect: they
    /// need no steps.
    pub(crate) fn run(&self, rest: &[u8]) -> usize {
        if !self.in_string || self.escaped || self.reading.is_some() {
            return 0;
        }
        let mut run = 0;
        loop {
            let Some(left) = rest.get(run..) else {
                return rest.len();
            };
            match memchr::memchr2(b'"', b'\\', left) {
                None => return rest.len(),
                // The escaped character is skipped together with the backslash, if it is in this
                // piece.
                Some(at) if left.get(at) == Some(&b'\\') && at + 1 < left.len() => run += at + 2,
                Some(at) => return run + at,
            }
        }
    }

    fn in_string(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            if let Some((length, text)) = self.reading.take() {
                let key = match text.get(..length) {
                    Some(b"items") => Key::Items,
                    Some(b"object") => Key::Object,
                    Some(b"metadata") => Key::Metadata,
                    Some(b"managedFields") => Key::ManagedFields,
                    _ => Key::Other,
                };
                if let Some(level) = self.level() {
                    level.key = key;
                }
            }
            return;
        }
        if let Some((length, text)) = &mut self.reading {
            match text.get_mut(*length) {
                Some(place) => {
                    *place = byte;
                    *length += 1;
                }
                // This key is not relevant.
                None => self.reading = None,
            }
        }
    }

    /// Returns the number of open objects and arrays.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the key of a level, the outermost first, down to the innermost that is open; only
    /// for the levels at which keys are distinguished.
    pub(crate) fn under(&self, level: usize) -> Key {
        self.levels
            .get(level)
            .map(|level| level.key)
            .unwrap_or_default()
    }

    fn level(&mut self) -> Option<&mut Level> {
        self.levels.get_mut(self.depth.checked_sub(1)?)
    }
}
