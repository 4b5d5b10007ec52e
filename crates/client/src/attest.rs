//! Attestations: records a user's decision about each line of the list of users who could get access.

use jiff::Timestamp;
use jiff::tz::Offset;
use kube::Api;
use kube::api::PostParams;
use oz_api::{AccessReview, AccessReviewSpec, Attestation};

use crate::cluster::Cluster;
use crate::failure::Result;

/// The number of digits of a digest in a name.
const DIGITS: usize = 8;

/// Records an attestation in the namespace of oz.
///
/// # Errors
/// The user has no permission, or the webhook rejects the attestation.
pub async fn attest(
    cluster: &Cluster,
    oz: &str,
    attestation: Attestation,
    now: Timestamp,
) -> Result<AccessReview> {
    let name = name_of(&attestation, now);
    let spec = AccessReviewSpec {
        attestation: Some(attestation),
        ..AccessReviewSpec::default()
    };
    let object = AccessReview::new(&name, spec);
    let api: Api<AccessReview> = Api::namespaced(cluster.client.clone(), oz);
    let parameters = PostParams::default();
    cluster.answer(api.create(&parameters, &object)).await
}

/// Returns `attestation-20260102t150405z-0123abcd`: the time, and the digest of the file.
fn name_of(attestation: &Attestation, now: Timestamp) -> String {
    let at = Offset::UTC.to_datetime(now).strftime("%Y%m%dt%H%M%Sz");
    let digits = attestation.file.strip_prefix("sha256:").into_iter();
    let digits = digits.flat_map(|digest| digest.chars().take(DIGITS));
    format!("attestation-{at}-{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_when_and_of_which_file() {
        let attestation = Attestation {
            file: "sha256:0123abcd4567".to_owned(),
            ..Attestation::default()
        };
        let now = "2026-01-02T15:04:05.678Z".parse().unwrap();
        assert_eq!(
            name_of(&attestation, now),
            "attestation-20260102t150405z-0123abcd"
        );
    }
}
