//! Names of hosts as the network has them. Handshakes, requests and DNS share one reader, so that no two of them
//! understand a name differently.

use std::net::IpAddr;

/// The maximum length of a name in bytes, without the dot at its end.
const MAX_NAME: usize = 253;
/// The maximum length of a label in bytes.
/// See <https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4>.
const MAX_LABEL: usize = 63;

/// The reason why bytes are no name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    /// The bytes are empty, too long, or contain other bytes than letters, digits, `-`, `_` and dots between labels.
    Malformed,
    /// The bytes are an IP address, in any form that resolvers accept.
    Address,
}

/// Reads the name of a host: in lower case, without the dot at its end.
pub(crate) fn read(bytes: &[u8]) -> Result<String, NameError> {
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    if bytes.is_empty() || bytes.len() > MAX_NAME {
        return Err(NameError::Malformed);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| NameError::Malformed)?;
    let literal = text.trim_start_matches('[').trim_end_matches(']');
    if literal.parse::<IpAddr>().is_ok() {
        return Err(NameError::Address);
    }
    if !text.split('.').all(is_label) {
        return Err(NameError::Malformed);
    }
    if is_numeric(text) {
        return Err(NameError::Address);
    }
    Ok(text.to_ascii_lowercase())
}

fn is_label(label: &str) -> bool {
    let of_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(of_label)
}

/// Checks whether resolvers read a name as an address: its last label is a decimal or hexadecimal number.
/// See <https://url.spec.whatwg.org/#ends-in-a-number-checker>.
fn is_numeric(text: &str) -> bool {
    let last = text.rsplit_once('.').map_or(text, |(_, last)| last);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_hex = hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_read_in_lower_case_without_final_dot() {
        let label = "a".repeat(MAX_LABEL);
        let longest = [label.as_str(); 4].join(".")[..MAX_NAME].to_owned();
        for (text, name) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.COM", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("my_host.example.com", "my_host.example.com"),
            ("localhost", "localhost"),
            ("0x.example", "0x.example"),
            (&longest, &longest),
        ] {
            assert_eq!(read(text.as_bytes()).as_deref(), Ok(name), "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_name_are_refused() {
        let long_label = format!("{}.example", "a".repeat(MAX_LABEL + 1));
        let long = "a.".repeat(127) + "a";
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".example.com",
            "example.com..",
            "a b",
            "a\0.example.com",
            "a\r\nb",
            "*.example.com",
            "user@example.com",
            "example.com:443",
            "example.com/x",
            "example%2ecom",
            "b\u{fc}cher.example",
            &long_label,
            &long,
        ] {
            assert_eq!(read(text.as_bytes()), Err(NameError::Malformed), "{text:?}");
        }
        assert_eq!(read(b"\xff.example"), Err(NameError::Malformed));
        for text in [
            "10.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0X7F.1",
            "example.1",
            "::1",
            "[::1]",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(read(text.as_bytes()), Err(NameError::Address), "{text:?}");
        }
    }
}
