//! Functions that replace the interpreter's own: the clock, which is the instant of the evaluation, and those that
//! could create more in one step than a process has memory for. Time is limited only between steps.

use std::sync::LazyLock;

use anyhow::{Result, bail};
use regorus::unstable::{BUILTINS, Expr, Ref, Span};
use regorus::{Engine, Source, Value};

use crate::sprintf;

/// The maximum number of elements that one call may create.
const MAX_ELEMENTS: u64 = 100_000;
/// The maximum number of bytes that one call may create.
const MAX_TEXT: usize = 4 << 20;
/// The maximum number of bits by which a number may be shifted.
const MAX_SHIFT: i64 = 4096;
/// The maximum depth of a value that is serialized or changed by a path.
const MAX_DEPTH: usize = 256;

/// The check of a function before the call: the size of its result.
type Judge = fn(&[Value]) -> Judged;
type Judged = std::result::Result<(), Excess>;

/// The result of a call that would be too large.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Excess {
    #[error("more than 100000 elements by one call")]
    Elements,
    #[error("more than 4 MiB of text by one call")]
    Text,
    #[error("a value that is nested more than 256 levels deep")]
    Depth,
    #[error("a number of more than 4096 bits")]
    Bits,
    #[error("a width of more than 999 places")]
    Width,
}

const GUARDED: [(&str, u8, Judge); 19] = [
    ("numbers.range", 2, range),
    ("numbers.range_step", 3, range),
    ("net.cidr_expand", 1, addresses),
    ("array.concat", 2, joined),
    ("bits.lsh", 2, shifted),
    ("to_number", 1, number),
    ("units.parse", 1, number),
    ("units.parse_bytes", 1, number),
    ("sprintf", 2, formatted),
    ("concat", 2, concatenated),
    ("replace", 3, replaced),
    ("strings.replace_n", 2, replaced_by_many),
    ("regex.replace", 3, replaced_by_pattern),
    ("object.union", 2, written),
    ("object.union_n", 1, written),
    ("json.marshal", 1, written),
    ("json.marshal_with_options", 2, written),
    ("json.patch", 2, written),
    ("walk", 1, written),
];

/// Adds the guarded functions to an engine that has none of them yet.
pub(crate) fn guard(engine: &mut Engine) -> Result<()> {
    for (name, arguments, judge) in GUARDED {
        if let Some((builtin, _)) = BUILTINS.get(name) {
            let call = move |values: Vec<Value>| guarded(name, *builtin, judge, &values);
            engine.add_extension(name.to_owned(), arguments, Box::new(call))?;
        }
    }
    Ok(())
}

/// Sets the instant of an engine, once: nanoseconds since 1970. The interpreter's own function would read the system's
/// clock wherever a `with` does not reach, as in a function that replaces another.
pub(crate) fn set_clock(engine: &mut Engine, now: i64) -> Result<()> {
    let clock = move |_: Vec<Value>| Ok(Value::from(now));
    engine.add_extension("time.now_ns".to_owned(), 0, Box::new(clock))
}

/// The beginning of this crate's errors, within any text of the interpreter.
pub(crate) const STOPPED: &str = "the policy was stopped: ";

type Builtin = fn(&Span, &[Ref<Expr>], &[Value], bool) -> Result<Value>;

fn guarded(name: &str, builtin: Builtin, judge: Judge, values: &[Value]) -> Result<Value> {
    if let Err(excess) = judge(values) {
        bail!("{STOPPED}{name} would make {excess}");
    }
    let written = (name == "sprintf")
        .then(|| sprintf::arguments(values))
        .flatten();
    let values = written.as_deref().unwrap_or(values);
    let (span, arguments) = &*NOWHERE;
    let arguments = &arguments[..values.len().min(arguments.len())];
    // As in OPA, a failure of a function is undefined.
    Ok(builtin(span, arguments, values, false).unwrap_or(Value::Undefined))
}

/// A placeholder for the position of a call; the interpreter adds the real position to errors.
static NOWHERE: LazyLock<(Span, Vec<Ref<Expr>>)> = LazyLock::new(|| {
    let source = Source::from_contents("built-in".to_owned(), "_".to_owned());
    let source = source.unwrap_or_else(|error| unreachable!("one character is a source: {error}"));
    let span = Span {
        source,
        line: 1,
        col: 1,
        start: 0,
        end: 1,
    };
    let argument = || {
        Ref::new(Expr::Null {
            span: span.clone(),
            value: Value::Null,
            eidx: 0,
        })
    };
    let arguments = (0..3).map(|_| argument()).collect();
    (span, arguments)
});

fn range(values: &[Value]) -> Judged {
    let (Some(from), Some(to)) = (integer(values, 0), integer(values, 1)) else {
        // Numbers with more bits than an instant are far apart, or a range of one.
        let same = values.first() == values.get(1);
        let numbers = values.iter().all(|value| matches!(value, Value::Number(_)));
        return at_most(!same && numbers, Excess::Elements);
    };
    let step = integer(values, 2).map_or(1, i64::unsigned_abs).max(1);
    let elements = from.abs_diff(to) / step;
    at_most(elements >= MAX_ELEMENTS, Excess::Elements)
}

fn addresses(values: &[Value]) -> Judged {
    let Some((address, prefix)) = text(values, 0).split_once('/') else {
        return Ok(());
    };
    let bits: u32 = if address.contains(':') { 128 } else { 32 };
    let prefix = prefix.parse().unwrap_or(bits);
    at_most(bits.saturating_sub(prefix) > 16, Excess::Elements)
}

fn joined(values: &[Value]) -> Judged {
    let elements = values
        .iter()
        .map(|value| value.as_array().map_or(0, |array| array.len()));
    at_most(
        elements.sum::<usize>() as u64 > MAX_ELEMENTS,
        Excess::Elements,
    )
}

fn shifted(values: &[Value]) -> Judged {
    let far = integer(values, 1).is_some_and(|shift| shift > MAX_SHIFT);
    let large = matches!(values.first(), Some(Value::Number(n)) if n.as_i128().is_none());
    at_most(far || large, Excess::Bits)
}

fn number(values: &[Value]) -> Judged {
    let text = text(values, 0);
    at_most(text.len() > 1024 || has_large_exponent(text), Excess::Bits)
}

/// Checks whether a number's exponent has four digits or more: the number would be written out.
pub(crate) fn has_large_exponent(text: &str) -> bool {
    let Some((_, exponent)) = text.split_once(['e', 'E']) else {
        return false;
    };
    let exponent = exponent
        .trim_start_matches(['+', '-'])
        .trim_start_matches('0');
    exponent.bytes().take_while(u8::is_ascii_digit).count() > 3
}

fn formatted(values: &[Value]) -> Judged {
    let mut digits = text(values, 0).split(|c: char| !c.is_ascii_digit());
    let wide = digits.any(|digits| digits.trim_start_matches('0').len() > 3);
    at_most(wide, Excess::Width)?;
    written(values)
}

fn concatenated(values: &[Value]) -> Judged {
    let between = text(values, 0).len();
    let length = |value: &Value| value.as_string().map_or(0, |text| text.len()) + between;
    let bytes: usize = match values.get(1) {
        Some(Value::Array(array)) => array.iter().map(length).sum(),
        Some(Value::Set(set)) => set.iter().map(length).sum(),
        _ => 0,
    };
    at_most(bytes > MAX_TEXT, Excess::Text)
}

fn replaced(values: &[Value]) -> Judged {
    let (text, old, new) = (text(values, 0), text(values, 1), text(values, 2));
    let worst = (text.len() + 1).saturating_mul(new.len());
    if worst <= MAX_TEXT {
        return Ok(());
    }
    let bytes = text.matches(old).count().saturating_mul(new.len()) + text.len();
    at_most(bytes > MAX_TEXT, Excess::Text)
}

fn replaced_by_many(values: &[Value]) -> Judged {
    let longest = match values.first() {
        Some(Value::Object(patterns)) => {
            let lengths = patterns
                .iter()
                .map(|(_, new)| new.as_string().map_or(0, |new| new.len()));
            lengths.max().unwrap_or(0)
        }
        _ => 0,
    };
    let bytes = (text(values, 1).len() + 1).saturating_mul(longest.max(1));
    at_most(bytes > MAX_TEXT / 4, Excess::Text)
}

fn replaced_by_pattern(values: &[Value]) -> Judged {
    let bytes = (text(values, 0).len() + 1).saturating_mul(text(values, 2).len() + 1);
    at_most(bytes > MAX_TEXT / 4, Excess::Text)
}

/// Checks values that are serialized, or copied completely: values that share their parts are written as often as they
/// are used.
fn written(values: &[Value]) -> Judged {
    let mut budget = MAX_TEXT;
    values
        .iter()
        .try_for_each(|value| weigh(value, &mut budget, 0))
}

fn weigh(value: &Value, budget: &mut usize, depth: usize) -> Judged {
    at_most(depth > MAX_DEPTH, Excess::Depth)?;
    let own = match value {
        Value::String(text) => text.len() + 2,
        // The maximum length of a number in the input.
        Value::Number(_) => 20,
        _ => 4,
    };
    *budget = budget.checked_sub(own).ok_or(Excess::Text)?;
    match value {
        Value::Array(array) => array
            .iter()
            .try_for_each(|value| weigh(value, budget, depth + 1)),
        Value::Set(set) => set
            .iter()
            .try_for_each(|value| weigh(value, budget, depth + 1)),
        Value::Object(object) => object.iter().try_for_each(|(key, value)| {
            weigh(key, budget, depth + 1)?;
            weigh(value, budget, depth + 1)
        }),
        _ => Ok(()),
    }
}

fn at_most(is_more: bool, excess: Excess) -> Judged {
    if is_more { Err(excess) } else { Ok(()) }
}

fn text(values: &[Value], at: usize) -> &str {
    match values.get(at) {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

fn integer(values: &[Value], at: usize) -> Option<i64> {
    values.get(at).and_then(|value| value.as_i64().ok())
}
