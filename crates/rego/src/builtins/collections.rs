//! Functions of collections, numbers and JSON texts, where the interpreter's have no error or another one.

use std::collections::BTreeSet;

use regorus::Value;

use super::bounds::{Excess, MAX_ITEMS};
use super::operand::{Answer, Failure, array, failed, fields, integer, items, kind};

/// Implements `array.flatten`: arrays in the array are replaced by their items.
pub(super) fn flatten(values: &[Value]) -> Answer {
    let mut flat = Vec::new();
    for item in array(values, 0)? {
        match item {
            Value::Array(items) => flat.extend(items.iter().cloned()),
            item => flat.push(item),
        }
        if flat.len() > MAX_ITEMS {
            return Err(Excess::Elements.into());
        }
    }
    Ok(Value::from(flat))
}

/// Implements `array.concat`.
pub(super) fn concat(values: &[Value]) -> Answer {
    let mut all = array(values, 0)?;
    all.extend(array(values, 1)?);
    Ok(Value::from(all))
}

/// Implements `numbers.range_step`.
pub(super) fn range_step(values: &[Value]) -> Answer {
    let step = whole(values, 2)?;
    if step <= 0 {
        return failed("step must be a positive integer");
    }
    let (from, to) = (whole(values, 0)?, whole(values, 1)?);
    let count = from.abs_diff(to) / step.unsigned_abs();
    if count >= MAX_ITEMS as u128 {
        return Err(Excess::Elements.into());
    }
    let step = if from <= to { step } else { -step };
    let count = i128::try_from(count).unwrap_or(0);
    let numbers = (0..=count).map(|at| Value::from(from + at.saturating_mul(step)));
    Ok(Value::from(numbers.collect::<Vec<_>>()))
}

fn whole(values: &[Value], at: usize) -> Result<i128, Failure> {
    match values.get(at) {
        Some(Value::Number(number)) if number.is_integer() => match number.as_i128() {
            Some(whole) => Ok(whole),
            None if at == 2 && number.is_positive() => Ok(i128::MAX),
            None => Err(Excess::Bits.into()),
        },
        _ => integer(values, at).map(i128::from),
    }
}

/// `bits.lsh` and `bits.rsh`: a shift by less than nothing is an error.
pub(super) fn check_shift(values: &[Value]) -> Result<(), Failure> {
    if integer(values, 1)? < 0 {
        return failed("operand 2 must be an unsigned integer number but got a negative integer");
    }
    Ok(())
}

/// `object.union` has objects as its operands.
pub(super) fn check_objects(values: &[Value]) -> Result<(), Failure> {
    fields(values, 0)?;
    fields(values, 1).map(drop)
}

/// `to_number` reads no names of numbers.
pub(super) fn check_number(values: &[Value]) -> Result<(), Failure> {
    if let Some(Value::String(text)) = values.first() {
        let name = text.trim_start_matches(['+', '-']).to_lowercase();
        if ["inf", "infinity", "nan"].contains(&name.as_str()) {
            return failed("operand 1 must be valid number string");
        }
        if text.parse::<f64>().is_err() {
            return failed(format!(
                "strconv.ParseFloat: parsing {text:?}: invalid syntax"
            ));
        }
    }
    Ok(())
}

/// Implements `json.is_valid`, which is false for another value than a text.
pub(super) fn is_json(values: &[Value]) -> Answer {
    let valid = match values.first() {
        Some(Value::String(text)) => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
        _ => false,
    };
    Ok(Value::from(valid))
}

/// `json.marshal_with_options` knows these options.
pub(super) fn check_options(values: &[Value]) -> Result<(), Failure> {
    for (key, _) in fields(values, 1)? {
        let known =
            matches!(&key, Value::String(key) if matches!(&**key, "pretty" | "indent" | "prefix"));
        if !known {
            return failed(format!("object contained unknown key {key}"));
        }
    }
    Ok(())
}

/// Implements `any`, which OPA had before 1.0.
pub(super) fn any(values: &[Value]) -> Answer {
    let items = items(values, 0)?;
    Ok(Value::from(items.contains(&Value::Bool(true))))
}

/// Implements `all`, which OPA had before 1.0.
pub(super) fn all(values: &[Value]) -> Answer {
    let items = items(values, 0)?;
    Ok(Value::from(
        items.iter().all(|item| *item == Value::Bool(true)),
    ))
}

/// Implements `set_diff`, which OPA had before 1.0.
pub(super) fn set_diff(values: &[Value]) -> Answer {
    match values {
        [Value::Set(from), Value::Set(without)] => {
            let rest = from.iter().filter(|item| !without.contains(item));
            Ok(Value::from(rest.cloned().collect::<BTreeSet<_>>()))
        }
        _ => failed("operands must be sets"),
    }
}

/// Implements `cast_array`, which OPA had before 1.0.
pub(super) fn cast_array(values: &[Value]) -> Answer {
    items(values, 0).map(Value::from)
}

/// Implements `cast_set`, which OPA had before 1.0.
pub(super) fn cast_set(values: &[Value]) -> Answer {
    let items: BTreeSet<Value> = items(values, 0)?.into_iter().collect();
    Ok(Value::from(items))
}

/// The other casts, which OPA had before 1.0: they return values of their type.
pub(super) fn cast_same(values: &[Value], want: &str) -> Answer {
    match values.first() {
        Some(value) if kind(value) == want => Ok(value.clone()),
        other => failed(format!(
            "operand 1 must be {want} but got {}",
            other.map_or("nothing", kind)
        )),
    }
}

/// Implements `object.subset`: one value contains another; an empty one is contained in each.
pub(super) fn subset(values: &[Value]) -> Answer {
    let [whole, part] = values else {
        return failed("two operands");
    };
    let contained = match (whole, part) {
        (Value::Object(_), Value::Object(_)) => contains(whole, part),
        (Value::Set(whole), Value::Set(part)) => part.iter().all(|item| whole.contains(item)),
        (Value::Array(whole), Value::Array(part)) => {
            let (whole, part): (Vec<_>, Vec<_>) = (whole.iter().collect(), part.iter().collect());
            part.is_empty() || whole.windows(part.len()).any(|window| window == part)
        }
        (Value::Array(whole), Value::Set(part)) => {
            let whole: BTreeSet<&Value> = whole.iter().collect();
            part.iter().all(|item| whole.contains(item))
        }
        _ => {
            return failed(
                "both arguments object.subset must be of the same type or array and set",
            );
        }
    };
    Ok(Value::from(contained))
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
        (Value::Set(whole), Value::Set(part)) => part.iter().all(|item| whole.contains(item)),
        (Value::Array(_), Value::Array(_)) => {
            subset(&[whole.clone(), part.clone()]).is_ok_and(|found| found == Value::Bool(true))
        }
        _ => whole == part,
    }
}
