//! The rules for the connections to pods, and the changes of running pods, for which hooks are
//! called.

use oz_admission::{Operation, ResourceRule};

/// Returns the rule for connections. A proxy carries the request of one page each, and is checked
/// only where it requires a grant, or where there may be pods of harness runs.
pub(super) fn streams(with_proxy: bool) -> ResourceRule {
    let streams = ResourceRule::new("", "v1", "pods")
        .subresource("exec")
        .subresource("attach")
        .subresource("portforward")
        .on([Operation::Connect]);
    if with_proxy {
        streams.subresource("proxy")
    } else {
        streams
    }
}

/// Returns the further rules of a hook for connections: changes of running pods, and services.
pub(super) fn changed(enforced: bool) -> Vec<ResourceRule> {
    let pods = || ResourceRule::new("", "v1", "pods").on([Operation::Update]);
    let containers = pods().subresource("ephemeralcontainers");
    if !enforced {
        return vec![containers];
    }
    let services = ResourceRule::new("", "v1", "services")
        .subresource("proxy")
        .on([Operation::Connect]);
    vec![containers.subresource("resize"), pods(), services]
}

/// Returns the condition for updates of pods that replace an image. The API server keeps the order
/// and the number of the containers of a pod.
pub(super) fn another_image() -> String {
    let images = |object: &str, list: &str| {
        format!(
            "(has({object}.spec.{list}) ? \
             {object}.spec.{list}.map(c, has(c.image) ? c.image : '') : [])"
        )
    };
    let differ = |list| {
        format!(
            "{} != {}",
            images("object", list),
            images("oldObject", list)
        )
    };
    format!(
        "request.resource.resource != 'pods' || has(request.subResource) || {} || {}",
        differ("containers"),
        differ("initContainers")
    )
}
