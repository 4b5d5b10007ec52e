//! Questions of DNS.

use anyhow::{Result, ensure};
use oz_egress::dns::{Families, answer};
use oz_egress::grants::Granted;

use crate::random::Xorshift;

/// The number of bytes of the header of a message.
const HEADER: usize = 12;

const NAMES: [&[u8]; 6] = [
    b"\x03api\x09anthropic\x03com\x00",
    b"\x03API\x09Anthropic\x03com\x00",
    b"\x11api.anthropic.com\x00",
    b"\x04evil\x03org\x00",
    b"\x03\x00\xff.\x03org\x00",
    // A name that points to itself.
    b"\xc0\x0c",
];

/// Returns a question that may be changed.
pub(crate) fn generate(random: &mut Xorshift) -> Vec<u8> {
    let flags = *random.one(&[1_u8, 0, 0x81, 0x29, 0x11]).unwrap_or(&1);
    let questions = *random.one(&[1_u8, 1, 1, 0, 2]).unwrap_or(&1);
    let has_edns = random.below(2);
    let mut bytes = vec![7, 9, flags, 0, 0, questions, 0, 0, 0, 0, 0, has_edns as u8];
    for _ in 0..questions {
        bytes.extend(random.one(&NAMES).copied().unwrap_or_default());
        let kind = *random.one(&[1_u8, 1, 28, 65, 16, 255, 41]).unwrap_or(&1);
        let class = *random.one(&[1_u8, 1, 1, 3, 255]).unwrap_or(&1);
        bytes.extend([0, kind, 0, class]);
    }
    if has_edns == 1 {
        let version = *random.one(&[0_u8, 0, 1]).unwrap_or(&0);
        bytes.extend([0, 0, 41, 16, 0, 0, version, 0, 0, 0, 0]);
    }
    if random.below(2) == 0 {
        super::mutate(random, &mut bytes, &NAMES);
    }
    bytes
}

/// Checks one question. Returns whether its name exists.
pub(crate) fn check(granted: &Granted, bytes: &[u8]) -> Result<bool> {
    let families = Families { v4: true, v6: true };
    let Some(answer) = answer(granted, families, bytes) else {
        ensure!(
            bytes.len() < HEADER || bytes[2] & 0x80 > 0,
            "a question has no answer"
        );
        return Ok(false);
    };
    let message = &answer.bytes;
    ensure!(
        (HEADER..=512).contains(&message.len()) && answer.name.len() <= 255,
        "an answer of {} bytes, for {:?}",
        message.len(),
        answer.name
    );
    ensure!(
        message[..2] == bytes[..2] && message[2] & 0x80 > 0,
        "the answer is not one to this question"
    );
    let has_address = message[7] > 0;
    ensure!(
        !has_address || answer.name == "api.anthropic.com",
        "{:?} has an address",
        answer.name
    );
    Ok(has_address)
}
