//! The discovery documents: of the gate's own API group for clients of the API server, and, behind the address of a
//! request, the part of the core group that the gate passes on. Both have the form that every client reads; a client
//! that prefers all groups in one document accepts this form when the gate sends it.
//! See <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.

use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use oz_core::gate::{GROUP, RESOURCE, VERSION};
use serde_json::{Value, json};

use crate::answer::{Refused, document};

/// Returns `/apis` behind the API server, which the aggregator reads too.
pub(crate) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

/// Returns `/apis/GROUP`.
pub(crate) fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

/// Returns `/apis/GROUP/VERSION`.
pub(crate) fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": format!("{RESOURCE}/proxy"), "singularName": "", "namespaced": true,
            "kind": "Gate", "verbs": ["create", "get", "patch"],
        }],
    })
}

/// Returns `/api` behind the address of a request.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// Returns `/apis` behind the address of a request: no other group.
pub(crate) fn no_groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

/// Returns `/api/v1` behind the address of a request.
pub(crate) fn core_resources() -> Value {
    let sub = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": format!("pods/{name}"), "singularName": "", "namespaced": true,
            "kind": kind, "verbs": verbs,
        })
    };
    json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [
            {
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "verbs": ["get"], "shortNames": ["po"], "categories": ["all"],
            },
            sub("attach", "PodAttachOptions", &["create", "get"]),
            sub("ephemeralcontainers", "Pod", &["patch"]),
            sub("exec", "PodExecOptions", &["create", "get"]),
            sub("log", "Pod", &["get"]),
            sub("portforward", "PodPortForwardOptions", &["create", "get"]),
        ],
    })
}

/// Returns 404 for a path of OpenAPI, which the API server requests repeatedly: it omits a group with 404, and logs
/// every other response.
pub(crate) fn not_described(path: &str) -> Option<Refused> {
    const DESCRIPTIONS: [&str; 2] = ["/openapi/v2", "/openapi/v3"];
    DESCRIPTIONS.contains(&path).then(|| {
        let message = "the gate has no description of its group";
        Refused::new(StatusCode::NOT_FOUND, "OpenAPINotServed", message)
    })
}

/// Returns the response about the API group, which every user may read.
pub(crate) fn of_the_group(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let found = match path.strip_prefix("/apis")? {
        "" => groups(),
        rest if rest == format!("/{GROUP}") => group(),
        rest if rest == format!("/{GROUP}/{VERSION}") => resources(),
        _ => return None,
    };
    Some(if method == Method::GET {
        discovered(headers, &found).unwrap_or_else(|refused| refused.response())
    } else {
        let message = "only GET is served here";
        Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).response()
    })
}

/// Returns a discovery document as plain JSON. A client that requests another form repeats the request after this
/// refusal.
pub(crate) fn discovered(headers: &HeaderMap, found: &Value) -> Result<Response<Body>, Refused> {
    let mut accepted = headers.get_all(ACCEPT).iter().peekable();
    let plain = |part: &str| {
        let mut parts = part.split(';').map(str::trim);
        let kind = parts.next();
        let other = parts.any(|parameter| parameter.starts_with("as="));
        let plain = ["application/json", "application/*", "*/*"];
        !other && kind.is_some_and(|kind| plain.contains(&kind))
    };
    let good = accepted.peek().is_none()
        || accepted.any(|value| value.to_str().is_ok_and(|text| text.split(',').any(plain)));
    if good {
        return Ok(document(StatusCode::OK, found));
    }
    let message = "only application/json is served";
    Err(Refused::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::testing::headers;

    #[test]
    fn description_in_openapi_is_not_found_for_the_group_alone() {
        for path in ["/openapi/v2", "/openapi/v3"] {
            let refused = not_described(path).unwrap();
            assert_eq!(refused.response().status(), 404, "{path}");
        }
        let behind = format!("{}/openapi/v2", oz_core::gate::prefix("shop", "mine"));
        for path in [
            "/openapi",
            "/openapi/v3/",
            "/openapi/v2/../v3",
            behind.as_str(),
            "/apis",
        ] {
            assert_eq!(not_described(path), None, "{path}");
        }
    }

    #[test]
    fn group_discovery_without_plain_json_is_not_acceptable() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let both = "application/json;as=APIGroupDiscoveryList,application/json";
        for (all, status) in [
            (&[][..], 200),
            (&[("accept", "*/*")], 200),
            (&[("accept", both)], 200),
            (&[("accept", aggregated)], 406),
            (&[("accept", "application/vnd.kubernetes.protobuf")], 406),
        ] {
            let answered = of_the_group(&Method::GET, "/apis", &headers(all)).unwrap();
            assert_eq!(answered.status().as_u16(), status, "{all:?}");
        }
        let other = of_the_group(&Method::GET, "/apis/apps", &headers(&[]));
        assert!(other.is_none());
        let post = of_the_group(&Method::POST, "/apis", &headers(&[])).unwrap();
        assert_eq!(post.status().as_u16(), 405);
    }
}
