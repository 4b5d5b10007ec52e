//! The kinds that users request. The requester may delete a request; another user ends it only with the right
//! to `revoke` the kind. This is the one list: the hook that observes deletions is registered for it, and
//! `cargo xtask generate` writes it into the admission policy `oz-deletions` and the ClusterRole
//! `oz-revoke-access`.

use kube::Resource;
use kube::core::ApiResource;

use crate::for_each_kind;

/// Returns every kind that users request, in the order of the list.
#[must_use]
pub fn requested() -> Vec<ApiResource> {
    fn api_resource<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    let mut all = Vec::new();
    for_each_kind!(requested K => { all.push(api_resource::<K>()) });
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn requested_kinds_have_their_groups_and_are_named_once() {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for kind in requested() {
            groups.entry(kind.group).or_default().push(kind.plural);
        }
        let expected = [
            (
                "crds.wizardofoz.co",
                vec![
                    "execaccessrequests",
                    "podaccessrequests",
                    "transientrolebindings",
                    "transientclusterrolebindings",
                ],
            ),
            (
                "example.com",
                vec!["transientrolebindings", "transientclusterrolebindings"],
            ),
            ("paddock.dev", vec!["harnessruns", "workspaces"]),
        ];
        let named = |(group, plurals): (&str, Vec<&str>)| {
            let plurals = plurals.into_iter().map(ToOwned::to_owned);
            (group.to_owned(), plurals.collect::<Vec<_>>())
        };
        assert_eq!(groups, expected.map(named).into());
    }
}
