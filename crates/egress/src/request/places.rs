//! The places of a request in which credentials are sent, and the search for placeholders outside their place.

use std::ops::Range;

use http::header::{self, HeaderName};
use http::request::Parts;
use oz_api::harness::wire::CredentialPlace;
use percent_encoding::percent_decode_str;

use crate::grants::Credential;
use crate::placeholder;

/// The headers in which credentials are sent, in addition to those that policies name.
const HEADERS: [HeaderName; 7] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("private-token"),
];
/// The parameters of a query in which credentials are sent, in addition to those that policies name.
const PARAMETERS: [&str; 4] = ["key", "api_key", "access_token", "token"];

/// The maximum number of bytes of a header's name in a message.
const MAX_NAME: usize = 64;

/// Returns the place of a credential in words.
pub(super) fn described(place: &CredentialPlace) -> String {
    match place {
        CredentialPlace::Header { name, prefix } if prefix.is_empty() => {
            format!("the header {name}")
        }
        CredentialPlace::Header { name, prefix } => {
            format!("the header {name}, after {prefix:?}")
        }
        CredentialPlace::Query { name } => format!("the query parameter {name}"),
        CredentialPlace::Basic { .. } => {
            "the header Authorization, as the password of Basic".to_owned()
        }
        CredentialPlace::Anthropic => "the header x-api-key".to_owned(),
    }
}

/// Checks whether a request has the placeholder of a credential in its place: exactly there, and the place once.
pub(super) fn carries(credential: &Credential, head: &Parts) -> bool {
    let placeholder = credential.injected.placeholder.as_str();
    match (&credential.injected.place, &credential.header) {
        (CredentialPlace::Query { name }, _) => parameter(head, name)
            .is_some_and(|value| once_decoded(&query(head)[value]) == placeholder.as_bytes()),
        (CredentialPlace::Basic { .. }, _) => {
            basic(head).is_some_and(|(_, password)| password == placeholder.as_bytes())
        }
        (CredentialPlace::Header { prefix, .. }, Some(header)) => {
            let after_prefix = only(head, header).and_then(|value| after(value, prefix));
            after_prefix == Some(placeholder.as_bytes())
        }
        (CredentialPlace::Anthropic, Some(header)) => {
            only(head, header) == Some(placeholder.as_bytes())
        }
        (CredentialPlace::Header { .. } | CredentialPlace::Anthropic, None) => false,
    }
}

/// Returns the text after a prefix. The names of schemes, such as `Bearer`, have no case: RFC 9110, section 11.1.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-11.1>.
fn after<'a>(value: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (begin, rest) = value.split_at_checked(prefix.len())?;
    begin
        .eq_ignore_ascii_case(prefix.as_bytes())
        .then_some(rest)
}

/// Returns the value of a header that the request has once.
fn only<'a>(head: &'a Parts, header: &HeaderName) -> Option<&'a [u8]> {
    let mut values = head.headers.get_all(header).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// Returns user and password of `Authorization: Basic`.
/// See <https://www.rfc-editor.org/rfc/rfc7617#section-2>.
fn basic(head: &Parts) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = only(head, &header::AUTHORIZATION)?;
    let decoded = placeholder::base64_decoded(after(value, "Basic ")?.trim_ascii())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

fn query(head: &Parts) -> &str {
    head.uri.query().unwrap_or_default()
}

/// Returns the range of the value of a parameter in the query, if the query has the parameter once. Of the ways in
/// which servers separate and compare parameters, all are considered.
pub(super) fn parameter(head: &Parts, name: &str) -> Option<Range<usize>> {
    let query = query(head);
    let is_named = |pair: &&str| is_parameter(pair, name);
    if query.split(['&', ';']).filter(is_named).count() != 1 {
        return None;
    }
    let mut begin = 0;
    for pair in query.split('&') {
        if let Some((key, value)) = pair.split_once('=')
            && once_decoded(key) == name.as_bytes()
        {
            let begin = begin + key.len() + 1;
            return Some(begin..begin + value.len());
        }
        begin += pair.len() + 1;
    }
    None
}

/// Checks whether a server may understand a pair as this parameter.
fn is_parameter(pair: &str, name: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    let key = placeholder::decoded(key.replace('+', " ").as_bytes());
    key.trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}

fn once_decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('+', " ")).collect()
}

/// Returns the user information of the target; empty if it has none.
pub(super) fn user_information(head: &Parts) -> &str {
    let authority = head
        .uri
        .authority()
        .map_or("", |authority| authority.as_str());
    let before = authority.rsplit_once('@').map(|(before, _)| before);
    before.unwrap_or_default()
}

/// Returns the first placeholder in the request line or a header outside the place of `carried`, and where it is.
pub(super) fn stray(head: &Parts, carried: Option<&Credential>) -> Option<(String, String)> {
    let of_line = |text: &[u8], place: &str| Some((placeholder::find(text)?, place.to_owned()));
    of_line(head.method.as_str().as_bytes(), "the method")
        .or_else(|| of_line(user_information(head).as_bytes(), "the user information"))
        .or_else(|| of_line(host(head).as_bytes(), "the host"))
        .or_else(|| of_line(head.uri.path().as_bytes(), "the path"))
        .or_else(|| of_line(query_without(head, carried).as_bytes(), "the query"))
        .or_else(|| stray_in_headers(head, carried))
}

fn host(head: &Parts) -> &str {
    head.uri.host().unwrap_or_default()
}

fn query_without(head: &Parts, carried: Option<&Credential>) -> String {
    let mut text = query(head).to_owned();
    if let Some(CredentialPlace::Query { name }) = carried.map(|one| &one.injected.place)
        && let Some(value) = parameter(head, name)
    {
        text.replace_range(value, "");
    }
    text
}

fn stray_in_headers(head: &Parts, carried: Option<&Credential>) -> Option<(String, String)> {
    let place = carried.and_then(|one| one.header.as_ref());
    for (name, value) in &head.headers {
        if let Some(found) = placeholder::find(name.as_str().as_bytes()) {
            return Some((found, "the name of a header".to_owned()));
        }
        // In its place, the value of the header is the placeholder, with a prefix or a user.
        if place == Some(name) {
            continue;
        }
        if let Some(found) = placeholder::find_in_header(value.as_bytes()) {
            return Some((found, describe_header(name)));
        }
    }
    let is_basic =
        carried.is_some_and(|one| matches!(one.injected.place, CredentialPlace::Basic { .. }));
    let (user, _) = basic(head).filter(|_| is_basic)?;
    let found = placeholder::find(&user)?;
    Some((found, "the user of Basic".to_owned()))
}

/// Returns a header in words. The agent chose its name, of any length.
fn describe_header(header: &HeaderName) -> String {
    let name = header.as_str();
    format!("the header {}", name.get(..MAX_NAME).unwrap_or(name))
}

/// Returns the first place in which the request has a value, although a credential of this host is sent elsewhere or
/// nowhere; `None` if there is none.
///
/// With an injected credential, cookies are removed (F-21), and are no reason to refuse a request: clients return the
/// cookies that the host set before.
pub(super) fn foreign(
    head: &Parts,
    credentials: &[&Credential],
    carried: Option<&Credential>,
) -> Option<String> {
    let of_policies = credentials.iter().filter_map(|one| one.header.as_ref());
    for name in HEADERS.iter().chain(of_policies) {
        let is_carried = carried.is_some_and(|one| one.header.as_ref() == Some(name));
        let is_removed = *name == header::COOKIE && carried.is_some();
        let mut values = head.headers.get_all(name).iter();
        let has_value = values.any(|value| !value.as_bytes().trim_ascii().is_empty());
        if has_value && !is_carried && !is_removed {
            return Some(describe_header(name));
        }
    }
    if !user_information(head).is_empty() {
        return Some("the user information of the URL".to_owned());
    }
    let parameter_of = |one: &&Credential| match &one.injected.place {
        CredentialPlace::Query { name } => Some(name.clone()),
        _ => None,
    };
    // The request has the parameter of the credential once, in any case: see `parameter`.
    let carried = carried.as_ref().and_then(parameter_of);
    let is_carried = |name: &str| {
        let carried = carried.as_ref();
        carried.is_some_and(|carried| carried.eq_ignore_ascii_case(name))
    };
    let of_policies = credentials.iter().filter_map(parameter_of);
    let names = PARAMETERS.into_iter().map(ToOwned::to_owned);
    names
        .chain(of_policies)
        .filter(|name| !is_carried(name))
        .find(|name| has_parameter(head, name))
        .map(|name| format!("the query parameter {name}"))
}

/// Checks whether the query has a parameter with a value.
fn has_parameter(head: &Parts, name: &str) -> bool {
    query(head).split(['&', ';']).any(|pair| {
        let has_value = pair
            .split_once('=')
            .is_some_and(|(_, value)| !value.is_empty());
        has_value && is_parameter(pair, name)
    })
}
