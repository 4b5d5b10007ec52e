//! The flags by which transient bindings are allowed. Operator and webhook have the same: the one
//! refuses by them when an object is created, the other checks them again when a binding is made.

use std::sync::Arc;

use clap::Args;
use jiff::SignedDuration;
use oz_api::duration::positive;

use super::{BindableRoles, Policy, PolicyError, RolePattern};
use crate::settings::{MAX_BINDING_LEAD, MAX_BINDING_WINDOW, MAX_WAITING_BINDINGS};

/// The flags by which transient bindings are allowed.
#[derive(Args, Clone, Debug)]
pub struct TransientArgs {
    /// Roles that transient bindings may bind: NAME for a ClusterRole, NAMESPACE/NAME for a Role;
    /// both may end in `*`. cluster-admin, and roles that can be used to get more than they
    /// say or to keep it, only if named in full. By default none, and then nothing is bound.
    #[arg(long, value_delimiter = ',', value_name = "ROLES")]
    pub bindable_roles: Vec<RolePattern>,

    /// The longest window of a transient binding, such as 24h.
    #[arg(long, default_value = MAX_BINDING_WINDOW, value_name = "DURATION", value_parser = positive)]
    pub max_binding_window: SignedDuration,

    /// The longest window in single namespaces, in place of --max-binding-window there: prod=1h.
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE=DURATION", value_parser = limit)]
    pub max_binding_window_in: Vec<(String, SignedDuration)>,

    /// How long after its creation the window of a transient binding opens at the latest, such as 168h. The groups of
    /// its requester are those of its creation.
    #[arg(long, default_value = MAX_BINDING_LEAD, value_name = "DURATION", value_parser = positive)]
    pub max_binding_lead: SignedDuration,

    /// How many transient bindings of one user may wait for their windows to open, of all kinds and in all namespaces;
    /// 0 for any number.
    #[arg(long, default_value = MAX_WAITING_BINDINGS, value_name = "COUNT")]
    pub max_waiting_bindings: usize,

    /// Serve the published kinds TransientRoleBinding and TransientClusterRoleBinding of
    /// example.com/v1 as well. Their definitions must be installed.
    #[arg(long)]
    pub serve_example_com: bool,
}

impl TransientArgs {
    /// The terms that the flags say, for an oz that runs in `own_namespace`.
    #[must_use]
    pub fn policy(&self, own_namespace: &str) -> Arc<Policy> {
        Arc::new(Policy {
            roles: BindableRoles(self.bindable_roles.clone()),
            longest: self.max_binding_window,
            longest_in: self.max_binding_window_in.iter().cloned().collect(),
            longest_lead: self.max_binding_lead,
            most_waiting: self.max_waiting_bindings,
            own_namespace: own_namespace.to_owned(),
        })
    }
}

fn limit(text: &str) -> Result<(String, SignedDuration), PolicyError> {
    Policy::namespace_limit(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        transient: TransientArgs,
    }

    fn parse(flags: &[&str]) -> Result<TransientArgs, clap::Error> {
        let flags = std::iter::once("program").chain(flags.iter().copied());
        Program::try_parse_from(flags).map(|program| program.transient)
    }

    #[test]
    fn without_a_flag_nothing_can_be_bound() {
        let args = parse(&[]).unwrap();
        assert!(args.policy("oz").roles.is_empty());
        assert!(!args.serve_example_com);
        let policy = args.policy("oz");
        assert_eq!(policy.longest_lead, SignedDuration::from_hours(7 * 24));
        assert_eq!(policy.most_waiting, 20);
    }

    #[test]
    fn limits_of_namespaces_come_before_the_common_one() {
        let args = parse(&[
            "--bindable-roles=view,shop/deploy*",
            "--max-binding-window=8h",
            "--max-binding-window-in=prod=1h,staging=30m",
        ])
        .unwrap();
        let policy = args.policy("oz");
        assert_eq!(policy.roles.to_string(), "view, shop/deploy*");
        for (namespace, minutes) in [(Some("prod"), 60), (Some("staging"), 30), (None, 480)] {
            assert_eq!(
                policy.longest(namespace),
                SignedDuration::from_mins(minutes)
            );
        }
        assert_eq!(policy.longest(Some("shop")), SignedDuration::from_hours(8));
    }

    #[test]
    fn nonsense_is_refused() {
        for flag in [
            "--bindable-roles=a/b/c",
            "--max-binding-window=0s",
            "--max-binding-lead=0s",
            "--max-waiting-bindings=-1",
            "--max-binding-window-in=prod",
            "--max-binding-window-in=prod=-1h",
        ] {
            assert!(parse(&[flag]).is_err(), "{flag}");
        }
    }
}
