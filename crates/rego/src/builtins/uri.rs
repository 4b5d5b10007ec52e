//! `uri.*`: references as Go's package `net/url` reads them.
//! See <https://pkg.go.dev/net/url>.

use std::collections::BTreeMap;

use regorus::Value;

use super::operand::{Answer, Failure, text};

/// Implements `uri.is_valid`.
pub(super) fn is_valid(values: &[Value]) -> Answer {
    let valid = text(values, 0).is_ok_and(|text| !text.is_empty() && Uri::parse(text).is_ok());
    Ok(Value::from(valid))
}

/// Implements `uri.parse`.
pub(super) fn parse(values: &[Value]) -> Answer {
    let text = text(values, 0)?;
    let uri = Uri::parse(text)
        .map_err(|error| Failure::Failed(format!("uri.parse: parse {text:?}: {error}")))?;
    let raw_path = if uri.raw_path.is_empty() {
        &uri.path
    } else {
        &uri.raw_path
    };
    let parts = [
        ("scheme", &uri.scheme),
        ("hostname", &uri.hostname),
        ("port", &uri.port),
        ("path", &uri.path),
        ("raw_path", raw_path),
        ("raw_query", &uri.query),
        ("fragment", &uri.fragment),
    ];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    let parts = parts.map(|(name, part)| (Value::from(name), Value::from(part.as_str())));
    Ok(Value::from(parts.collect::<BTreeMap<_, _>>()))
}

/// Returns the scheme and the path of a reference that can be read.
pub(super) fn scheme_and_path(text: &str) -> Option<(String, String)> {
    let uri = Uri::parse(text).ok()?;
    Some((uri.scheme, uri.path))
}

#[derive(Default)]
struct Uri {
    scheme: String,
    host: String,
    hostname: String,
    port: String,
    path: String,
    raw_path: String,
    query: String,
    fragment: String,
}

/// The parts of an address that a signature covers.
pub(super) struct Address {
    /// The name of the host, with its port.
    pub(super) host: String,
    /// The path, escaped.
    pub(super) path: String,
    pub(super) query: String,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let uri = Uri::parse(text)?;
        let path = if uri.raw_path.is_empty() {
            escape(&uri.path)
        } else {
            uri.raw_path
        };
        Ok(Self {
            host: uri.host,
            path,
            query: uri.query,
        })
    }
}

/// The part of a reference that is unescaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Fragment,
    User,
    Host,
    Zone,
}

impl Uri {
    fn parse(text: &str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut uri = Self {
            fragment: unescape(fragment, Part::Fragment)?,
            ..Self::default()
        };
        if rest == "*" {
            rest.clone_into(&mut uri.path);
            return Ok(uri);
        }
        let (scheme, rest) = scheme(rest)?;
        uri.scheme = scheme.to_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut uri.query);
        if !rest.starts_with('/') {
            if !uri.scheme.is_empty() {
                // The rest is opaque, as that of `mailto:`.
                return Ok(uri);
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|first| first.contains(':'))
            {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !uri.scheme.is_empty() || !rest.starts_with("///");
        if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
            let end = after.find('/').unwrap_or(after.len());
            uri.authority(&after[..end])?;
            rest = &after[end..];
        }
        uri.path = unescape(rest, Part::Path)?;
        if escape(&uri.path) != rest {
            rest.clone_into(&mut uri.raw_path);
        }
        Ok(uri)
    }

    fn authority(&mut self, text: &str) -> Result<(), String> {
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let host = parse_host(host)?;
        if let Some(user) = user {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(is_valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, Part::User)?;
        }
        let (name, port) = match host.rfind(':') {
            Some(colon) if is_port(&host[colon..]) => (&host[..colon], &host[colon + 1..]),
            _ => (host.as_str(), ""),
        };
        let inner = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        inner.unwrap_or(name).clone_into(&mut self.hostname);
        port.clone_into(&mut self.port);
        self.host = host;
        Ok(())
    }
}

/// Splits the scheme off.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn parse_host(host: &str) -> Result<String, String> {
    let port_error = |port: &str| Err(format!("invalid port {port:?} after host"));
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        let port = &host[end + 1..];
        if !is_port(port) {
            return port_error(port);
        }
        if let Some(zone) = host[..end].find("%25") {
            let address = unescape(&host[..zone], Part::Host)?;
            let zone = unescape(&host[zone..end], Part::Zone)?;
            return Ok(address + &zone + &unescape(&host[end..], Part::Host)?);
        }
    } else if let Some(colon) = host.rfind(':')
        && !is_port(&host[colon..])
    {
        return port_error(&host[colon..]);
    }
    unescape(host, Part::Host)
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => text.is_empty(),
    }
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let in_host = matches!(part, Part::Host | Part::Zone);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            if in_host && byte < 0x80 && !may_be_in_host(byte) {
                return Err(format!(
                    "invalid character {:?} in host name",
                    char::from(byte)
                ));
            }
            out.push(byte);
            at += 1;
            continue;
        }
        let digits = text.get(at + 1..at + 3);
        let code = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(code) = code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            let shown: String = text.get(at..).unwrap_or("%").chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        };
        let allowed = match part {
            Part::Host => code >= 0x80 || code == b'%',
            Part::Zone => code == b'%' || code == b' ' || may_be_in_host(code),
            _ => true,
        };
        if !allowed {
            return Err(format!("invalid URL escape {:?}", &text[at..at + 3]));
        }
        out.push(code);
        at += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn may_be_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-_.~".contains(&byte)
}

/// Escapes a path as Go does by default.
fn escape(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
