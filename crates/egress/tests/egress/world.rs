//! The grants of a run, handshakes and requests for the tests.

use http::Request;
use http::request::Parts;
use oz_api::harness::wire::{CredentialPlace, HostGrant, InjectedCredential, RunGrants};
use oz_egress::grants::Granted;
use oz_egress::request::{Connection, Pass, Refused, Route, decide, forward, route};

/// The value of every credential.
pub(crate) const VALUE: &str = "sk-real/value+1=";

pub(crate) fn placeholder(digit: char) -> String {
    format!("pdk-{}", digit.to_string().repeat(48))
}

pub(crate) fn credential(
    name: &str,
    digit: char,
    hosts: &[&str],
    place: CredentialPlace,
) -> InjectedCredential {
    InjectedCredential {
        name: name.to_owned(),
        placeholder: placeholder(digit),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        place,
        version: "1".to_owned(),
    }
}

pub(crate) fn header(name: &str, prefix: &str) -> CredentialPlace {
    CredentialPlace::Header {
        name: name.to_owned(),
        prefix: prefix.to_owned(),
    }
}

pub(crate) fn query(name: &str) -> CredentialPlace {
    CredentialPlace::Query {
        name: name.to_owned(),
    }
}

pub(crate) fn basic(username: &str) -> CredentialPlace {
    CredentialPlace::Basic {
        username: username.to_owned(),
    }
}

pub(crate) fn grant(host: &str, ports: &[u16]) -> HostGrant {
    HostGrant {
        host: host.to_owned(),
        ports: ports.to_vec(),
    }
}

/// The grants of a run with a credential of each kind. `free.example.com` has none.
pub(crate) fn run_grants() -> RunGrants {
    RunGrants {
        digest: "digest".to_owned(),
        hosts: vec![
            grant("api.anthropic.com", &[443]),
            grant("*.example.com", &[80, 443]),
            grant("free.example.com", &[]),
            grant("git.example.org", &[443]),
        ],
        credentials: vec![
            credential(
                "ANTHROPIC",
                'a',
                &["api.anthropic.com"],
                CredentialPlace::Anthropic,
            ),
            credential(
                "BEARER",
                'b',
                &["bearer.example.com"],
                header("Authorization", "Bearer "),
            ),
            credential("PLAIN", 'c', &["plain.example.com"], header("X-Token", "")),
            credential("QUERY", 'd', &["query.example.com"], query("api-token")),
            credential("BASIC", 'e', &["git.example.org"], basic("x-access-token")),
            credential("ONE", '1', &["two.example.com"], header("X-Token", "")),
            credential("TWO", '2', &["two.example.com"], header("X-Token", "")),
            credential("THREE", '3', &["two.example.com"], query("secret")),
        ],
        certificates: String::new(),
    }
}

pub(crate) fn granted() -> Granted {
    Granted::parse(&run_grants()).unwrap()
}

/// Returns the head of a request, as hyper would parse it: the request line, then a header in each line.
pub(crate) fn head(text: &str) -> Parts {
    let mut lines = text.lines();
    let mut line = lines.next().unwrap().split(' ');
    let mut request = Request::builder()
        .method(line.next().unwrap())
        .uri(line.next().unwrap());
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        request = request.header(name, value.trim_start());
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns a request with `Host`, and with these headers, one in each line.
pub(crate) fn to(host: &str, target: &str, headers: &str) -> Parts {
    head(&format!("GET {target}\nHost: {host}\n{headers}"))
}

/// Returns a connection over TLS to port 443.
pub(crate) fn tls(host: &str) -> Connection<'_> {
    Connection {
        host: Some(host),
        port: 443,
        tls: true,
    }
}

/// A connection over plain HTTP to port 80.
pub(crate) const PLAIN: Connection<'_> = Connection {
    host: None,
    port: 80,
    tls: false,
};

/// Decides about a request over TLS.
pub(crate) fn decided(host: &str, head: &Parts) -> Result<Pass, Refused> {
    let connection = tls(host);
    let route = route(&connection, head)?;
    decide(&granted(), &connection, &route, head)
}

/// Forwards a request over TLS, with the credential that the decision names.
pub(crate) fn forwarded(host: &str, head: Parts) -> Result<Parts, Refused> {
    forwarded_with(&granted(), &tls(host), head, VALUE)
}

pub(crate) fn forwarded_with(
    granted: &Granted,
    connection: &Connection<'_>,
    mut head: Parts,
    value: &str,
) -> Result<Parts, Refused> {
    let route: Route = route(connection, &head)?;
    let lent = match decide(granted, connection, &route, &head)? {
        Pass::Plain => None,
        Pass::Inject { credential } => Some((granted.credential(&credential).unwrap(), value)),
    };
    forward(granted, &route, &mut head, lent)?;
    Ok(head)
}

/// Returns the value of a header that a request has once.
pub(crate) fn value<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    let mut values = head.headers.get_all(name).iter();
    let value = values.next()?;
    assert_eq!(values.next(), None, "{name} twice");
    Some(value.to_str().unwrap())
}
