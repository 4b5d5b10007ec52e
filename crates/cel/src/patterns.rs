//! Regular expressions of one evaluation, each compiled once, however often a loop comes to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{ExecutionError, FunctionContext};
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};

/// What a regular expression may compile to, in bytes.
const PATTERN: usize = 1024 * 1024;

pub(crate) struct Patterns {
    until: Instant,
    known: Mutex<HashMap<String, Result<Regex, String>>>,
}

impl Patterns {
    pub(crate) fn new(until: Instant) -> Self {
        Self {
            until,
            known: Mutex::default(),
        }
    }

    /// The function of CEL. A text is looked at in proportion to it and to the expression, so one look
    /// is short, and nobody waits for the next when time is up.
    pub(crate) fn matching(
        self,
    ) -> impl Fn(
        &FunctionContext<'_, '_>,
        This<Arc<String>>,
        Arc<String>,
    ) -> Result<bool, ExecutionError>
    + Send
    + Sync
    + 'static {
        move |context, This(text), pattern| {
            if Instant::now() >= self.until {
                return Err(context.error("time is up"));
            }
            let mut known = self.known.lock();
            let pattern = known
                .entry(pattern.to_string())
                .or_insert_with_key(|pattern| compiled(pattern));
            match pattern {
                Ok(pattern) => Ok(pattern.is_match(&text)),
                Err(why) => Err(context.error(&*why)),
            }
        }
    }
}

pub(crate) fn compiled(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN)
        .build()
        .map_err(|error| format!("{pattern} is no regular expression: {error}"))
}
