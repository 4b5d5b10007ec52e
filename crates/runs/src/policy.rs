//! Which policies speak for a template, and what they grant together: credentials by the first that has one,
//! hosts by any.

use jiff::Timestamp;
use oz_api::glob::Glob;
use oz_api::harness::{BrokerPolicy, CredentialGrant, EgressDiscovery, GitAccess, GitRepo};
use oz_api::instant::{has_come, instant};

use super::host::{Hosts, has_port_in};

/// The policies of a namespace that speak for one template, in the order of their names.
#[derive(Clone, Debug)]
pub struct Matching<'a> {
    policies: Vec<&'a BrokerPolicy>,
}

/// Where the discovery of a policy stands: any host is let through while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// There is none.
    None,
    /// Until this instant.
    Active(Timestamp),
    /// It ended at this instant.
    Expired(Timestamp),
}

/// How the connections of a run are looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All of them, whatever the agent does.
    Transparent,
    /// Those that it makes by the proxy; each policy with its reason.
    Cooperative(Vec<(String, String)>),
}

/// The level of Pod Security that a namespace enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PodSecurity {
    /// Anything.
    Privileged,
    /// Nothing that is known to be dangerous.
    Baseline,
    /// What is hardened.
    Restricted,
}

/// Why the connections of a run cannot be looked into as its policies ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "transparent interception needs an init container with NET_ADMIN, which Pod Security {0} of the namespace \
     forbids: label the namespace pod-security.kubernetes.io/enforce=privileged, or accept cooperative \
     interception in every policy of the template"
)]
pub struct Unavailable(pub PodSecurity);

/// Where the discovery of a policy stands at `now`. One whose end cannot be read is over since ever.
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
    /// Those of `policies`, which are all of one namespace, that speak for a template of this name and are
    /// not being deleted.
    #[must_use]
    pub fn of(policies: impl IntoIterator<Item = &'a BrokerPolicy>, template: &str) -> Self {
        let mut policies: Vec<&BrokerPolicy> = policies
            .into_iter()
            .filter(|policy| policy.metadata.deletion_timestamp.is_none())
            .filter(|policy| speaks_for(policy, template))
            .collect();
        policies.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Self { policies }
    }

    /// The policies.
    pub fn iter(&self) -> impl Iterator<Item = &'a BrokerPolicy> + '_ {
        self.policies.iter().copied()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Those whose discovery has not expired. To them alone admission listens, so that nobody lives on a
    /// discovery that was never turned into grants.
    #[must_use]
    pub fn unexpired(&self, now: Timestamp) -> Self {
        let is_live =
            |policy: &&BrokerPolicy| !matches!(discovery(policy, now), Discovery::Expired(_));
        Self {
            policies: self.iter().filter(is_live).collect(),
        }
    }

    /// The first grant of a credential, with its policy.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<(&'a BrokerPolicy, &'a CredentialGrant)> {
        self.iter().find_map(|policy| {
            let mut grants = policy.spec.grants.credentials.iter();
            let grant = grants.find(|grant| grant.name == name)?;
            Some((policy, grant))
        })
    }

    /// The first policy that lets a connection to this host and port through by a grant.
    #[must_use]
    pub fn egress(&self, host: &str, port: i32) -> Option<&'a BrokerPolicy> {
        self.find_egress(|hosts| hosts.matches(host), port)
    }

    /// The first policy with a grant for a port of hosts that `covers` takes; of port 0, which is any, only one
    /// for any.
    pub(super) fn find_egress(
        &self,
        covers: impl Fn(&Hosts) -> bool,
        port: i32,
    ) -> Option<&'a BrokerPolicy> {
        self.iter().find(|policy| {
            let mut grants = policy.spec.grants.egress.iter();
            grants.any(|grant| {
                let hosts = grant.host.parse::<Hosts>();
                has_port_in(&grant.ports, port) && hosts.is_ok_and(|hosts| covers(&hosts))
            })
        })
    }

    /// The first policy whose discovery is active.
    #[must_use]
    pub fn discovering(&self, now: Timestamp) -> Option<&'a BrokerPolicy> {
        self.iter()
            .find(|policy| matches!(discovery(policy, now), Discovery::Active(_)))
    }

    /// The repositories that any of them grants, each once with the most that is granted, sorted.
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

    /// Whether any of them allows interactive runs.
    #[must_use]
    pub fn may_interact(&self) -> bool {
        let mut grants = self
            .iter()
            .filter_map(|policy| policy.spec.grants.runs.as_ref());
        grants.any(|runs| runs.interact)
    }

    /// The least of their limits of live runs.
    #[must_use]
    pub fn concurrent_runs(&self) -> Option<i32> {
        let limits = self.iter().filter_map(|policy| policy.spec.limits);
        limits.filter_map(|limits| limits.concurrent_runs).min()
    }

    /// How connections are looked into: cooperatively only if there is a policy, and each accepts it.
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
    /// Whether a namespace with this level of Pod Security lets it be. It is never replaced by a weaker one.
    ///
    /// # Errors
    /// That it does not.
    pub fn available(&self, enforced: PodSecurity) -> Result<(), Unavailable> {
        match (self, enforced) {
            (Self::Cooperative(_), _) | (Self::Transparent, PodSecurity::Privileged) => Ok(()),
            (Self::Transparent, level) => Err(Unavailable(level)),
        }
    }
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
