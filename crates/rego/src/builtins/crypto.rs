//! `crypto.*`: digests and their keyed forms.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use regorus::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::operand::{Answer, text};

/// Implements `crypto.md5`.
pub(super) fn md5(values: &[Value]) -> Answer {
    digest::<Md5>(values)
}

/// Implements `crypto.sha1`.
pub(super) fn sha1(values: &[Value]) -> Answer {
    digest::<Sha1>(values)
}

/// Implements `crypto.sha256`.
pub(super) fn sha256(values: &[Value]) -> Answer {
    digest::<Sha256>(values)
}

fn digest<D: Digest>(values: &[Value]) -> Answer {
    Ok(Value::from(hex(&D::digest(text(values, 0)?))))
}

/// Implements `crypto.hmac.md5`.
pub(super) fn hmac_md5(values: &[Value]) -> Answer {
    keyed::<Hmac<Md5>>(values)
}

/// Implements `crypto.hmac.sha1`.
pub(super) fn hmac_sha1(values: &[Value]) -> Answer {
    keyed::<Hmac<Sha1>>(values)
}

/// Implements `crypto.hmac.sha256`.
pub(super) fn hmac_sha256(values: &[Value]) -> Answer {
    keyed::<Hmac<Sha256>>(values)
}

/// Implements `crypto.hmac.sha512`.
pub(super) fn hmac_sha512(values: &[Value]) -> Answer {
    keyed::<Hmac<Sha512>>(values)
}

fn keyed<M: Mac + KeyInit>(values: &[Value]) -> Answer {
    let (message, key) = (text(values, 0)?, text(values, 1)?);
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key.as_bytes()) else {
        return super::operand::failed("the key is not usable");
    };
    mac.update(message.as_bytes());
    Ok(Value::from(hex(&mac.finalize().into_bytes())))
}

/// Implements `crypto.hmac.equal`, in a time that does not depend on the texts.
pub(super) fn hmac_equal(values: &[Value]) -> Answer {
    let (a, b) = (text(values, 0)?.as_bytes(), text(values, 1)?.as_bytes());
    let different = a
        .iter()
        .zip(b)
        .fold(0, |different, (a, b)| different | (a ^ b));
    Ok(Value::from(a.len() == b.len() && different == 0))
}

/// Returns the digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
