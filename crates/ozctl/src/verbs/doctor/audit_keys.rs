//! The check that public keys exist for the signatures of the audit trail.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use oz_api::names::{AUDIT_KEY, AUDIT_PUBLIC_KEYS};

use super::{Finding, logs};
use crate::cluster::Cluster;
use crate::output;
use crate::trail::{self, Keys};

const CHECK: &str = "audit keys";

pub(super) async fn audit_keys(cluster: &Cluster, oz: &str) -> Finding {
    let keys = match trail::keys(cluster, oz).await {
        Ok(keys) => keys,
        Err(failure) => return Finding::unknown(CHECK, failure.message()),
    };
    // Only its metadata is read, since the key is secret.
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), oz);
    let secret = cluster.answer(secrets.get_metadata(AUDIT_KEY)).await;
    judge(
        oz,
        &keys,
        secret.is_err_and(|failure| failure.is_not_found()),
    )
}

/// Judges the keys. `gone` means that the Secret does not exist.
fn judge(oz: &str, keys: &Keys, gone: bool) -> Finding {
    let again = format!(
        "the operator makes it again within seconds: see that it runs: {}",
        logs(oz, "operator")
    );
    if gone {
        return Finding::wrong(CHECK, format!("there is no Secret {oz}/{AUDIT_KEY}"), again);
    }
    if keys.published.is_empty() {
        let text = format!("no public key is published in ConfigMap {oz}/{AUDIT_PUBLIC_KEYS}");
        return Finding::wrong(CHECK, text, again);
    }
    if keys.lost.is_empty() {
        let count = keys.published.len();
        let text = format!("{count} published, and every writer signs with one of them");
        return Finding::good(CHECK, text);
    }
    let lost = keys.lost.iter().map(|(writer, key)| {
        let (writer, key) = (output::line(writer), output::line(key));
        format!("{writer} signed last with key {key}")
    });
    let lost: Vec<String> = lost.collect();
    Finding::wrong(
        CHECK,
        format!("{}, which is not published", lost.join(", ")),
        "a writer that runs takes the published key up within a minute; what a lost key signed is verified with \
         the copy that was kept of its public part: ozctl audit verify --key FILE",
    )
}

#[cfg(test)]
mod tests {
    use oz_trail::AuditKey;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn what_is_missing_is_told_before_what_does_not_fit() {
        let key = AuditKey::new(&[1; 32]).published(None);
        let mut keys = Keys::default();
        let wrong = |keys: &Keys, gone: bool| match judge("oz-system", keys, gone).verdict {
            Verdict::Wrong(text, _) => text,
            verdict => format!("{verdict:?}"),
        };
        assert!(wrong(&keys, true).contains("no Secret oz-system/oz-audit-key"));
        assert!(wrong(&keys, false).contains("no public key is published"));
        keys.published.push(key);
        assert!(matches!(
            judge("oz-system", &keys, false).verdict,
            Verdict::Good(_)
        ));
        keys.lost
            .push(("oz-webhook.0".to_owned(), "abc".to_owned()));
        assert!(wrong(&keys, false).contains("oz-webhook.0 signed last with key abc"));
    }
}
