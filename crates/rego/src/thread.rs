//! Where the interpreter runs: on a thread of its own. It recurses, on a stack that is large enough for whatever
//! is within the bounds of a policy; and it looks at the clock between its steps only, so that one step could last
//! for ever: then its thread is left behind.
//!
//! A thread that has come to its end waits a moment for the next evaluation: to start one takes as long as a small
//! policy does.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use crate::error::EvaluateError;
use parking_lot::{Mutex, MutexGuard};

/// Reserved, and taken from memory as it is used.
const STACK: usize = 512 << 20;
/// How many threads may wait. What they have taken of their stacks stays taken meanwhile.
const MOST_WAITING: usize = 4;
/// How long one waits.
const WAITS: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce() + Send>;

/// A thread that waits.
struct Waiting {
    number: u64,
    sender: Sender<Work>,
}

struct Pool {
    waiting: Vec<Waiting>,
    /// How many have waited.
    count: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    waiting: Vec::new(),
    count: 0,
});

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock()
}

/// Runs it, and waits that long at most.
pub(crate) fn run<T: Send + 'static>(
    timeout: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EvaluateError> {
    let (sender, receiver) = channel();
    give(Box::new(move || {
        // Nobody receives what comes too late.
        let _ = sender.send(work());
    }))?;
    let received = match timeout {
        Some(timeout) => receiver.recv_timeout(timeout),
        None => receiver.recv().map_err(RecvTimeoutError::from),
    };
    match (received, timeout) {
        (Ok(value), _) => Ok(value),
        (Err(RecvTimeoutError::Timeout), Some(timeout)) => Err(EvaluateError::Stuck(timeout)),
        // It panicked, which says on standard error where, and ended its thread.
        (Err(_), _) => Err(EvaluateError::Internal),
    }
}

/// Gives work to a thread that waits, or to a new one.
fn give(mut work: Work) -> Result<(), EvaluateError> {
    loop {
        // Not in the condition: it would be locked as long as the work is given.
        let waiting = pool().waiting.pop();
        let Some(waiting) = waiting else { break };
        match waiting.sender.send(work) {
            Ok(()) => return Ok(()),
            Err(unsent) => work = unsent.0,
        }
    }
    let started = Builder::new()
        .name("rego".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let mut next = Some(work);
            while let Some(work) = next {
                work();
                next = wait();
            }
        });
    started
        .map(drop)
        .map_err(|error| EvaluateError::Thread(error.to_string()))
}

/// The next work, if some comes.
fn wait() -> Option<Work> {
    let (sender, receiver) = channel();
    let number = {
        let mut pool = pool();
        if pool.waiting.len() >= MOST_WAITING {
            return None;
        }
        pool.count += 1;
        let number = pool.count;
        pool.waiting.push(Waiting { number, sender });
        number
    };
    match receiver.recv_timeout(WAITS) {
        Ok(work) => Some(work),
        Err(_) => {
            let is_left = {
                let mut pool = pool();
                let before = pool.waiting.len();
                pool.waiting.retain(|waiting| waiting.number != number);
                pool.waiting.len() < before
            };
            // Somebody has just taken it, and is about to send.
            if is_left { None } else { receiver.recv().ok() }
        }
    }
}
