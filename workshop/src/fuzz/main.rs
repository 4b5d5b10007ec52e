//! Tests the readers of objects with objects that other users may store: nested, wide, numerous, with
//! unusual letters and wrong types, for every watched kind, through splitting, decoding, deciding and
//! planning. No object may cause a panic, the honest object in the same list is always decoded, and no
//! object takes much time or memory.
//!
//! `make fuzz` runs it for a minute: `cargo run --bin oz-fuzz-stored -- [SECONDS [SEED]]`.
//! With `--release` the time limit is the documented one.

mod kinds;
mod memory;
mod objects;
mod random;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use oz_runtime::raw::{Form, Piece, Splitter, Strip};

use crate::kinds::{Kind, kinds};
use crate::objects::{honest, written};
use crate::random::Xorshift;

/// The time limit for one object, and the factor for a build that is not optimised.
const LIMIT: Duration = Duration::from_millis(50);
const UNOPTIMISED: u32 = 40;
/// The number of repeated reads for an object that takes too long.
const AGAIN: u32 = 4;
/// The memory limit for one object, in bytes.
const MEMORY: usize = 16 * 1024 * 1024;

/// Objects below this number of bytes may arrive in pieces of any size.
const SMALL: usize = 64 * 1024;

/// Returns the time for which this thread has worked: the work of other threads does not count.
fn worked() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().context("no time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// The time and memory that an object took.
#[derive(Clone, Copy, Default)]
struct Took {
    time: Duration,
    memory: usize,
}

/// The manner in which an object is read.
#[derive(Clone, Copy)]
struct Reading {
    /// The size of a piece in bytes.
    piece: usize,
    as_child: bool,
}

/// Reads a page with the object and an honest one. Returns the time and memory that it took.
fn read(kind: &Kind, text: &str, reading: Reading) -> Result<Took> {
    let page = format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"7"}},"items":[{text},{}]}}"#,
        honest(kind.name, &kind.spec)
    );
    let held = memory::begin();
    let began = worked()?;
    let (mut strip, mut splitter) = (Strip::default(), Splitter::new(Form::List));
    let (mut pieces, mut objects, mut known) = (Vec::new(), 0, false);
    for part in page.as_bytes().chunks(reading.piece) {
        splitter.push(&strip.push(part), &mut pieces);
        for piece in pieces.drain(..) {
            if let Piece::Object(object) = piece {
                objects += 1;
                known = (kind.judge)(&object, reading.as_child);
            }
        }
    }
    let time = worked()?.saturating_sub(began);
    let memory = memory::most().saturating_sub(held);
    ensure!(
        objects == 2 && known,
        "the valid object after it was not read"
    );
    Ok(Took { time, memory })
}

/// Reads the object within the limits. An object that takes too long is read again: the effect of an
/// object occurs each time, while the search of the machine for free pages, or a processor that another
/// process uses, is not caused by the object.
fn measured(kind: &Kind, text: &str, reading: Reading) -> Result<Took> {
    let limit = if cfg!(debug_assertions) {
        LIMIT * UNOPTIMISED
    } else {
        LIMIT
    };
    let mut took = read(kind, text, reading)?;
    for _ in 0..AGAIN {
        if took.time < limit {
            break;
        }
        took.time = took.time.min(read(kind, text, reading)?.time);
    }
    let bytes = text.len();
    let (time, memory) = (took.time, took.memory);
    ensure!(
        memory < MEMORY,
        "{memory} bytes of memory for an object of {bytes}"
    );
    ensure!(time < limit, "{time:?} for an object of {bytes} bytes");
    Ok(took)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let seed: u64 = match arguments.next() {
        Some(seed) => seed.parse()?,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs(),
    };
    let kinds = kinds()?;
    let mut random = Xorshift::new(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut thrown, mut largest, mut most) = (0_u64, 0, Took::default());
    while Instant::now() < end {
        let kind = random.one(&kinds).context("no kinds")?;
        let before = honest(kind.name, &kind.spec);
        let mut object = before.clone();
        for _ in 0..=random.below(4) {
            random.change(&mut object, Some(&before));
        }
        if !object.is_object() {
            continue;
        }
        let Some(text) = written(&object)? else {
            continue;
        };
        // Small objects are also cut byte by byte. No connection does that to large ones.
        let least = if text.len() < SMALL { 1 } else { SMALL / 64 };
        let reading = Reading {
            piece: least + random.below(16 * 1024),
            as_child: random.below(2) == 0,
        };
        let took = measured(kind, &text, reading);
        let took = took.with_context(|| {
            let kept = std::env::temp_dir().join("oz-stored.json");
            let kept = std::fs::write(&kept, &text).map(|()| kept);
            let (name, as_child) = (kind.name, reading.as_child);
            format!("seed {seed}, object {thrown}, {name} (child: {as_child}), kept in {kept:?}")
        })?;
        thrown += 1;
        largest = largest.max(text.len());
        most.time = most.time.max(took.time);
        most.memory = most.memory.max(took.memory);
    }
    let told = format!(
        "{thrown} objects of {} kinds, seed {seed}: the largest {largest} bytes, the slowest {:?}, the most memory {} KiB\n",
        kinds.len(),
        most.time,
        most.memory / 1024
    );
    std::io::stdout().write_all(told.as_bytes())?;
    Ok(())
}
