//! The patch of a mutation: the difference between the typed object before and
//! after, carried over to the raw JSON that came in.
//!
//! Serialising the typed object alone would drop every field that the linked API
//! version does not know. So only what the extension changed is changed.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

/// Fields by which the elements of Kubernetes lists are told apart, in the order tried.
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

/// The JSON patch that does to `raw` what turned `before` into `after`.
pub(crate) fn diff(raw: &Value, before: &Value, after: &Value) -> json_patch::Patch {
    if before == after {
        return json_patch::Patch(Vec::new());
    }
    json_patch::diff(raw, &carry_over(raw, before, after))
}

/// `raw` with the change from `before` to `after` made in it.
pub(crate) fn carry_over(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_over_object(raw, before, after))
        }
        // Lists of another length than ours were not read the way they were written;
        // there is nothing to align them by.
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
        // A field may be in `after` alone because the type leaves empty maps out.
        let old = before
            .get(key)
            .or_else(|| new.is_object().then_some(&nothing));
        let value = match (raw.get(key), old) {
            (Some(_), Some(old)) if old == new => continue,
            // Written out by the type although it was never there: a default, not a change.
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

/// Elements keep what the type did not know of them, wherever in the list they end up.
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

/// Finds, for an element after the change, the element it was before.
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

    /// Without a name to go by, the same place in a list of the same length will do.
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
