//! The objects of runs and workspaces, which are built as JSON, as children.

use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

use crate::controller::Child;

/// The child of kind `K` that an object is. `None` only if it has no metadata, which ours all have.
pub(super) fn child<K>(object: Value) -> Option<Child>
where
    K: Resource<DynamicType = ()>,
{
    let object: DynamicObject = serde_json::from_value(object).ok()?;
    let resource = ApiResource::erase::<K>(&());
    Some(Child { resource, object })
}
