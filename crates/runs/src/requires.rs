//! Whether policies grant what a template requires, and what is lacking.

use std::fmt;

use jiff::Timestamp;
use oz_api::harness::EgressNeed;

use super::host::{Hosts, is_any_port};
use super::policy::Matching;
use super::template::Resolved;

/// What a template requires and no policy grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Names of credentials.
    pub credentials: Vec<String>,
    /// Hosts, each with the ports that are lacking; none for any.
    pub egress: Vec<EgressNeed>,
}

/// Why a run cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortfall {
    /// There are policies for its template, and the discovery of each has expired.
    #[error(
        "the egressDiscovery of every BrokerPolicy for template {template} has expired ({policies}): turn what \
         it found into grants (ozctl run policy suggest --all) and remove it"
    )]
    Expired {
        /// The template.
        template: String,
        /// The policies, one after the other.
        policies: String,
    },
    /// Something is not granted.
    #[error(
        "no BrokerPolicy of namespace {namespace} grants what template {template} requires: {gaps}; \
         ozctl run policy scaffold {template} -n {namespace} prints a policy that does"
    )]
    Lacking {
        /// The template.
        template: String,
        /// The namespace of the run.
        namespace: String,
        /// What is lacking.
        gaps: Gaps,
    },
}

/// What `requires` of a template is not granted by these policies.
#[must_use]
pub fn gaps(template: &Resolved, policies: &Matching<'_>) -> Gaps {
    let lacks = |name: &&String| policies.credential(name).is_none();
    let credentials = template.credentials.iter().filter(lacks).cloned().collect();
    let egress = template.egress.iter().filter_map(|need| {
        let Ok(hosts) = need.host.parse::<Hosts>() else {
            return Some(need.clone());
        };
        let covers = |port: i32| policies.find_egress(|granted| granted.cover(&hosts), port);
        if is_any_port(&need.ports) {
            return covers(0).is_none().then(|| need.clone());
        }
        let ports = need.ports.iter().filter(|&&port| covers(port).is_none());
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
    Gaps {
        credentials,
        egress,
    }
}

/// Whether a run of a template can be admitted at `now`; `policies` are those that speak for the template.
///
/// # Errors
/// What is lacking.
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
    /// Whether nothing is lacking.
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
        let egress = self.egress.iter().map(|need| {
            let ports: Vec<String> = need.ports.iter().map(ToString::to_string).collect();
            match is_any_port(&need.ports) {
                true => format!("egress to {} on any port", need.host),
                false => format!("egress to {}:{}", need.host, ports.join(",")),
            }
        });
        let all: Vec<String> = credentials.chain(egress).collect();
        write!(formatter, "{}", all.join("; "))
    }
}
