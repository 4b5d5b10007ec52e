//! The children that expired and were deleted before their function was called for that instant. A deletion waits for
//! no function; the function is then called with the children that were there, so that the status that it returns
//! covers their end, and once more without them.

use std::collections::HashMap;

use kube::core::DynamicObject;
use oz_core::controller::Live;
use serde_json::Value;

/// The maximum number of parents in memory.
const MANY: usize = 2_000;
/// The maximum number of responses for which the children of one parent are included.
const MOST_SHOWN: u32 = 3;

/// The expired children of the parents of a composite, by the UIDs of the parents.
#[derive(Debug, Default)]
pub struct Expired(HashMap<String, Row>);

/// The expired children of one parent.
#[derive(Debug, Default)]
struct Row {
    children: Vec<Live>,
    /// The number of responses to requests with these children.
    shown: u32,
    /// The status of the parent at the last of them, and the status that the response requires.
    told: Option<(Value, Value)>,
}

impl Row {
    /// Checks whether the last response is in the status of the parent.
    fn is_done(&self, status: &Value) -> bool {
        let told = self.told.as_ref();
        let is_written = told.is_some_and(|(before, after)| before == after || status != before);
        is_written || self.shown >= MOST_SHOWN
    }
}

fn status(parent: &DynamicObject) -> Value {
    parent.data["status"].clone()
}

impl Expired {
    /// Adds children of the parent with this UID that are about to be deleted.
    pub fn add(&mut self, parent: &str, children: Vec<Live>) {
        if self.0.len() >= MANY && !self.0.contains_key(parent) {
            self.0.clear();
        }
        let row = self.0.entry(parent.to_owned()).or_default();
        row.children.retain(|known| {
            let mut others = children.iter();
            !others.any(|other| other.key() == known.key())
        });
        row.children.extend(children);
        (row.shown, row.told) = (0, None);
    }

    /// Returns the children that the function of a parent has not been called with. Those that it was called with are
    /// removed as soon as the parent has the status that it returned.
    pub fn children(&mut self, parent: &DynamicObject) -> Vec<Live> {
        let Some(uid) = parent.metadata.uid.as_deref() else {
            return Vec::new();
        };
        if self
            .0
            .get(uid)
            .is_some_and(|row| row.is_done(&status(parent)))
        {
            self.0.remove(uid);
        }
        let row = self.0.get(uid);
        row.map(|row| row.children.clone())
            .into_iter()
            .flatten()
            .collect()
    }

    /// Records that the function of a parent was called with its expired children, and that its response requires this
    /// status.
    pub fn shown(&mut self, parent: &DynamicObject, required: Value) {
        let uid = parent.metadata.uid.as_deref();
        if let Some(row) = uid.and_then(|uid| self.0.get_mut(uid)) {
            row.shown += 1;
            row.told = Some((status(parent), required));
        }
    }
}
