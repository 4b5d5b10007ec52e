//! The operator's signature on the Job of a run, by which the broker believes that the Job is the run's: a user who may
//! create Jobs can name any run as the owner of one. The broker has the public keys alone, and so signs none.

use crate::audit::{AuditKey, KeyError, RequestRef, Trust};
use crate::lifecycle::seal::Keys;

/// The purpose of the signatures.
const PURPOSE: &str = "oz-run-voucher/v1\n";
/// The purpose for which the signing keys are derived.
const DERIVED_FOR: &str = "oz.wizardofoz.co/run-voucher/v1";
/// The key of the Secret with the public keys, one a line, in base64.
pub const PUBLIC_KEYS: &str = "public-keys";

/// Signs that a Job of the run's name, in its namespace, is the run's.
#[must_use]
pub fn sign(keys: &Keys, run: &RequestRef) -> String {
    let signing = keys.derived(DERIVED_FOR);
    let key = signing.first().map(AuditKey::new);
    key.map(|key| key.sign(PURPOSE, statement(run).as_bytes()))
        .unwrap_or_default()
}

/// Returns the public keys of all valid vouchers, as they are published.
#[must_use]
pub fn published(keys: &Keys) -> String {
    let all = keys.derived(DERIVED_FOR);
    let all = all.iter().map(|secret| AuditKey::new(secret).public());
    all.collect::<Vec<_>>().join("\n")
}

/// Reads published keys.
///
/// # Errors
/// When one of them is not a key.
pub fn trust(published: &str) -> Result<Trust, KeyError> {
    Trust::pinned(published.lines())
}

/// Checks the voucher of the Job of a run.
///
/// # Errors
/// Why it proves nothing.
pub fn check(trust: &Trust, run: &RequestRef, voucher: &str) -> Result<(), KeyError> {
    trust.check(PURPOSE, statement(run).as_bytes(), voucher)
}

/// Returns the signed text: names and UIDs contain no line feed.
fn statement(run: &RequestRef) -> String {
    [&run.namespace, &run.name, &run.uid]
        .map(String::as_str)
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(namespace: &str, name: &str, uid: &str) -> RequestRef {
        RequestRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..RequestRef::default()
        }
    }

    fn keys(seeds: &[u8]) -> Keys {
        Keys::new(seeds.iter().map(|seed| vec![*seed; 32]).collect()).unwrap()
    }

    #[test]
    fn voucher_is_good_for_one_run_alone() {
        let keys = keys(&[1]);
        let trust = trust(&published(&keys)).unwrap();
        let hello = run("team", "hello", "u-1");
        let voucher = sign(&keys, &hello);
        assert_eq!(check(&trust, &hello, &voucher), Ok(()));
        for other in [
            run("other", "hello", "u-1"),
            run("team", "hell", "u-1"),
            run("team", "hello", "u-2"),
            run("team", "hello\nu-1", ""),
        ] {
            assert!(check(&trust, &other, &voucher).is_err(), "{other:?}");
        }
        for text in ["", "x", ":", &voucher[1..]] {
            assert!(check(&trust, &hello, text).is_err(), "{text}");
        }
    }

    #[test]
    fn voucher_is_good_as_long_as_its_key_opens_and_no_public_key_tells_a_secret() {
        let (old, both, new) = (keys(&[1]), keys(&[2, 1]), keys(&[2]));
        let hello = run("team", "hello", "u-1");
        let voucher = sign(&old, &hello);
        let is_good = |keys: &Keys, voucher: &str| {
            let trust = trust(&published(keys)).unwrap();
            check(&trust, &hello, voucher).is_ok()
        };
        assert!(is_good(&both, &voucher) && !is_good(&new, &voucher));
        assert!(is_good(&both, &sign(&new, &hello)));
        // What is derived for another purpose signs none.
        let other = AuditKey::new(&old.derived("another")[0]);
        let forged = other.sign(PURPOSE, statement(&hello).as_bytes());
        assert!(!is_good(&old, &forged));
        assert!(trust("no key").is_err());
    }
}
