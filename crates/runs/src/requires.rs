//! The check whether policies grant the requirements of a template, and the gaps.

use std::fmt;

use jiff::Timestamp;
use oz_api::harness::{EgressNeed, Hosts, is_any_port};

use super::policy::Matching;
use super::template::Resolved;

/// The requirements of a template that no policy grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Hosts, each with the ports without a grant; empty for any port.
    pub egress: Vec<EgressNeed>,
}

/// The reason why a run cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// Each policy for its template has an expired discovery.
    #[error(
        "the egressDiscovery of every BrokerPolicy for template {template} has expired \
         ({policies}): add grants for the hosts that it found (ozctl run policy suggest --all) and \
         remove it"
    )]
    Expired {
        /// The template.
        template: String,
        /// The names of the policies.
        policies: String,
    },
    /// A requirement is not granted.
    #[error(
        "no BrokerPolicy of namespace {namespace} grants what template {template} requires: {gaps}; \
         ozctl run policy scaffold {template} -n {namespace} prints a policy that does"
    )]
    Lacking {
        /// The template.
        template: String,
        /// The namespace of the run.
        namespace: String,
        /// The requirements without a grant.
        gaps: Gaps,
    },
}

/// Returns the requirements of a template that these policies do not grant.
#[must_use]
pub fn gaps(template: &Resolved, policies: &Matching<'_>) -> Gaps {
    let lacks = |name: &&String| policies.credential(name).is_none();
    let credentials = template.credentials.iter().filter(lacks).cloned().collect();
    let egress = egress_gaps(&template.egress, policies);
    Gaps {
        credentials,
        egress,
    }
}

/// Returns the required hosts that these policies do not grant, with the ports without a grant, each once.
pub(super) fn egress_gaps(needs: &[EgressNeed], policies: &Matching<'_>) -> Vec<EgressNeed> {
    let egress = needs.iter().filter_map(|need| {
        let Ok(hosts) = need.host.parse::<Hosts>() else {
            return Some(need.clone());
        };
        if is_any_port(&need.ports) {
            return (!policies.covers(&hosts, 0)).then(|| need.clone());
        }
        let lacks = |port: &&i32| !policies.covers(&hosts, **port);
        let ports = need.ports.iter().filter(lacks);
        let ports: Vec<i32> = ports.copied().collect();
        (!ports.is_empty()).then(|| EgressNeed {
            host: need.host.clone(),
            ports,
        })
    });
    let mut egress: Vec<EgressNeed> = egress.collect();
    let mut seen: Vec<EgressNeed> = Vec::new();
    egress.retain(|need| {
        let is_new = !seen.contains(need);
        seen.push(need.clone());
        is_new
    });
    egress
}

/// Checks whether a run of a template can be admitted at `now`; `policies` are those that apply to the template.
///
/// # Errors
/// The missing grants.
pub fn admitted(
    name: &str,
    namespace: &str,
    template: &Resolved,
    policies: &Matching<'_>,
    now: Timestamp,
) -> Result<(), Shortfall> {
    let live = policies.unexpired(now);
    let gaps = gaps(template, &live);
    if gaps.is_empty() {
        return Ok(());
    }
    if live.is_empty() && !policies.is_empty() {
        let names = policies
            .iter()
            .filter_map(|policy| policy.metadata.name.clone());
        return Err(Shortfall::Expired {
            template: name.to_owned(),
            policies: names.collect::<Vec<String>>().join(", "),
        });
    }
    Err(Shortfall::Lacking {
        template: name.to_owned(),
        namespace: namespace.to_owned(),
        gaps,
    })
}

impl Gaps {
    /// Checks whether there are no gaps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.credentials.is_empty() && self.egress.is_empty()
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = self
            .credentials
            .iter()
            .map(|name| format!("credential {name}"));
        let egress = self.egress.iter();
        let egress = egress.map(|need| format!("egress to {}", destination(need)));
        let all: Vec<String> = credentials.chain(egress).collect();
        write!(formatter, "{}", all.join("; "))
    }
}

/// Returns a required host with its ports, for users.
#[must_use]
pub fn destination(need: &EgressNeed) -> String {
    let ports: Vec<String> = need.ports.iter().map(ToString::to_string).collect();
    match is_any_port(&need.ports) {
        true => format!("{} on any port", need.host),
        false => format!("{}:{}", need.host, ports.join(",")),
    }
}
