//! The patch of a mutation: the difference between the typed object before and after, applied to the raw
//! JSON that was received.
//!
//! Serialising the typed object alone would drop every field that the linked API version does not define.
//! So the patch changes only the fields that the extension changed.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

/// The fields that identify the elements of Kubernetes lists, in the order of attempts.
const IDENTITIES: [&str; 8] = [
    "name",
    "key",
    "uid",
    "type",
    "mountPath",
    "containerPort",
    "port",
    "ip",
];

/// Computes the JSON patch that applies to `raw` the change from `before` to `after`.
pub(crate) fn diff(raw: &Value, before: &Value, after: &Value) -> json_patch::Patch {
    if before == after {
        return json_patch::Patch(Vec::new());
    }
    json_patch::diff(raw, &carry_over(raw, before, after))
}

/// Applies the change from `before` to `after` to a copy of `raw`.
pub(crate) fn carry_over(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_over_object(raw, before, after))
        }
        // A list with a raw length that differs from its typed length was not read as it was written; its
        // elements cannot be aligned.
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() =>
        {
            Value::Array(carry_over_list(raw, before, after))
        }
        _ => after.clone(),
    }
}

fn carry_over_object(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let nothing = Value::Object(Map::new());
    let mut result = raw.clone();
    for (key, new) in after {
        // A field may exist only in `after` because the type omits empty maps.
        let old = before
            .get(key)
            .or_else(|| new.is_object().then_some(&nothing));
        let value = match (raw.get(key), old) {
            (Some(_), Some(old)) if old == new => continue,
            // The type serialises the field although the raw object lacks it: a default, not a change.
            (None, Some(old)) if old == new && before.contains_key(key) => continue,
            (Some(raw), Some(old)) => carry_over(raw, old, new),
            (_, _) => new.clone(),
        };
        result.insert(key.clone(), value);
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        result.remove(key);
    }
    result
}

/// Applies the change of a list. Elements keep the fields that the type does not define, at any position.
fn carry_over_list(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut origin = Origins::new(before, after.len() == before.len());
    after
        .iter()
        .enumerate()
        .map(|(index, new)| match origin.take(index, new) {
            Some(old) => carry_over(&raw[old], &before[old], new),
            None => new.clone(),
        })
        .collect()
}

/// The mapping from elements after the change to elements before it.
struct Origins<'a> {
    before: &'a [Value],
    free: Vec<bool>,
    equal: BTreeMap<String, VecDeque<usize>>,
    named: BTreeMap<String, VecDeque<usize>>,
    same_length: bool,
}

impl<'a> Origins<'a> {
    fn new(before: &'a [Value], same_length: bool) -> Self {
        let mut equal: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        let mut named: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (index, value) in before.iter().enumerate() {
            equal.entry(value.to_string()).or_default().push_back(index);
            if let Some(identity) = identity(value) {
                named.entry(identity).or_default().push_back(index);
            }
        }
        Self {
            before,
            free: vec![true; before.len()],
            equal,
            named,
            same_length,
        }
    }

    fn take(&mut self, index: usize, new: &Value) -> Option<usize> {
        let found = self
            .unchanged_in_place(index, new)
            .or_else(|| first_free(&mut self.equal, &new.to_string(), &self.free))
            .or_else(|| {
                identity(new).and_then(|name| first_free(&mut self.named, &name, &self.free))
            })
            .or_else(|| self.nameless_in_place(index, new))?;
        self.free[found] = false;
        Some(found)
    }

    fn unchanged_in_place(&self, index: usize, new: &Value) -> Option<usize> {
        (self.before.get(index) == Some(new) && self.free[index]).then_some(index)
    }

    /// Returns the element at the same position, if lists have the same length and elements have no
    /// identity.
    fn nameless_in_place(&self, index: usize, new: &Value) -> Option<usize> {
        let possible = self.same_length
            && self.free.get(index) == Some(&true)
            && identity(new).is_none()
            && identity(&self.before[index]).is_none();
        possible.then_some(index)
    }
}

fn first_free(
    index: &mut BTreeMap<String, VecDeque<usize>>,
    key: &str,
    free: &[bool],
) -> Option<usize> {
    let candidates = index.get_mut(key)?;
    while let Some(candidate) = candidates.pop_front() {
        if free[candidate] {
            return Some(candidate);
        }
    }
    None
}

fn identity(value: &Value) -> Option<String> {
    let object = value.as_object()?;
    IDENTITIES
        .iter()
        .find_map(|field| object.get(*field).map(|value| format!("{field}={value}")))
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
