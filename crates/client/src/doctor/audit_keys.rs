//! The check that public keys exist for the signatures of the audit trail.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use oz_api::names::{AUDIT_KEY, AUDIT_PUBLIC_KEYS};

use super::finding::{Check, Finding, Object};
use super::site::logs;
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::printable;
use crate::trail::{self, Keys};

const CHECK: Check = Check::AuditKeys;

pub(super) async fn audit_keys(cluster: &Cluster, oz: &str) -> Result<Finding> {
    let keys = trail::keys(cluster, oz).await?;
    // Only its metadata is read, since the key is secret.
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), oz);
    let secret = cluster.answer(secrets.get_metadata(AUDIT_KEY)).await;
    let gone = secret.is_err_and(|failure| failure.is_not_found());
    Ok(judge(oz, &keys, gone))
}

/// Judges the keys. `gone` means that the Secret does not exist.
fn judge(oz: &str, keys: &Keys, gone: bool) -> Finding {
    let again = format!(
        "the operator creates it again within seconds: check that it runs: {}",
        logs(oz, "operator")
    );
    if gone {
        let secret = Object::in_namespace("Secret", oz, AUDIT_KEY);
        let wrong = CHECK.wrong(format!("there is no {secret}"), again);
        return wrong.about(secret);
    }
    if keys.published.is_empty() {
        let map = Object::in_namespace("ConfigMap", oz, AUDIT_PUBLIC_KEYS);
        let wrong = CHECK.wrong(format!("no public key is published in {map}"), again);
        return wrong.about(map);
    }
    if keys.lost.is_empty() {
        let count = keys.published.len();
        let text = format!("{count} published, and every writer signs with one of them");
        return CHECK.good(text);
    }
    let lost = keys.lost.iter().map(|(writer, key)| {
        let (writer, key) = (printable::line(writer), printable::line(key));
        format!("{writer} last signed with key {key}")
    });
    let lost: Vec<String> = lost.collect();
    CHECK.wrong(
        format!("{}, which is not published", lost.join(", ")),
        "a running writer loads the published key within a minute; to verify signatures of a lost \
         key, use the kept copy of its public key: ozctl audit verify --key FILE",
    )
}

#[cfg(test)]
mod tests {
    use oz_trail::AuditKey;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_audit_key_is_reported_before_mismatch() {
        let key = AuditKey::new(&[1; 32]).published(None);
        let mut keys = Keys::default();
        let wrong = |keys: &Keys, gone: bool| {
            let finding = judge("oz-system", keys, gone);
            assert!(finding.is_wrong(), "{finding:?}");
            finding.message
        };
        assert!(wrong(&keys, true).contains("no Secret oz-system/oz-audit-key"));
        assert!(wrong(&keys, false).contains("no public key is published"));
        keys.published.push(key);
        let good = judge("oz-system", &keys, false).verdict;
        assert_eq!(good, Verdict::Good);
        keys.lost
            .push(("oz-webhook.0".to_owned(), "abc".to_owned()));
        assert!(wrong(&keys, false).contains("oz-webhook.0 last signed with key abc"));
    }
}
