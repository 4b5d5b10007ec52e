//! What is known of the request that another continues. Both come by one watch, in the order in which
//! they were written: what a request names at its creation is known as it was then.

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
    Some(Continued::of(kind.keys(), &found.view()))
}
