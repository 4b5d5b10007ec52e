//! Tests the decisions of a run's proxy with bytes that an agent may send: TLS handshakes, requests, questions of DNS.
//! No bytes may cause a panic or take much memory. The proxy and rustls read the same name in a handshake. A request
//! passes hyper on the way in and on the way out, as in the proxy: what arrives at the upstream has no placeholder in
//! its head, one length, the host of the connection and, at most, the one credential.
//!
//! `make fuzz` runs it for a minute: `cargo run --bin oz-fuzz-egress -- [SECONDS [SEED]]`.

mod handshakes;
#[path = "../fuzz/memory.rs"]
mod memory;
mod questions;
#[path = "../fuzz/random.rs"]
mod random;
mod requests;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::random::Xorshift;

/// The memory limit for one input, in bytes.
const MEMORY: usize = 4 * 1024 * 1024;

/// Changes bytes in a few positions: other bytes, repeated, removed or inserted ones.
fn mutate(random: &mut Xorshift, bytes: &mut Vec<u8>, words: &[&[u8]]) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = bytes.len().min(at + random.below(24));
        match random.below(5) {
            0 => bytes[at..end].fill(random.next().to_le_bytes()[0]),
            1 => {
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            2 => {
                bytes.drain(at..end);
            }
            3 => bytes.truncate(at),
            _ => {
                let word = random.one(words).copied().unwrap_or_default();
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
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
    let mut random = Xorshift::new(seed);
    let requests = requests::Requests::new()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut inputs, mut passed, mut most) = ([0_u64; 3], [0_u64; 3], 0);
    while Instant::now() < end {
        let kind = random.below(3);
        let bytes = match kind {
            0 => handshakes::generate(&mut random),
            1 => questions::generate(&mut random),
            _ => requests.generate(&mut random),
        };
        let held = memory::begin();
        let result = match kind {
            0 => handshakes::check(&bytes),
            1 => questions::check(requests.granted(), &bytes),
            _ => requests.check(&bytes),
        };
        let took = memory::most().saturating_sub(held);
        let result = result.and_then(|passes| {
            ensure!(took < MEMORY, "{took} bytes of memory");
            Ok(passes)
        });
        let passes = result.with_context(|| {
            let kept = std::env::temp_dir().join("oz-egress.bin");
            let kept = std::fs::write(&kept, &bytes).map(|()| kept);
            format!("seed {seed}, input {}, kept in {kept:?}", inputs[kind])
        })?;
        inputs[kind] += 1;
        passed[kind] += u64::from(passes);
        most = most.max(took);
    }
    // A target that no input passes would test the refusals only.
    ensure!(
        seconds < 10 || passed.iter().all(|&count| count > 0),
        "no input passed: {passed:?}"
    );
    let [handshakes, questions, requests] = [0, 1, 2].map(|kind| (inputs[kind], passed[kind]));
    let summary = format!(
        "{} handshakes ({} with a name), {} questions ({} answered), {} requests ({} forwarded), seed {seed}: the most \
         memory {} KiB\n",
        handshakes.0,
        handshakes.1,
        questions.0,
        questions.1,
        requests.0,
        requests.1,
        most / 1024
    );
    std::io::stdout().write_all(summary.as_bytes())?;
    Ok(())
}
