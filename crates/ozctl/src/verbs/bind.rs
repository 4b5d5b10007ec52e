//! `ozctl bind`: binds a role to a subject until an instant, and not longer.

use std::time::Duration;

use clap::Args;
use oz_api::BindingStatus;
use oz_client::bindings::{Ask, BindError, Bindings, Effect, effect};
use oz_core::transient::Kind;
use serde_json::Value;

use crate::access::default_prefix;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::instant;
use crate::verbs::go_duration;
use crate::waiting::Waiting;

/// Create a time-limited role binding
///
/// oz creates the RoleBinding when the window opens and deletes it when the window ends. You need
/// the verb `bind` on the role, and the role must be among oz's bindable roles.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl bind view --user alice --for 1h --reason INC-7
  ozctl bind role/deployer --group on-call --until 2026-01-31T17:00:00Z
  ozctl bind view --cluster-wide --serviceaccount ci:runner --for 30m
  ozctl bind edit --user alice --for 30m --ticket INC-42

As in `kubectl create rolebinding`, --user is who is bound here; the user of
your kubeconfig is chosen by --context.")]
pub(crate) struct Bind {
    /// The role: NAME or clusterrole/NAME, or role/NAME for a Role of the namespace
    role: String,
    /// Subject of the binding; `--user` of the command line, which would be the kubeconfig's elsewhere
    #[arg(skip)]
    pub(crate) user: Option<String>,
    /// Groups that are bound, by commas
    #[arg(long = "group", value_name = "NAMES", value_delimiter = ',')]
    groups: Vec<String>,
    /// Service accounts that are bound, by commas
    #[arg(
        long = "serviceaccount",
        value_name = "NAMESPACE:NAME",
        value_delimiter = ','
    )]
    service_accounts: Vec<String>,
    /// Duration of the binding, such as 30m or 1h30m
    #[arg(
        long = "for",
        value_name = "DURATION",
        conflicts_with = "until",
        required_unless_present = "until"
    )]
    duration: Option<String>,
    /// End of the window, such as 2026-01-31T17:00:00Z
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    /// Start of the window [default: now]
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,
    /// Bind in the whole cluster instead of the namespace
    #[arg(long)]
    cluster_wide: bool,
    /// Reason for the binding; recorded in the audit trail
    #[arg(long)]
    reason: Option<String>,
    /// Change ticket, such as INC-42
    #[arg(long)]
    ticket: Option<String>,
    /// Declare an emergency: the role is bound to you without approvals, if the access policies permit it, and the
    /// binding is reviewed afterwards
    #[arg(long, requires = "reason", conflicts_with = "from")]
    emergency: bool,
    /// Prefix of its name [default: $USER]
    #[arg(short = 'N', long, value_name = "PREFIX")]
    request_name: Option<String>,
    /// Maximum time to wait for it
    #[arg(short, long, default_value = "1m", value_name = "DURATION")]
    wait: String,
}

impl Bind {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let within = go_duration(&self.wait)
            .ok_or_else(|| Failure::new(format!("invalid time supplied: {}", self.wait)))?;
        let (role, object) = self.object()?;
        let cluster = context.cluster().await?;
        if self.cluster_wide {
            let bindings = Bindings::cluster_wide(&cluster);
            bind(context, &bindings, &role, object, within).await
        } else {
            let bindings = Bindings::in_namespace(&cluster);
            bind(context, &bindings, &role, object, within).await
        }
    }

    /// Returns the kind and the name of the role, and the object to create.
    fn object(&self) -> Result<(String, Value), BindError> {
        let prefix = match &self.request_name {
            Some(prefix) => prefix.clone(),
            None => default_prefix(),
        };
        let ask = Ask {
            prefix: &prefix,
            role: &self.role,
            user: self.user.as_deref(),
            groups: &self.groups,
            service_accounts: &self.service_accounts,
            from: self.from.as_deref(),
            until: self.until.as_deref(),
            duration: self.duration.as_deref(),
            reason: self.reason.as_deref(),
            ticket: self.ticket.as_deref(),
            emergency: self.emergency,
        };
        let object = ask.object()?;
        let (kind, name) = ask.role()?;
        Ok((format!("{kind} {name}"), object))
    }
}

/// Creates the object, waits until the role is bound, and prints the result.
async fn bind<K: Kind>(
    context: &Context,
    bindings: &Bindings<'_, K>,
    role: &str,
    object: Value,
    within: Duration,
) -> Result<Exit> {
    let mut interrupts = Interrupts::new()?;
    let creating = bindings.create(object);
    let not_wanted = async |name: String, interrupts: &mut Interrupts| {
        give_back(bindings, &name, interrupts).await
    };
    let name = match interrupts.made(creating, not_wanted).await? {
        Ok(name) => name,
        Err(exit) => return Ok(exit),
    };
    let what = Bindings::<K>::resource(&name);
    let waited = tokio::select! {
        waited = bound(context, bindings, &name, role, within) => waited,
        exit = interrupts.next() => {
            let given_back = give_back(bindings, &name, &mut interrupts).await;
            return given_back.map(|()| exit).map_err(|failure| failure.with(exit));
        }
    };
    // The role may be bound after this wait has ended.
    let ends = format!("`ozctl revoke {what}` revokes the binding");
    let status = waited.map_err(|failure| match failure.is_not_found() {
        true => failure,
        false => failure.or_next(&ends),
    })?;
    context.print(&context.typed(&describe(role, &what, &status)?))?;
    Ok(Exit::SUCCESS)
}

/// Waits until the role is bound or denied, or only its window must still open.
async fn bound<K: Kind>(
    context: &Context,
    bindings: &Bindings<'_, K>,
    name: &str,
    role: &str,
    within: Duration,
) -> Result<BindingStatus> {
    let mut waiting = Waiting::new(context, &format!("waiting until {role} is bound"));
    let seen = |who: Option<&str>| {
        if let Some(who) = who {
            waiting.is(&format!("{name}: {who}"), true);
        }
        waiting.draw();
    };
    bindings.wait(name, role, within, seen).await
}

/// Deletes the object, unless the user interrupts the wait.
async fn give_back<K: Kind>(
    bindings: &Bindings<'_, K>,
    name: &str,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let what = Bindings::<K>::resource(name);
    let later = format!("`ozctl revoke {what}` revokes it later");
    let deleting = bindings.delete(name);
    interrupts.given_back(name, deleting, later).await
}

fn describe(role: &str, what: &str, status: &BindingStatus) -> Result<String> {
    let when = match effect(role, status)? {
        Effect::Until(until) => format!("is bound until {}", instant(until)),
        Effect::From(from) => format!("will be bound at {}", instant(from)),
    };
    Ok(format!("{role} {when}; `ozctl revoke {what}` revokes it\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use oz_api::Phase;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bind: Bind,
    }

    fn object(words: &[&str], user: Option<&str>) -> Result<Value, String> {
        let words = ["bind", "--request-name=alice"].iter().chain(words);
        let mut line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.bind.user = user.map(ToOwned::to_owned);
        let object = line.bind.object().map(|(_, object)| object);
        object.map_err(|error| error.to_string())
    }

    #[test]
    fn expiry_is_shown_in_whole_seconds() {
        let status = BindingStatus {
            phase: Phase::Active,
            expires_at: "2026-01-31T09:00:00.001027227Z".parse().ok(),
            ..BindingStatus::default()
        };
        let told = describe("ClusterRole view", "trb/mine", &status).unwrap();
        let expected = "ClusterRole view is bound until 2026-01-31T09:00:00Z; `ozctl revoke trb/mine` revokes it\n";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_line_is_what_it_would_be_as_a_manifest() {
        let asked = object(&["view", "--for", "1h", "--reason", "INC-7"], Some("alice"));
        assert_eq!(
            asked.unwrap(),
            json!({
                "metadata": {"generateName": "alice-"},
                "spec": {
                    "roleRef": {"kind": "ClusterRole", "name": "view"},
                    "subjects": [{"kind": "User", "name": "alice"}],
                    "duration": "1h", "reason": "INC-7",
                },
            })
        );
        let asked = object(
            &[
                "edit",
                "--for",
                "30m",
                "--reason",
                "it burns",
                "--ticket",
                "INC-42",
                "--emergency",
            ],
            Some("alice"),
        );
        let asked = asked.unwrap();
        let spec = &asked["spec"];
        assert_eq!(
            (&spec["ticket"], &spec["emergency"]),
            (&json!("INC-42"), &json!(true))
        );
        let asked = object(
            &[
                "role/deployer",
                "--group",
                "a,b",
                "--serviceaccount",
                "ci:runner",
                "--from",
                "2026-01-31T09:00:00Z",
                "--until",
                "2026-01-31T17:00:00Z",
            ],
            None,
        )
        .unwrap();
        assert_eq!(
            asked["spec"]["roleRef"],
            json!({"kind": "Role", "name": "deployer"})
        );
        assert_eq!(
            asked["spec"]["subjects"],
            json!([
                {"kind": "Group", "name": "a"}, {"kind": "Group", "name": "b"},
                {"kind": "ServiceAccount", "name": "runner", "namespace": "ci"},
            ])
        );
    }

    #[test]
    fn invalid_bind_arguments_are_rejected_with_cause() {
        for (words, user, said) in [
            (
                &["view", "--for", "1h"][..],
                None,
                "the binding has no subject",
            ),
            (&["view"], Some("alice"), "--for"),
            (
                &["view", "--for", "1h", "--emergency"],
                Some("alice"),
                "--reason",
            ),
            (
                &["view", "--for", "1h", "--until", "x"],
                Some("alice"),
                "cannot be used with",
            ),
            (&["pod/view", "--for", "1h"], Some("alice"), "is not a role"),
            (
                &["view", "--for", "1h", "--serviceaccount", "x"],
                None,
                "NAMESPACE:NAME",
            ),
        ] {
            let told = object(words, user).unwrap_err();
            assert!(told.contains(said), "{words:?}: {told}");
        }
    }
}
