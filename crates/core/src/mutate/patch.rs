//! The JSON Patch (RFC 6902) of a template, with an extension of the original: indices below zero count from
//! the end.
//! See <https://www.rfc-editor.org/rfc/rfc6902#section-4>.

use json_patch::{PatchOperation, patch};
use oz_api::{PatchOp, PatchSpecOperation};
use serde_json::{Value, json};

use super::MutateError;

/// The maximum size of the document that a patch creates, in bytes: a few copies of a document into itself
/// would fill any memory.
const LARGEST: usize = 512 * 1024;

/// The maximum depth of the document. serde_json cannot read a deeper document again, and far deeper ones
/// overflow the stack of each reader.
const DEEPEST: usize = 100;

/// The maximum amount that all operations of a patch may handle together, in bytes: each counts with the
/// values that it adds, copies, moves or compares. A patch of the pod's differences needs a small part of it.
const WORK: usize = 1024 * 1024;

/// The reason why an operation of a patch fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The operations handle too much together.
    #[error(
        "the operations up to this one handle {0} bytes together, and the maximum is {WORK}: patch \
         only the fields that differ"
    )]
    Work(usize),
    /// The document becomes too large.
    #[error("the pod template is larger than {LARGEST} bytes: add or copy less")]
    Size,
    /// The document becomes too deep.
    #[error("the pod template is nested deeper than {DEEPEST} levels: add or copy less deep")]
    Depth,
    /// The operation is not one of RFC 6902.
    #[error("{0}")]
    Operation(String),
    /// The operation does not fit the document.
    #[error("{0}")]
    Document(String),
}

/// Applies the operations one after the other.
pub(super) fn apply(
    document: &mut Value,
    operations: &[PatchSpecOperation],
) -> Result<(), MutateError> {
    if operations.is_empty() {
        return Ok(());
    }
    let mut budget = Budget {
        size: Size::measure(document).bytes,
        work: 0,
    };
    for (index, operation) in operations.iter().enumerate() {
        one(document, operation, &mut budget).map_err(|why| MutateError::Patch {
            index,
            op: operation.op.into(),
            path: operation.path.clone(),
            why,
        })?;
    }
    Ok(())
}

/// The consumed part of the budget.
struct Budget {
    /// An upper bound of the document's size.
    size: usize,
    work: usize,
}

impl Budget {
    /// Counts one operation on a value of this size, before the operation: `grows` if it adds the value to
    /// the document, at this depth.
    fn spend(&mut self, handled: Size, grows: bool, depth: usize) -> Result<(), PatchError> {
        self.work = self.work.saturating_add(handled.bytes);
        if self.work > WORK {
            return Err(PatchError::Work(self.work));
        }
        if !grows {
            return Ok(());
        }
        self.size = self.size.saturating_add(handled.bytes);
        if self.size > LARGEST {
            return Err(PatchError::Size);
        }
        if depth + handled.depth > DEEPEST {
            return Err(PatchError::Depth);
        }
        Ok(())
    }
}

/// The approximate size of a value as JSON, and the number of its levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) bytes: usize,
    depth: usize,
}

impl Size {
    /// The size of an absent value.
    const NOTHING: Self = Self { bytes: 0, depth: 0 };

    pub(super) fn measure(value: &Value) -> Self {
        let of_items = |sizes: &mut dyn Iterator<Item = (usize, Self)>| {
            let none = Self { bytes: 2, depth: 0 };
            let all = sizes.fold(none, |all, (key, size)| Self {
                bytes: all.bytes + key + size.bytes + 2,
                depth: all.depth.max(size.depth),
            });
            Self {
                depth: all.depth + 1,
                ..all
            }
        };
        let plain = |bytes| Self { bytes, depth: 1 };
        match value {
            Value::Null | Value::Bool(_) => plain(5),
            Value::Number(_) => plain(20),
            Value::String(text) => plain(text.len() + 2),
            Value::Array(items) => of_items(&mut items.iter().map(|item| (0, Self::measure(item)))),
            Value::Object(fields) => of_items(
                &mut fields
                    .iter()
                    .map(|(key, value)| (key.len() + 2, Self::measure(value))),
            ),
        }
    }
}

fn one(
    document: &mut Value,
    operation: &PatchSpecOperation,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let adds = matches!(operation.op, PatchOp::Add | PatchOp::Copy | PatchOp::Move);
    let path = from_the_front(document, &operation.path, adds);
    let depth = path.matches('/').count();
    let from = operation.from.as_ref();
    let from = from.map(|from| from_the_front(document, from, false));
    let size = |value: Option<&Value>| value.map_or(Size::NOTHING, Size::measure);
    let at = |pointer: &str| size(document.pointer(pointer));
    let given = match operation.op {
        PatchOp::Add | PatchOp::Replace | PatchOp::Test => size(operation.value.as_ref()),
        PatchOp::Copy | PatchOp::Move => from.as_deref().map_or(Size::NOTHING, at),
        PatchOp::Remove => at(&path),
    };
    let gone = match operation.op {
        PatchOp::Remove | PatchOp::Replace => at(&path).bytes,
        // In a list, the existing items move on.
        PatchOp::Add | PatchOp::Copy if !in_a_list(document, &path) => at(&path).bytes,
        PatchOp::Move => given.bytes,
        PatchOp::Add | PatchOp::Copy | PatchOp::Test => 0,
    };
    budget.size = budget.size.saturating_sub(gone);
    let grows = adds || operation.op == PatchOp::Replace;
    budget.spend(given, grows, depth)?;
    let mut plain = json!({"op": operation.op, "path": path});
    if let Some(from) = from {
        plain["from"] = json!(from);
    }
    if let Some(value) = &operation.value {
        plain["value"] = value.clone();
    }
    let plain: PatchOperation =
        serde_json::from_value(plain).map_err(|error| PatchError::Operation(error.to_string()))?;
    patch(document, &[plain]).map_err(|error| PatchError::Document(error.kind.to_string()))
}

fn in_a_list(document: &Value, pointer: &str) -> bool {
    let parent = pointer
        .rsplit_once('/')
        .and_then(|(parent, _)| document.pointer(parent));
    parent.is_some_and(Value::is_array)
}

/// Returns the pointer with every index counted from the front. To add at -1 is to append.
fn from_the_front(document: &Value, pointer: &str, adds: bool) -> String {
    let mut place = Some(document);
    let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
    let last = tokens.len().saturating_sub(1);
    let resolved = tokens.iter().enumerate().map(|(position, token)| {
        let items = place.and_then(Value::as_array);
        let count = items.map(|items| items.len() + usize::from(adds && position == last));
        let token = count
            .and_then(|count| {
                let back: usize = token.strip_prefix('-')?.parse().ok()?;
                count.checked_sub(back).filter(|_| back > 0)
            })
            .map_or_else(|| (*token).to_owned(), |index| index.to_string());
        place = place.and_then(|place| place.pointer(&format!("/{token}")));
        token
    });
    resolved.fold(String::new(), |pointer, token| format!("{pointer}/{token}"))
}
