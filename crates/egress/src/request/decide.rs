//! The decision whether a request passes, and with which credential.

use http::request::Parts;
use http::{Method, StatusCode};
use oz_api::harness::wire::EgressReason;

use super::{Connection, Pass, Refused, Route, places};
use crate::grants::{Credential, Granted};

/// The maximum number of hosts that a message names.
const MAX_HOSTS: usize = 5;

/// Decides whether a request passes, and with which credential.
///
/// # Errors
/// A request for a host or port that no policy grants; one with a placeholder outside its place, at another host or
/// over plain HTTP; one with another value in a place where credentials are sent.
pub fn decide(
    granted: &Granted,
    connection: &Connection<'_>,
    route: &Route,
    head: &Parts,
) -> Result<Pass, Refused> {
    let Route { host, port } = route;
    if !granted.allows(host, *port) {
        return Err(Refused::forbidden(
            EgressReason::HostNotGranted,
            format!("no BrokerPolicy grants this run {host}, port {port}"),
        ));
    }
    let credentials = granted.credentials_of(host);
    let mut carried = credentials.iter().filter(|one| places::carries(one, head));
    let (carried, another) = (carried.next().copied(), carried.next().copied());
    if let Some(another) = another {
        return Err(placeholder(format!(
            "the request carries the placeholder of credential {} as well: a request carries one credential",
            another.injected.name
        ))
        .about(&another.injected.name));
    }
    if let Some((found, place)) = places::stray(head, carried) {
        return Err(stray(granted, host, &found, &place));
    }
    // At a host without a credential, the rule has nothing to protect.
    if let Some(first) = credentials.first()
        && let Some(place) = places::foreign(head, &credentials, carried)
    {
        let name = &carried.unwrap_or(first).injected.name;
        return Err(foreign(host, &credentials, &place).about(name));
    }
    if !places::user_information(head).is_empty() {
        return Err(Refused::malformed(
            "the target of the request has user information",
        ));
    }
    match carried {
        Some(credential) => inject(connection, head, credential),
        None => Ok(Pass::Plain),
    }
}

fn placeholder(message: String) -> Refused {
    Refused::forbidden(EgressReason::Placeholder, message)
}

fn inject(
    connection: &Connection<'_>,
    head: &Parts,
    credential: &Credential,
) -> Result<Pass, Refused> {
    let name = &credential.injected.name;
    if !connection.tls {
        return Err(placeholder(format!(
            "credential {name} is not sent over plain HTTP: use https"
        ))
        .about(name));
    }
    // The response to TRACE is the request: RFC 9110, section 9.3.8.
    if head.method == Method::TRACE {
        return Err(Refused::new(
            StatusCode::METHOD_NOT_ALLOWED,
            EgressReason::Placeholder,
            format!("credential {name} is not sent with TRACE, which returns it"),
        )
        .about(name));
    }
    Ok(Pass::Inject {
        credential: name.clone(),
    })
}

/// Returns the refusal of a placeholder that is not in its place, or not at a host of its credential.
fn stray(granted: &Granted, host: &str, found: &str, place: &str) -> Refused {
    let Some(credential) = granted.by_placeholder(found) else {
        return placeholder(format!(
            "{place} has a placeholder of no credential that is granted now"
        ));
    };
    let name = &credential.injected.name;
    let message = if credential.is_for(host) {
        let right = places::described(&credential.injected.place);
        format!(
            "{place} has the placeholder of credential {name}, which is allowed in {right}, \
            once"
        )
    } else {
        let hosts = &credential.injected.hosts;
        let mut named = hosts[..hosts.len().min(MAX_HOSTS)].join(", ");
        if hosts.len() > MAX_HOSTS {
            named.push_str(", …");
        }
        format!(
            "{place} has the placeholder of credential {name}, which is for {named}, not for {host}"
        )
    };
    placeholder(message).about(name)
}

fn foreign(host: &str, credentials: &[&Credential], place: &str) -> Refused {
    let names: Vec<&str> = credentials
        .iter()
        .take(MAX_HOSTS)
        .map(|one| one.injected.name.as_str())
        .collect();
    Refused::forbidden(
        EgressReason::ForeignCredential,
        format!(
            "{place} has a value that is not the placeholder of a credential of {host}: a request to this host carries \
             {} or no credential",
            names.join(", ")
        ),
    )
}
