//! The names of the objects that oz creates for a request. They are here and not with the grant, since the end of a
//! request and the command line compute them without one.

use kube::Resource;
use oz_api::PodAccessRequest;
use oz_trail::RequestRef;

/// The maximum length of the namespace and the name of a pod together. The kubelet writes the logs of a pod into the
/// directory `<namespace>_<name>_<UID>`, and the name of a directory has at most 255 bytes; a pod with a longer name
/// never starts.
/// See <https://github.com/kubernetes/kubernetes/issues/104288>.
const MAX_POD_PATH: usize = 255 - "_".len() - "_".len() - 36;

/// Returns the name of an object for a request: `<request>-<first 8 characters of its UID>`.
#[must_use]
pub fn object_name(request: &str, uid: &str) -> String {
    let short: String = uid.chars().take(8).collect();
    format!("{request}-{short}")
}

/// Returns the name that all objects of a request's grant share, except its Role: that of [`object_name`], with a
/// shorter name of the request if a dedicated pod of the whole name would never start. The first characters of the UID
/// keep it unique.
#[must_use]
pub fn shared_name(request: &RequestRef) -> String {
    let whole = object_name(&request.name, &request.uid);
    let excess = (request.namespace.len() + whole.len()).saturating_sub(MAX_POD_PATH);
    if excess == 0 || request.kind != PodAccessRequest::kind(&()) {
        return whole;
    }
    let length = request.name.len().saturating_sub(excess);
    let kept = &request.name[..request.name.floor_char_boundary(length)];
    // The API server rejects a name with `-` after `.`.
    object_name(kept.trim_end_matches(['.', '-']), &request.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::UID;
    use crate::validate::{MAX_REQUEST_NAME, dns_subdomain};

    fn name(kind: &str, namespace: &str, request: &str) -> String {
        shared_name(&RequestRef {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: request.to_owned(),
            uid: UID.to_owned(),
        })
    }

    #[test]
    fn long_name_of_dedicated_pod_is_shortened_to_fit_log_directory() {
        let (short, long) = ("n".to_owned(), "n".repeat(63));
        // The namespace, the request, and the length of its name that remains.
        for (namespace, request, kept) in [
            (&short, "mine".to_owned(), 4),
            (&long, "r".repeat(145), 145),
            (&long, "r".repeat(146), 145),
            (&long, "r".repeat(MAX_REQUEST_NAME), 145),
            (&short, "r".repeat(207), 207),
            (&short, "r".repeat(208), 207),
            (&short, "r".repeat(MAX_REQUEST_NAME), 207),
            (&long, format!("{}.-rest", "r".repeat(144)), 144),
            (&long, format!("{}---rest", "r".repeat(143)), 143),
        ] {
            let name = name("PodAccessRequest", namespace, &request);
            assert_eq!(name, format!("{}-0a1b2c3d", &request[..kept]));
            assert!(dns_subdomain(&name).is_ok(), "{name}");
            let directory = format!("{namespace}_{name}_{UID}");
            assert!(directory.len() <= 255, "{directory}");
        }
    }

    #[test]
    fn name_of_grant_without_dedicated_pod_is_not_shortened() {
        let request = "r".repeat(MAX_REQUEST_NAME);
        let name = name("ExecAccessRequest", &"n".repeat(63), &request);
        assert_eq!(name, object_name(&request, UID));
    }

    #[test]
    fn long_names_of_two_requests_differ_by_their_uids() {
        let request = |uid: &str| RequestRef {
            kind: "PodAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: "r".repeat(MAX_REQUEST_NAME),
            uid: uid.to_owned(),
        };
        let (one, two) = (
            request(UID),
            request("ffffffff-0000-4000-8000-000000000001"),
        );
        assert_ne!(shared_name(&one), shared_name(&two));
    }
}
