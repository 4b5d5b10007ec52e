//! The thread of the interpreter. The interpreter recurses, on a stack that is large enough for every policy within
//! the bounds; and it checks the clock only between its steps, so that one step could take forever: then its thread is
//! abandoned.
//!
//! A thread that has completed an evaluation waits briefly for the next one: starting a thread takes as long as
//! evaluating a small policy.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use crate::error::EvaluateError;
use parking_lot::{Mutex, MutexGuard};

/// The size of the stack, which is reserved; memory is allocated as the stack is used.
const STACK: usize = 512 << 20;
/// The maximum number of threads that wait. They keep the memory that their stacks have used.
const MOST_WAITING: usize = 4;
/// The time for which a thread waits.
const WAITS: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce() + Send>;

/// A thread that waits.
struct Waiting {
    number: u64,
    sender: Sender<Work>,
}

struct Pool {
    waiting: Vec<Waiting>,
    /// The number of threads that have waited.
    count: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    waiting: Vec::new(),
    count: 0,
});

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock()
}

/// Runs work, and waits for at most `timeout`.
pub(crate) fn run<T: Send + 'static>(
    timeout: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EvaluateError> {
    let (sender, receiver) = channel();
    give(Box::new(move || {
        // A result after the timeout has no receiver.
        let _ = sender.send(work());
    }))?;
    let received = match timeout {
        Some(timeout) => receiver.recv_timeout(timeout),
        None => receiver.recv().map_err(RecvTimeoutError::from),
    };
    match (received, timeout) {
        (Ok(value), _) => Ok(value),
        (Err(RecvTimeoutError::Timeout), Some(timeout)) => Err(EvaluateError::Stuck(timeout)),
        // The work panicked, which reports its position on standard error, and ended its thread.
        (Err(_), _) => Err(EvaluateError::Internal),
    }
}

/// Passes work to a thread that waits, or to a new thread.
fn give(mut work: Work) -> Result<(), EvaluateError> {
    loop {
        // The pop is not in the condition: the pool would stay locked while the work is passed.
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

/// Waits for the next work, for a limited time.
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
            // Another thread has just taken it, and is about to send.
            if is_left { None } else { receiver.recv().ok() }
        }
    }
}
