//! The operator's signature on the Job of a run. The broker trusts a Job only with it: a user who may create Jobs can
//! name any run as the owner of one. The broker has only the public keys, and cannot sign.

use oz_core::lifecycle::seal::{self, Keys, Purpose, SealError};
use oz_trail::RequestRef;
use serde::{Deserialize, Serialize};

const PURPOSE: Purpose = Purpose::RunVoucher;

/// The run of the Job.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Voucher {
    namespace: String,
    name: String,
    uid: String,
}

impl From<&RequestRef> for Voucher {
    fn from(run: &RequestRef) -> Self {
        Self {
            namespace: run.namespace.clone(),
            name: run.name.clone(),
            uid: run.uid.clone(),
        }
    }
}

/// Signs that a Job in the namespace and with the name of the run belongs to the run.
///
/// # Errors
/// The private key of the operator is missing.
pub fn sign(keys: &Keys, run: &RequestRef) -> Result<String, SealError> {
    seal::seal(keys, PURPOSE, &Voucher::from(run))
}

/// Checks the voucher of the Job of a run.
///
/// # Errors
/// The reason why the voucher is invalid.
pub fn check(keys: &Keys, run: &RequestRef, voucher: &str) -> Result<(), SealError> {
    let signed: Voucher = seal::open(keys, PURPOSE, voucher)?;
    match signed == Voucher::from(run) {
        true => Ok(()),
        false => Err(SealError::Forged),
    }
}

#[cfg(test)]
mod tests {
    use oz_core::lifecycle::seal::Owner;

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
        let secrets: Vec<_> = seeds.iter().map(|seed| [*seed; Keys::BYTES]).collect();
        Keys::new(Owner::Operator, &secrets).unwrap()
    }

    /// Returns the keys of the broker.
    fn public(seeds: &[u8]) -> Keys {
        let secrets: Vec<_> = seeds.iter().map(|seed| [*seed; Keys::BYTES]).collect();
        let keys = Keys::default();
        keys.trust(Owner::Operator, &Keys::published(&secrets))
            .unwrap();
        keys
    }

    #[test]
    fn voucher_is_good_for_one_run_alone() {
        let (keys, public) = (keys(&[1]), public(&[1]));
        let hello = run("team", "hello", "u-1");
        let voucher = sign(&keys, &hello).unwrap();
        assert_eq!(check(&public, &hello, &voucher), Ok(()));
        for other in [
            run("other", "hello", "u-1"),
            run("team", "hell", "u-1"),
            run("team", "hello", "u-2"),
            run("team", "hello\nu-1", ""),
        ] {
            assert!(check(&public, &other, &voucher).is_err(), "{other:?}");
        }
        for text in ["", "x", ":", &voucher[1..]] {
            assert!(check(&public, &hello, text).is_err(), "{text}");
        }
    }

    #[test]
    fn voucher_is_good_as_long_as_its_key_opens_and_the_broker_signs_none() {
        let (old, new) = (keys(&[1]), keys(&[2]));
        let hello = run("team", "hello", "u-1");
        let voucher = sign(&old, &hello).unwrap();
        let is_good = |keys: &Keys, voucher: &str| check(keys, &hello, voucher).is_ok();
        assert!(is_good(&public(&[2, 1]), &voucher) && !is_good(&public(&[2]), &voucher));
        assert!(is_good(&public(&[2, 1]), &sign(&new, &hello).unwrap()));
        let refused = SealError::NotHeld(Owner::Operator);
        assert_eq!(sign(&public(&[1]), &hello), Err(refused));
    }
}
