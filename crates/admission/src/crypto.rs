//! The cryptography provider, selected by the features: aws-lc-rs, or ring if that is the only one.

#[cfg(feature = "aws-lc-rs")]
pub(crate) use rustls::crypto::aws_lc_rs as provider;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) use rustls::crypto::ring as provider;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::hmac;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring::hmac;
use subtle::ConstantTimeEq;

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!(
    "oz-admission needs one of the features `aws-lc-rs` (on by default) and `ring` for its cryptography"
);

/// Computes HMAC-SHA-256 over `message` with its purpose as a prefix.
pub(crate) fn hmac_sha256(key: &[u8], purpose: &str, message: &[u8]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(purpose.as_bytes());
    context.update(b"\0");
    context.update(message);
    let mut digest = [0; 32];
    // Both have the length of a SHA-256 digest.
    digest.copy_from_slice(context.sign().as_ref());
    digest
}

/// Compares two values in a time that does not reveal the position of a difference.
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// Encodes bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_earlier_versions_and_of_other_providers_compute_the_same() {
        // printf 'what\0message' | openssl dgst -sha256 -hmac key
        let digest = hmac_sha256(b"key", "what", b"message");
        assert_eq!(
            hex(&digest),
            "8ef622027fcb326dfb4770e874a90e22ffbfc6739cbd31fd15a7a908ea74f841"
        );
        assert!(equal(&digest, &hmac_sha256(b"key", "what", b"message")));
        assert!(!equal(&digest, &hmac_sha256(b"key", "what", b"messages")));
        assert!(!equal(&digest, &digest[..31]));
    }
}
