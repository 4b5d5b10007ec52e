//! The authors of composites. A composite reads and writes with the rights of its account, so the author of its
//! declaration uses these rights. Kubernetes calls this impersonation, and oz asks its authorizer for permission.
//! See <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::json;

use super::account::Account;
use super::source::Source;

/// Returns the permission to impersonate an account, in the account's namespace.
#[must_use]
pub fn impersonation(account: &Account) -> ResourceAttributes {
    ResourceAttributes {
        namespace: Some(account.namespace.clone()),
        verb: Some("impersonate".to_owned()),
        resource: Some("serviceaccounts".to_owned()),
        name: Some(account.name.clone()),
        ..ResourceAttributes::default()
    }
}

/// Returns the message for a user who lacks the permission, with the rule that grants it.
#[must_use]
pub fn lacks(user: &str, account: &Account) -> String {
    let rule = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [account.name],
        "verbs": ["impersonate"],
    });
    format!(
        "a composite reads and writes as service account {account}, and {user} may not impersonate \
         it; this requires the following rule of a Role in namespace {}: {rule}",
        account.namespace
    )
}

/// Checks whether a change of a declaration affects the actions in its account's name. Functions also receive labels
/// and annotations; finalizers and status belong to the deletion of a declaration.
#[must_use]
pub fn changes<S: Source>(old: &S, new: &S) -> bool {
    !old.is_same_spec(new)
        || old.meta().labels != new.meta().labels
        || old.meta().annotations != new.meta().annotations
}

#[cfg(test)]
mod tests {
    use oz_api::composite::CompositeController;

    use super::*;

    fn account() -> Account {
        "oz-system/oz-composites".parse().unwrap()
    }

    fn composite() -> CompositeController {
        serde_json::from_value(json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": {"name": "fleets"},
            "spec": {"parentResource": {"apiVersion": "example.org/v1", "resource": "fleets"}},
        }))
        .unwrap()
    }

    #[test]
    fn the_right_is_on_one_account_in_its_namespace() {
        let right = impersonation(&account());
        assert_eq!(right.namespace.as_deref(), Some("oz-system"));
        assert_eq!(right.name.as_deref(), Some("oz-composites"));
        assert_eq!(right.group, None, "service accounts are in the core group");
    }

    #[test]
    fn author_without_right_receives_missing_rule() {
        let message = lacks("ina", &account());
        let rule = r#"{"apiGroups":[""],"resourceNames":["oz-composites"],"resources":["serviceaccounts"],"verbs":["impersonate"]}"#;
        assert!(message.contains(rule), "{message}");
        assert!(message.contains("in namespace oz-system"), "{message}");
    }

    #[test]
    fn composite_change_counts_only_if_functions_receive_it() {
        type Change = fn(&mut CompositeController);
        let cases: [(&str, Change, bool); 6] = [
            ("nothing", |_| {}, false),
            ("spec", |it| it.spec.generate_selector = Some(true), true),
            (
                "label",
                |it| it.metadata.labels = Some([("a".into(), "b".into())].into()),
                true,
            ),
            (
                "annotation",
                |it| it.metadata.annotations = Some([("a".into(), "b".into())].into()),
                true,
            ),
            (
                "finalizer",
                |it| it.metadata.finalizers = Some(vec!["a/b".into()]),
                false,
            ),
            ("status", |it| it.status = Some(Default::default()), false),
        ];
        for (name, change, expected) in cases {
            let mut new = composite();
            change(&mut new);
            assert_eq!(changes(&composite(), &new), expected, "{name}");
        }
    }
}
