//! The evaluation of a policy: from a path, an input and an instant to a document or no result.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use serde_json::{Map, Number};

use crate::builtins::{STOPPED, set_clock};
use crate::documents;
use crate::error::{EvaluateError, Location};
use crate::policy::Policy;
use crate::thread;

/// The number of steps between two checks of the clock.
const STEPS: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// The time that a caller waits for an evaluation beyond its limit. An evaluation ends automatically unless one of its
/// steps takes too long.
const GRACE: Duration = Duration::from_secs(5);

/// The limits of an evaluation and of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum duration.
    pub time: Duration,
    /// The maximum size of the answer as JSON, in bytes.
    pub bytes: usize,
    /// The maximum depth of the answer.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(100),
            bytes: 8 << 20,
            depth: 100,
        }
    }
}

/// The answer of a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// No document: no rule of that path has a value for this input at this instant.
    Undefined,
    /// A document; sets are arrays, in their order.
    Document(serde_json::Value),
}

impl Answer {
    /// Returns the document, if there is one.
    #[must_use]
    pub fn document(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Undefined => None,
            Self::Document(document) => Some(document),
        }
    }
}

impl Policy {
    /// Returns the document `data.<path>` for that input, when `time.now_ns()` is `now`.
    ///
    /// The call blocks; make it where blocking is allowed.
    ///
    /// # Errors
    /// The policy fails or exceeds its limits.
    pub fn evaluate(
        &self,
        path: &str,
        input: &serde_json::Value,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Answer, EvaluateError> {
        self.evaluate_value(path, documents::read(input)?, now, limits)
    }

    /// Returns the document `data.<path>` without an input: `input` is undefined.
    ///
    /// # Errors
    /// The policy fails or exceeds its limits.
    pub fn evaluate_without_input(
        &self,
        path: &str,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Answer, EvaluateError> {
        self.evaluate_value(path, Value::Undefined, now, limits)
    }

    fn evaluate_value(
        &self,
        path: &str,
        input: Value,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Answer, EvaluateError> {
        let query = query(path)?;
        let now = nanoseconds(now)?;
        if self.is_stuck() {
            return Err(EvaluateError::Stuck(limits.time + GRACE));
        }
        let (base, limits) = (self.engine.clone(), limits.clone());
        let timeout = limits.time.saturating_add(GRACE);
        let evaluated = thread::run(Some(timeout), move || {
            let mut engine = Engine::clone(&base);
            ask(&mut engine, query, input, now, &limits)
        });
        if let Err(EvaluateError::Stuck(_)) = evaluated {
            self.stuck.store(true, Ordering::Relaxed);
        }
        evaluated?
    }
}

fn ask(
    engine: &mut Engine,
    query: String,
    input: Value,
    now: i64,
    limits: &Limits,
) -> Result<Answer, EvaluateError> {
    limit(engine, limits.time);
    set_clock(engine, now).map_err(|error| failed(&error, limits.time))?;
    engine.set_input(input);
    let results = engine.eval_query(query, false);
    let mut results = results.map_err(|error| failed(&error, limits.time))?;
    let value = results
        .result
        .pop()
        .and_then(|mut one| one.expressions.pop());
    match value.map(|expression| expression.value) {
        None | Some(Value::Undefined) => Ok(Answer::Undefined),
        Some(value) => {
            let mut writer = Writer {
                limits,
                left: limits.bytes,
            };
            writer.write(&value, 0).map(Answer::Document)
        }
    }
}

pub(crate) fn limit(engine: &mut Engine, time: Duration) {
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: time,
        check_interval: STEPS,
    });
}

pub(crate) fn nanoseconds(now: Timestamp) -> Result<i64, EvaluateError> {
    i64::try_from(now.as_nanosecond()).map_err(|_| EvaluateError::Instant(now))
}

/// Returns the meaning of the interpreter's error; some errors have lost their type.
pub(crate) fn failed(error: &anyhow::Error, time: Duration) -> EvaluateError {
    let text = error.to_string();
    if text.contains("execution exceeded time limit") {
        return EvaluateError::Time(time);
    }
    let place = Location::parse(&text);
    match place.message.strip_prefix(STOPPED) {
        Some(why) => EvaluateError::Work(why.to_owned()),
        None => EvaluateError::Failed {
            file: place.file.unwrap_or_default().to_owned(),
            line: place.line,
            message: place.message,
        },
    }
}

fn query(path: &str) -> Result<String, EvaluateError> {
    let mut query = "data".to_owned();
    for part in path.split('.') {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if part.is_empty() || !part.bytes().all(is_word) {
            return Err(EvaluateError::Path(path.to_owned()));
        }
        let is_name = !part.contains('-') && !part.starts_with(|c: char| c.is_ascii_digit());
        query.push_str(&if is_name {
            format!(".{part}")
        } else {
            format!("[\"{part}\"]")
        });
    }
    Ok(query)
}

/// The writer of an answer within its limits. Values share their parts, so that a small value may be large when
/// written.
struct Writer<'a> {
    limits: &'a Limits,
    left: usize,
}

impl Writer<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), EvaluateError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(EvaluateError::Bytes(self.limits.bytes))?;
        Ok(())
    }

    fn write(&mut self, value: &Value, depth: usize) -> Result<serde_json::Value, EvaluateError> {
        use serde_json::Value as Json;
        if depth >= self.limits.depth {
            return Err(EvaluateError::Depth(self.limits.depth));
        }
        Ok(match value {
            Value::Null | Value::Undefined => {
                self.take(4)?;
                Json::Null
            }
            Value::Bool(bool) => {
                self.take(4)?;
                Json::Bool(*bool)
            }
            Value::Number(_) => self.number(value)?,
            Value::String(text) => {
                self.take(text.len() + 2)?;
                Json::String(text.as_ref().to_owned())
            }
            Value::Array(items) => Json::Array(self.items(items.iter(), depth)?),
            Value::Set(items) => Json::Array(self.items(items.iter(), depth)?),
            Value::Object(fields) => {
                self.take(2)?;
                let mut written = Map::new();
                for (key, value) in fields.iter() {
                    let key = match key {
                        Value::String(key) => key.as_ref().to_owned(),
                        // This is the behaviour of OPA.
                        key => self.write(key, depth + 1)?.to_string(),
                    };
                    self.take(key.len() + 4)?;
                    let value = self.write(value, depth + 1)?;
                    written.insert(key, value);
                }
                Json::Object(written)
            }
        })
    }

    fn items<'v>(
        &mut self,
        items: impl Iterator<Item = &'v Value>,
        depth: usize,
    ) -> Result<Vec<serde_json::Value>, EvaluateError> {
        self.take(2)?;
        items
            .map(|item| {
                self.take(1)?;
                self.write(item, depth + 1)
            })
            .collect()
    }

    /// Writes a number. Whole numbers that JSON parsers would round are rejected rather than changed.
    fn number(&mut self, value: &Value) -> Result<serde_json::Value, EvaluateError> {
        let Value::Number(number) = value else {
            return Ok(serde_json::Value::Null);
        };
        let written = if number.as_big().is_some() {
            let small = number.as_i64().map(Number::from);
            small.or_else(|| number.as_u64().map(Number::from))
        } else {
            number.as_f64().and_then(Number::from_f64)
        };
        let Some(written) = written else {
            let mut digits = number.format_decimal();
            digits.truncate(40);
            return Err(EvaluateError::Number(digits));
        };
        self.take(written.to_string().len())?;
        Ok(serde_json::Value::Number(written))
    }
}
