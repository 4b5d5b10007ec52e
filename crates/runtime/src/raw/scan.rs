//! Where in a JSON text one is, byte after byte and without recursion: how deep, in a string or not,
//! and under which of the few keys that matter. However the text is cut into pieces, and however
//! deeply it nests, it takes a few dozen bytes of memory.

/// How many levels an object may nest: below the 128 at which the decoder gives up, so that what is
/// taken in can also be written within something else.
pub(crate) const MAX_DEPTH: usize = 120;
/// How many values an object may have, the names of its fields among them. Decoded, each takes up to
/// some 350 bytes, however short its text is: `{"a":{"a":{"a":` is a tree of its own at each level.
pub(crate) const MAX_VALUES: usize = 32_768;

/// The levels at which keys are told apart: below, nothing of a list or a watch is looked for.
const LEVELS: usize = 4;
/// Longer keys are none of those that matter.
const LONGEST_KEY: usize = b"managedFields".len();

/// What a level is under.
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

/// What a byte does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// An object or an array begins; the depth counts it already.
    Opens,
    /// One ends; the depth does not count it any more.
    Closes,
    /// It stands between a key and its value.
    Colon,
    /// It stands between two items, or a value and the next key.
    Comma,
    /// It is part of something else.
    Within,
}

/// How deep a text nests and how many values it has: what it takes to decode it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) depth: usize,
    pub(crate) values: usize,
}

impl Size {
    /// Of a whole text.
    pub(crate) fn of(text: &[u8]) -> Self {
        let (mut scan, mut size) = (Scan::default(), Self::default());
        scan.pass(text, 0, |mark, depth| size.grow(mark, depth));
        size
    }

    /// By a byte that does this, at this depth.
    pub(crate) fn grow(&mut self, mark: Mark, depth: usize) {
        self.depth = self.depth.max(depth);
        // What is within an array or an object comes after its opening or after a comma, and after a
        // colon if it has a name.
        self.values += usize::from(matches!(mark, Mark::Opens | Mark::Colon | Mark::Comma));
    }

    /// Why such a text is not decoded, if it is not.
    pub(crate) fn refusal(self) -> Option<String> {
        let Self { depth, values } = self;
        if depth > MAX_DEPTH {
            return Some(format!(
                "it nests {depth} levels, and no more than {MAX_DEPTH} are taken in"
            ));
        }
        (values > MAX_VALUES)
            .then(|| format!("it has {values} values, and no more than {MAX_VALUES} are taken in"))
    }
}

/// A place in a text.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    depth: usize,
    levels: [Level; LEVELS],
    in_string: bool,
    escaped: bool,
    /// The key that is being read, as far as it may matter.
    reading: Option<(usize, [u8; LONGEST_KEY])>,
}

impl Scan {
    /// Goes on by one byte.
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

    /// Goes on with the string in which it is, and as long as at least so many objects and arrays are open.
    /// Says of each byte that is not within a string what it does and how many are open after it. Returns how
    /// many bytes it passed: nothing that is looked for is among them.
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

    /// How many bytes go on with the string in which it is, and do nothing else: no need to step.
    pub(crate) fn run(&self, rest: &[u8]) -> usize {
        if !self.in_string || self.escaped || self.reading.is_some() {
            return 0;
        }
        let mut run = 0;
        loop {
            let left = rest.get(run..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', left) {
                None => return rest.len(),
                // What it escapes is passed over with it, if it is there.
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
                // None of those that matter.
                None => self.reading = None,
            }
        }
    }

    /// How many objects and arrays are open.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// What the levels are under, the outermost first, down to the innermost that is open; no more
    /// than those that are told apart.
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
