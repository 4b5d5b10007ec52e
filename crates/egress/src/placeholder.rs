//! The search for placeholders in text that an agent wrote.
//!
//! The search is for the form, not for the placeholders of the granted credentials: a placeholder of a credential that
//! is no longer granted is found as well.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use oz_api::harness::interception::{PLACEHOLDER_DIGITS, PLACEHOLDER_PREFIX};

/// The length of a placeholder in bytes.
const LENGTH: usize = PLACEHOLDER_PREFIX.len() + PLACEHOLDER_DIGITS;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Checks whether a text is a placeholder in its exact form, in lower case.
pub(crate) fn is_placeholder(text: &str) -> bool {
    text.len() == LENGTH
        && is_at(text.as_bytes())
        && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Returns the first placeholder in a text, in lower case, in whichever case the text has it, and however often it is
/// percent-encoded.
pub(crate) fn find(text: &[u8]) -> Option<String> {
    if text.contains(&b'%') {
        find_literal(&decoded(text))
    } else {
        find_literal(text)
    }
}

/// Returns the first placeholder in the value of a header, see [`find`], also within `Basic` credentials.
pub(crate) fn find_in_header(value: &[u8]) -> Option<String> {
    find(value).or_else(|| basics(value).find_map(|inside| find(&inside)))
}

/// Returns the decoded user and password after each word `Basic`.
/// See <https://www.rfc-editor.org/rfc/rfc7617#section-2>.
fn basics(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    let words = words.filter(|word| !word.is_empty());
    let mut is_after = false;
    words.filter_map(move |word| {
        let is_credential = std::mem::replace(&mut is_after, word.eq_ignore_ascii_case(b"basic"));
        is_credential.then(|| base64_decoded(word)).flatten()
    })
}

/// Decodes base64 in either alphabet, with padding or without.
pub(crate) fn base64_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let standard = STANDARD.decode(text);
    standard.or_else(|_| URL_SAFE.decode(text)).ok()
}

/// Decodes percent-encoding until nothing is encoded, in one pass: each byte that is complete may complete the
/// encoding of another. The order of decoding does not matter, since two encodings never overlap.
pub(crate) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    for &byte in text {
        bytes.push(byte);
        while let [.., b'%', high, low] = bytes[..] {
            let Some(byte) = hex(high).zip(hex(low)).map(|(high, low)| high << 4 | low) else {
                break;
            };
            bytes.truncate(bytes.len() - 3);
            bytes.push(byte);
        }
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn find_literal(text: &[u8]) -> Option<String> {
    let found = text.windows(LENGTH).find(|window| is_at(window))?;
    Some(String::from_utf8_lossy(found).to_ascii_lowercase())
}

/// Checks whether a placeholder begins here, in any case.
fn is_at(text: &[u8]) -> bool {
    let Some((prefix, digits)) = text.split_at_checked(PLACEHOLDER_PREFIX.len()) else {
        return false;
    };
    prefix.eq_ignore_ascii_case(PLACEHOLDER_PREFIX.as_bytes())
        && digits
            .get(..PLACEHOLDER_DIGITS)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: &str = "pdk-0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn placeholder_is_found_in_any_case_and_encoding() {
        let all: String = ONE.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let twice = all.replace('%', "%25");
        let mixed = ONE.replace("dk", "%64%6b").to_uppercase();
        for text in [
            ONE,
            &ONE.to_uppercase(),
            &all,
            &twice,
            &mixed,
            &format!("pdk-{ONE}0"),
        ] {
            assert_eq!(find(text.as_bytes()).as_deref(), Some(ONE), "{text}");
            assert_eq!(
                find_in_header(text.as_bytes()).as_deref(),
                Some(ONE),
                "{text}"
            );
        }
        for text in [
            "",
            "pdk-",
            &ONE[..51],
            &ONE.replace('-', "_"),
            "%",
            "%7",
            "%zz",
        ] {
            assert_eq!(find(text.as_bytes()), None, "{text}");
        }
        assert!(is_placeholder(ONE) && !is_placeholder(&ONE.to_uppercase()));
    }

    #[test]
    fn placeholder_is_found_in_basic_credentials() {
        for encoded in [
            STANDARD.encode(format!("user:{ONE}")),
            URL_SAFE.encode(format!("\u{ff}\u{fe}:{ONE}")),
            STANDARD.encode(format!("{ONE}:")).replace('=', ""),
            STANDARD.encode(format!("user:{}", ONE.replace('-', "%2d"))),
        ] {
            for value in [
                format!("Basic {encoded}"),
                format!("x, BASIC  {encoded}, y"),
            ] {
                assert_eq!(
                    find_in_header(value.as_bytes()).as_deref(),
                    Some(ONE),
                    "{value}"
                );
            }
        }
        assert_eq!(find_in_header(b"Basic"), None);
        assert_eq!(find_in_header(b"Basic !"), None);
    }

    #[test]
    fn decoding_takes_time_that_grows_with_the_text_only() {
        let text = format!("{}41", "%25".repeat(100_000));
        assert_eq!(
            decoded(text.as_bytes()),
            b"%".repeat(99_999)
                .into_iter()
                .chain(*b"A")
                .collect::<Vec<_>>()
        );
    }

    proptest! {
        #[test]
        fn decoding_leaves_nothing_encoded(text in "[%2-6a-f5]{0,40}") {
            let once = |text: &[u8]| -> Vec<u8> { percent_encoding::percent_decode(text).collect() };
            let mut expected = text.clone().into_bytes();
            while once(&expected) != expected {
                expected = once(&expected);
            }
            prop_assert_eq!(decoded(text.as_bytes()), expected);
        }
    }
}
