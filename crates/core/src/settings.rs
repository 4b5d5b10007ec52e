//! The operator's flags that determine grants and their terms. The operator reads them from its command line;
//! a command that explains a decision reads them from the operator's workload. Both create the same
//! controllers from them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use jiff::SignedDuration;
use oz_api::duration::GoDuration;

use crate::access::exec::ExecAccess;
use crate::access::kind::KeepFinished;
use crate::access::pod::PodAccess;
use crate::access::seal::Keys;
use crate::build::NameServer;
use crate::gate::GateAccount;
use crate::mutate::RenderCache;
use crate::transient::{BindableRoles, Policy};

/// The time for which a request with an audit record in the cluster is kept without `--keep-finished`.
const KEEP_ENDED: SignedDuration = SignedDuration::from_mins(1);
/// The time for which every other request is kept without `--keep-finished`.
const KEEP_OTHERS: SignedDuration = SignedDuration::from_hours(1);
/// Default of `--pod-ready-timeout`.
pub const POD_READY_TIMEOUT: &str = "5m";
/// Default of `--name-servers`.
pub const NAME_SERVERS: &str = "kube-system/k8s-app=kube-dns";
/// Default of `--max-binding-window`.
pub const MAX_BINDING_WINDOW: &str = "24h";
/// Default of `--max-binding-lead`.
pub const MAX_BINDING_LEAD: &str = "168h";
/// Default of `--max-waiting-bindings`.
pub const MAX_WAITING_BINDINGS: &str = "20";

/// The values of the flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time for which a request is kept after its end.
    pub keep_finished: KeepFinished,
    /// Time within which a dedicated pod must become ready.
    pub pod_ready_timeout: SignedDuration,
    /// Whether oz creates dedicated pods.
    pub pod_access: bool,
    /// Name servers to which pods with no other permitted connections may connect.
    pub name_servers: Vec<NameServer>,
    /// Whether a pod is created only if its template's author could create it.
    pub impersonate_authors: bool,
    /// Whether scripts run in containers, to end sessions and to find out how they can be ended.
    pub cut_sessions: bool,
    /// Namespaces in which oz grants access; all if empty.
    pub access_namespaces: Vec<String>,
    /// Namespaces of which composites evaluate the policies in process.
    pub policy_namespaces: Vec<String>,
    /// Service account of the gate, if there is one.
    pub gate: Option<GateAccount>,
    /// Permitted transient bindings.
    pub policy: Policy,
}

impl Settings {
    /// Reads the arguments of an operator that runs in `own_namespace`. Flags that do not affect decisions
    /// are ignored.
    ///
    /// # Errors
    /// The invalid flag.
    pub fn read<S: AsRef<str>>(arguments: &[S], own_namespace: &str) -> Result<Self, String> {
        let given = Given::of(arguments);
        let limits = given.many::<String>("max-binding-window-in", &[])?;
        let limits = limits.iter().map(|limit| Policy::namespace_limit(limit));
        let policy = Policy {
            roles: BindableRoles(given.many("bindable-roles", &[])?),
            longest: given.duration("max-binding-window", MAX_BINDING_WINDOW)?,
            longest_in: limits
                .collect::<Result<_, _>>()
                .map_err(|error| error.to_string())?,
            longest_lead: given.duration("max-binding-lead", MAX_BINDING_LEAD)?,
            most_waiting: given.one("max-waiting-bindings", MAX_WAITING_BINDINGS)?,
            own_namespace: own_namespace.to_owned(),
        };
        Ok(Self {
            keep_finished: keep_finished(
                given
                    .optional::<GoDuration>("keep-finished")?
                    .map(Into::into),
                given.one("audit-objects", "true")?,
            ),
            pod_ready_timeout: given.duration("pod-ready-timeout", POD_READY_TIMEOUT)?,
            pod_access: given.one("pod-access", "true")?,
            name_servers: given.many("name-servers", &[NAME_SERVERS])?,
            impersonate_authors: given.one("impersonate-authors", "false")?,
            cut_sessions: given.one("cut-sessions", "true")?,
            access_namespaces: given.many("access-namespaces", &[])?,
            policy_namespaces: given.many("policy-namespaces", &[])?,
            gate: given.optional("gate-service-account")?,
            policy,
        })
    }

    /// Checks whether oz grants access in a namespace.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        let mut served = self.access_namespaces.iter();
        self.access_namespaces.is_empty() || served.any(|name| name == namespace)
    }

    /// Returns the controller of ExecAccessRequests.
    #[must_use]
    pub fn exec_access(&self, keys: Keys) -> ExecAccess {
        ExecAccess {
            keys,
            keep_finished: self.keep_finished,
            gate: self.gate.clone(),
        }
    }

    /// Returns the controller of PodAccessRequests.
    #[must_use]
    pub fn pod_access(&self, keys: Keys) -> PodAccess {
        PodAccess {
            keys,
            keep_finished: self.keep_finished,
            gate: self.gate.clone(),
            ready_timeout: self.pod_ready_timeout,
            rendered: RenderCache::default(),
            name_servers: self.name_servers.clone(),
            as_author: self.impersonate_authors,
        }
    }
}

/// Returns the groups in `--break-glass-group` of the operator or the webhook: a flag that is not part of
/// [`Settings`], and that names groups with access.
#[must_use]
pub fn break_glass_groups<S: AsRef<str>>(arguments: &[S]) -> Vec<String> {
    let given = Given::of(arguments).many::<String>("break-glass-group", &["system:masters"]);
    let mut groups = given.unwrap_or_default();
    // A flag without a value is a group without a name.
    groups.retain(|group| !group.is_empty());
    groups
}

/// Returns the times for which requests are kept. `--keep-finished` applies to all; without it, a request
/// with an ended grant is kept for as long as users look at it, if the AuditEvents of the cluster contain it
/// permanently.
#[must_use]
pub fn keep_finished(given: Option<SignedDuration>, audit_objects: bool) -> KeepFinished {
    match given {
        Some(keep) => KeepFinished::all(keep),
        None if audit_objects => KeepFinished {
            ended: KEEP_ENDED,
            others: KEEP_OTHERS,
        },
        None => KeepFinished::all(KEEP_OTHERS),
    }
}

/// Flags and their given values, as the operator's own parser reads them.
struct Given<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> Given<'a> {
    fn of<S: AsRef<str>>(arguments: &'a [S]) -> Self {
        let mut given: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut words = arguments.iter().map(AsRef::as_ref).peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else {
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value),
                None => {
                    let value = words.next_if(|next| !next.starts_with('-'));
                    (flag, value.unwrap_or("true"))
                }
            };
            given.entry(name).or_default().push(value);
        }
        Self(given)
    }

    /// Returns the last value: manifests are extended at the end.
    fn one<T: FromStr<Err: Display>>(&self, name: &str, default: &str) -> Result<T, String> {
        let given = self.0.get(name).and_then(|values| values.last());
        parsed(name, given.copied().unwrap_or(default))
    }

    /// Returns the last value, if there is any.
    fn optional<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let given = self.0.get(name).and_then(|values| values.last());
        given.map(|given| parsed(name, given)).transpose()
    }

    /// Returns all values, each of which may be a list.
    fn many<T: FromStr<Err: Display>>(
        &self,
        name: &str,
        default: &[&str],
    ) -> Result<Vec<T>, String> {
        let values = self.0.get(name).map_or(default, Vec::as_slice);
        let each = values.iter().flat_map(|value| value.split(','));
        each.map(|value| parsed(name, value)).collect()
    }

    fn duration(&self, name: &str, default: &str) -> Result<SignedDuration, String> {
        let duration: GoDuration = self.one(name, default)?;
        Ok(duration.into())
    }
}

fn parsed<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|error| format!("--{name}={value}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_for_emergencies_are_read_as_the_processes_read_them() {
        for (flags, groups) in [
            (&[][..], &["system:masters"][..]),
            (
                &["--break-glass-group=a", "--break-glass-group=b,c"],
                &["a", "b", "c"],
            ),
            (&["--break-glass-group="], &[]),
        ] {
            assert_eq!(break_glass_groups(flags), groups);
        }
    }

    #[test]
    fn a_flag_that_is_repeated_has_its_last_value_and_lists_have_all() {
        let flags = [
            "--leader-elect",
            "--pod-ready-timeout=10m",
            "--pod-ready-timeout",
            "7m",
            "--pod-access=false",
            "--impersonate-authors",
            "--bindable-roles=view,shop/deploy*",
            "--bindable-roles=edit",
            "uninstall",
        ];
        let settings = Settings::read(&flags, "oz").unwrap();
        assert_eq!(settings.pod_ready_timeout, SignedDuration::from_mins(7));
        assert!(!settings.pod_access && settings.impersonate_authors);
        let roles = settings.policy.roles.to_string();
        assert_eq!(roles, "view, shop/deploy*, edit");
    }

    #[test]
    fn invalid_flag_is_rejected() {
        for flag in [
            "--keep-finished=1d",
            "--pod-access=perhaps",
            "--name-servers=nowhere",
            "--bindable-roles=a/b/c",
            "--max-binding-window-in=prod",
            "--max-binding-lead=7d",
            "--max-waiting-bindings=few",
        ] {
            assert!(Settings::read(&[flag], "oz").is_err(), "{flag}");
        }
    }
}
