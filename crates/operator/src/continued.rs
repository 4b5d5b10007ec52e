//! The request that another request extends. Both come from one watch, in the order in which they
//! were written: the request that another names at its creation is known in its state at that time.

use kube::{Resource, ResourceExt as _};
use oz_core::access::continued::Continued;
use oz_core::access::kind::Kind;
use oz_core::kinds::AccessRequest as _;
use oz_runtime::Store;

pub(crate) fn continued<K: Kind>(
    kind: &K,
    requests: &Store<K::Request>,
    request: &K::Request,
) -> Option<Continued>
where
    K::Request: Resource<DynamicType = ()>,
{
    let name = request.view().extends?;
    let found = requests.get(request.namespace().as_deref(), name)?;
    Some(Continued::from_request(kind.keys(), &found.view()))
}
