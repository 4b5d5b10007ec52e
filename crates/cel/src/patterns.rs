//! Regular expressions of one evaluation. Each is compiled once, however often a loop uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{ExecutionError, FunctionContext};
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};

use crate::CelError;

/// The maximum compiled size of a regular expression, in bytes.
const PATTERN: usize = 1024 * 1024;

pub(crate) struct Patterns {
    until: Instant,
    known: Mutex<HashMap<String, Result<Regex, CelError>>>,
}

impl Patterns {
    pub(crate) fn new(until: Instant) -> Self {
        Self {
            until,
            known: Mutex::default(),
        }
    }

    /// Returns the function for CEL. A match takes time in proportion to the text and the expression, so one match is
    /// short; no match starts after the deadline.
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
                Err(why) => Err(context.error(why.to_string())),
            }
        }
    }
}

pub(crate) fn compiled(pattern: &str) -> Result<Regex, CelError> {
    RegexBuilder::new(pattern)
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN)
        .build()
        .map_err(|error| CelError::Pattern {
            pattern: pattern.to_owned(),
            error,
        })
}
