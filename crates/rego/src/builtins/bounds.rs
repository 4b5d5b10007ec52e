//! The sizes of results, checked before a call: one step could create more than a process has memory for, and time is
//! limited only between steps.

use regorus::Value;

/// The maximum number of elements that one call may create.
const MAX_ELEMENTS: u64 = 100_000;
/// The same number, for lengths.
pub(super) const MAX_ITEMS: usize = 100_000;
/// The maximum number of bytes that one call may create.
pub(super) const MAX_TEXT: usize = 4 << 20;
/// The maximum number of bits by which a number may be shifted.
const MAX_SHIFT: i64 = 4096;
/// The maximum depth of a value that is serialized or changed by a path.
const MAX_DEPTH: usize = 256;

/// The check of a function before the call: the size of its result.
pub(super) type Judge = fn(&[Value]) -> Judged;
type Judged = std::result::Result<(), Excess>;

/// The result of a call that would be too large.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Excess {
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
    #[error("more than 1000000 steps by one call")]
    Steps,
}

const GUARDED: [(&str, Judge); 23] = [
    ("numbers.range", range),
    ("numbers.range_step", range),
    ("net.cidr_expand", addresses),
    ("array.concat", joined),
    ("bits.lsh", shifted),
    ("to_number", number),
    ("units.parse", number),
    ("units.parse_bytes", number),
    ("sprintf", formatted),
    ("concat", concatenated),
    ("replace", replaced),
    ("strings.replace_n", replaced_by_many),
    ("regex.replace", replaced_by_pattern),
    ("object.union", written),
    ("object.union_n", written),
    ("json.marshal", written),
    ("json.match_schema", written),
    ("json.verify_schema", written),
    ("json.marshal_with_options", written),
    ("json.patch", written),
    ("walk", written),
    ("yaml.marshal", written),
    ("strings.render_template", written),
];

/// Returns the check of a function's result before the call, if it has one.
pub(super) fn find_judge(name: &str) -> Option<Judge> {
    let guarded = GUARDED.iter().find(|(guarded, _)| *guarded == name);
    guarded.map(|(_, judge)| *judge)
}

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
