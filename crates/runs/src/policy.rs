//! The policies that apply to a template, and the sum of their grants: a credential from the first policy that has it,
//! hosts from all.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::glob::Glob;
use oz_api::harness::{
    BrokerPolicy, CredentialGrant, EgressDiscovery, GitAccess, GitRepo, Hosts, has_port_in,
};
use oz_api::instant::{has_come, instant};

/// The policies of a namespace that apply to one template, sorted by name.
#[derive(Clone, Debug)]
pub struct Matching<'a> {
    policies: Vec<&'a BrokerPolicy>,
}

/// The state of the discovery of a policy: any host is permitted while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// The policy has no discovery.
    None,
    /// Active until this instant.
    Active(Timestamp),
    /// The discovery expired at this instant.
    Expired(Timestamp),
}

/// The interception of the connections of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All connections, regardless of the agent.
    Transparent,
    /// Only the connections that the agent makes through the proxy; each policy with its reason.
    Cooperative(Vec<(String, String)>),
}

/// The label of a namespace with the level of Pod Security that it enforces.
pub const POD_SECURITY_LABEL: &str = "pod-security.kubernetes.io/enforce";

/// The level of Pod Security that a namespace enforces.
/// See <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PodSecurity {
    /// No restrictions.
    Privileged,
    /// Pods without known privilege escalations.
    Baseline,
    /// Hardened pods.
    Restricted,
}

impl PodSecurity {
    /// Reads the labels of a namespace, as Pod Security does: without a label everything is admitted, and a label with
    /// another word counts as restricted.
    /// See <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.
    #[must_use]
    pub fn from_namespace(namespace: &ObjectMeta) -> Self {
        let labels = namespace.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(POD_SECURITY_LABEL));
        label.map_or(Self::Privileged, |level| {
            level.parse().unwrap_or(Self::Restricted)
        })
    }
}

/// The reason why the interception that its policies require is not available for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "transparent interception needs an init container with NET_ADMIN, which Pod Security {0} of the namespace \
     forbids: label the namespace pod-security.kubernetes.io/enforce=privileged, or accept cooperative \
     interception in every policy of the template"
)]
pub struct Unavailable(pub PodSecurity);

/// Returns the state of the discovery of a policy at `now`. A discovery with an unreadable end has expired.
#[must_use]
pub fn discovery(policy: &BrokerPolicy, now: Timestamp) -> Discovery {
    let Some(EgressDiscovery {
        accepted: true,
        expires_at,
        ..
    }) = &policy.spec.egress_discovery
    else {
        return Discovery::None;
    };
    match instant(expires_at) {
        Ok(ends) if !has_come(now, ends) => Discovery::Active(ends),
        Ok(ends) => Discovery::Expired(ends),
        Err(_) => Discovery::Expired(Timestamp::MIN),
    }
}

impl<'a> Matching<'a> {
    /// Selects the policies from `policies`, which are all of one namespace, that apply to a template of this name and
    /// are not being deleted.
    #[must_use]
    pub fn from_policies(
        policies: impl IntoIterator<Item = &'a BrokerPolicy>,
        template: &str,
    ) -> Self {
        let mut policies: Vec<&BrokerPolicy> = policies
            .into_iter()
            .filter(|policy| policy.metadata.deletion_timestamp.is_none())
            .filter(|policy| speaks_for(policy, template))
            .collect();
        policies.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Self { policies }
    }

    /// Returns the policies.
    pub fn iter(&self) -> impl Iterator<Item = &'a BrokerPolicy> + '_ {
        self.policies.iter().copied()
    }

    /// Checks whether there are no policies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Returns the policies without an expired discovery. Admission uses only these, so that a discovery must be turned
    /// into grants.
    #[must_use]
    pub fn unexpired(&self, now: Timestamp) -> Self {
        self.filter(|policy| !matches!(discovery(policy, now), Discovery::Expired(_)))
    }

    /// Returns those of the policies for which a condition holds, in the same order.
    #[must_use]
    pub fn filter(&self, mut holds: impl FnMut(&BrokerPolicy) -> bool) -> Self {
        Self {
            policies: self.iter().filter(|policy| holds(policy)).collect(),
        }
    }

    /// Returns the first grant of a credential, with its policy.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<(&'a BrokerPolicy, &'a CredentialGrant)> {
        self.iter().find_map(|policy| {
            let mut grants = policy.spec.grants.credentials.iter();
            let grant = grants.find(|grant| grant.name == name)?;
            Some((policy, grant))
        })
    }

    /// Returns the first policy with a grant for connections to this host and port.
    #[must_use]
    pub fn egress(&self, host: &str, port: i32) -> Option<&'a BrokerPolicy> {
        self.find_egress(|hosts| hosts.matches(host), port)
    }

    /// Checks whether a policy grants all of these hosts on a port; on port 0, which is any, only a grant of any port counts.
    #[must_use]
    pub fn covers(&self, hosts: &Hosts, port: i32) -> bool {
        self.find_egress(|granted| granted.cover(hosts), port)
            .is_some()
    }

    /// Returns the first policy with a grant for a port of hosts that `covers` accepts; for port 0, which means any
    /// port, only a grant for any port counts.
    fn find_egress(&self, covers: impl Fn(&Hosts) -> bool, port: i32) -> Option<&'a BrokerPolicy> {
        self.iter().find(|policy| {
            let mut grants = policy.spec.grants.egress.iter();
            grants.any(|grant| {
                let hosts = grant.host.parse::<Hosts>();
                has_port_in(&grant.ports, port) && hosts.is_ok_and(|hosts| covers(&hosts))
            })
        })
    }

    /// Returns the first policy with an active discovery.
    #[must_use]
    pub fn discovering(&self, now: Timestamp) -> Option<&'a BrokerPolicy> {
        self.iter()
            .find(|policy| matches!(discovery(policy, now), Discovery::Active(_)))
    }

    /// Returns the granted repositories, each once with the widest granted access, sorted.
    #[must_use]
    pub fn repositories(&self) -> Vec<GitRepo> {
        let granted = self.iter().flat_map(|policy| &policy.spec.grants.git_repos);
        let mut all: Vec<GitRepo> = granted.cloned().collect();
        // The one with more comes first, and stays.
        let rank = |repo: &GitRepo| repo.access != GitAccess::Write;
        all.sort_by(|one, other| {
            let key = |repo: &GitRepo| (repo.owner.clone(), repo.repo.clone(), rank(repo));
            key(one).cmp(&key(other))
        });
        all.dedup_by(|next, kept| next.owner == kept.owner && next.repo == kept.repo);
        all
    }

    /// Checks whether any policy permits interactive runs.
    #[must_use]
    pub fn may_interact(&self) -> bool {
        let mut grants = self
            .iter()
            .filter_map(|policy| policy.spec.grants.runs.as_ref());
        grants.any(|runs| runs.interact)
    }

    /// Returns the smallest limit of live runs.
    #[must_use]
    pub fn concurrent_runs(&self) -> Option<i32> {
        let limits = self.iter().filter_map(|policy| policy.spec.limits);
        limits.filter_map(|limits| limits.concurrent_runs).min()
    }

    /// Returns the interception of connections: cooperative only if there is a policy, and each policy accepts it.
    #[must_use]
    pub fn interception(&self) -> Mode {
        let accepted: Option<Vec<(String, String)>> = self.iter().map(accepts).collect();
        match accepted {
            Some(reasons) if !reasons.is_empty() => Mode::Cooperative(reasons),
            _ => Mode::Transparent,
        }
    }
}

impl Mode {
    /// Checks whether a namespace with this level of Pod Security permits this mode. It is never replaced by a weaker
    /// mode.
    ///
    /// # Errors
    /// The level does not permit the mode.
    pub fn available(&self, enforced: PodSecurity) -> Result<(), Unavailable> {
        match (self, enforced) {
            (Self::Cooperative(_), _) | (Self::Transparent, PodSecurity::Privileged) => Ok(()),
            (Self::Transparent, level) => Err(Unavailable(level)),
        }
    }
}

/// The name in messages of an object without one, which no store contains.
const NAMELESS: &str = "(nameless)";

/// Returns the name of a policy, for messages.
#[must_use]
pub fn policy_name(policy: &BrokerPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or(NAMELESS)
}

fn speaks_for(policy: &BrokerPolicy, template: &str) -> bool {
    let globs = policy.spec.applies_to_templates.iter();
    let mut globs = globs.filter_map(|text| text.parse::<Glob>().ok());
    globs.any(|glob| glob.matches(template))
}

fn accepts(policy: &BrokerPolicy) -> Option<(String, String)> {
    let interception = policy.spec.interception.as_ref()?;
    let accepted = interception.cooperative_accepted.as_ref()?;
    let name = policy.metadata.name.clone()?;
    accepted.accepted.then(|| (name, accepted.reason.clone()))
}
