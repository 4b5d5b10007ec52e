//! The parsing of grants.

use oz_api::harness::HostError;
use oz_api::harness::wire::{CredentialPlace, RunGrants};
use oz_egress::grants::{GrantError, Granted};

use crate::world::{basic, credential, grant, granted, header, placeholder, query, run_grants};

#[test]
fn host_is_granted_on_its_ports_only() {
    let granted = granted();
    for (host, port, allows) in [
        ("api.anthropic.com", 443, true),
        ("API.Anthropic.com.", 443, true),
        ("api.anthropic.com", 80, false),
        ("a.example.com", 80, true),
        ("a.b.example.com", 443, true),
        ("example.com", 443, false),
        ("a.example.com", 8443, false),
        ("free.example.com", 8443, true),
        ("api.anthropic.com.evil.org", 443, false),
        ("", 443, false),
    ] {
        assert_eq!(granted.allows(host, port), allows, "{host}:{port}");
    }
    assert!(granted.has_name("api.anthropic.com"));
    assert!(!granted.has_name("example.com"));
    assert_eq!(granted.digest(), "digest");
    assert_eq!(granted.credential("BASIC").unwrap().name, "BASIC");
    assert_eq!(granted.credential("OTHER"), None);
    let default = Granted::default();
    assert!(!default.allows("api.anthropic.com", 443) && !default.has_name("a.example.com"));
}

#[test]
fn port_0_grants_any_port() {
    let grants = RunGrants {
        hosts: vec![grant("a.example.com", &[0])],
        ..RunGrants::default()
    };
    assert!(Granted::parse(&grants).unwrap().allows("a.example.com", 9));
}

#[test]
fn grants_that_cannot_be_read_name_the_cause() {
    let hosts = RunGrants {
        hosts: vec![grant("a.example.com", &[]), grant("10.0.0.1", &[])],
        ..RunGrants::default()
    };
    let error = Granted::parse(&hosts).unwrap_err();
    let host = "10.0.0.1".to_owned();
    let why = HostError::Address;
    assert_eq!(error, GrantError::Host { host, why });

    let parse = |hosts: &[&str], text: &str, place: CredentialPlace| {
        let mut injected = credential("KEY", 'a', hosts, place);
        injected.placeholder = text.to_owned();
        let grants = RunGrants {
            credentials: vec![injected],
            ..RunGrants::default()
        };
        Granted::parse(&grants)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let good = placeholder('a');
    let host = ["a.example.com"];
    for text in [
        "",
        "pdk-",
        "pdk-zz",
        &good.to_uppercase(),
        &format!("{good}0"),
    ] {
        let error = parse(&host, text, CredentialPlace::Anthropic).unwrap_err();
        assert!(error.contains("KEY") && error.contains("form"), "{error}");
    }
    let error = parse(&["*"], &good, CredentialPlace::Anthropic).unwrap_err();
    assert!(error.contains("KEY") && error.contains("\"*\""), "{error}");
    for place in [
        header("", ""),
        header("a b", ""),
        header("Host", ""),
        header("Content-Length", ""),
        header("transfer-encoding", ""),
        header("Connection", ""),
        header("Authorization", "Bearer\r\nX: "),
        query(""),
        basic("user:name"),
    ] {
        let error = parse(&host, &good, place.clone()).unwrap_err();
        assert!(error.contains("KEY"), "{place:?}: {error}");
    }
    assert_eq!(parse(&host, &good, header("cookie", "session=")), Ok(()));
}

#[test]
fn first_of_two_credentials_of_a_name_counts() {
    let mut grants = run_grants();
    let other = credential("BEARER", 'f', &["a.example.com"], header("X-Other", ""));
    grants.credentials.push(other);
    let granted = Granted::parse(&grants).unwrap();
    let place = &granted.credential("BEARER").unwrap().place;
    assert_eq!(*place, header("Authorization", "Bearer "));
}
