//! Which connections to pods, and which changes of running ones, are asked about.

use oz_admission::{Operation, ResourceRule};

/// What opens a connection. Proxies carry a request of a page each, and are asked about only where
/// they need a grant.
pub(super) fn streams(enforced: bool) -> ResourceRule {
    let streams = ResourceRule::new("", "v1", "pods")
        .subresource("exec")
        .subresource("attach")
        .subresource("portforward")
        .on([Operation::Connect]);
    if enforced {
        streams.subresource("proxy")
    } else {
        streams
    }
}

/// What else a hook of connections is asked about: changes of running pods, and services.
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

/// Of updates of pods, those alone that exchange an image. The API server keeps the containers of a
/// pod in their order, and their number.
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
