//! The comparison of a child with its response where the API server stores it otherwise than it was applied: it drops
//! empty values and writes others in its own form. Only the API server knows these rules, so a dry run of the same
//! application shows whether it would change the child.

use kube::core::DynamicObject;
use oz_core::controller::{Child, Live, contains_unless, has_content};
use serde_json::Value;

use super::desired::APPLIED;

/// A child that was applied as it is now desired, and does not look so.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubt {
    /// The desired child.
    pub child: Child,
    /// The existing child.
    pub live: Live,
}

/// Returns the existing child if it was applied as it is desired, and has other content now: another client changed it,
/// or the API server stores it otherwise.
pub(super) fn doubt(live: &Live, child: &Child) -> Option<Doubt> {
    let applied = annotation(&live.object, APPLIED);
    let is_applied = applied.is_some() && applied == annotation(&child.object, APPLIED);
    let is_untouched = live.object.metadata.generation == Some(1);
    (is_applied && !is_untouched && !has_content(&live.object, &child.object)).then(|| Doubt {
        child: child.clone(),
        live: live.clone(),
    })
}

pub(super) fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

impl Doubt {
    /// Checks whether the child is as it would be after its application, by the result of a dry run.
    #[must_use]
    pub fn is_unchanged(&self, applied: &DynamicObject) -> bool {
        content(&applied.data) == content(&self.live.object.data)
    }

    /// Checks whether the child lacks empty values only, for a caller that does not ask the API server.
    #[must_use]
    pub fn lacks_only_empty(&self) -> bool {
        let mut desired = self.child.object.data.as_object().into_iter().flatten();
        desired.all(|(field, desired)| {
            let live = self.live.object.data.get(field);
            field == "status" || contains_unless(live.unwrap_or(&Value::Null), desired, is_empty)
        })
    }
}

/// Returns the content without the status, which another component writes.
fn content(data: &Value) -> Vec<(&String, &Value)> {
    let fields = data.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field != "status").collect()
}

/// Checks whether a value is empty in a form that the API server may drop.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}
