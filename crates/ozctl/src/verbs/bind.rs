//! `ozctl bind`: binds a role to a subject until an instant, and not longer.

use std::time::Duration;

use clap::Args;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use oz_api::{BindingStatus, Phase, TransientClusterRoleBinding, TransientRoleBinding};
use oz_core::transient::Kind;
use serde_json::{Map, Value, json};

use crate::access::default_prefix;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::instant;
use crate::request::{self, Retry, waits_for_others};
use crate::verbs::go_duration;
use crate::waiting::Waiting;

/// The interval between checks for the binding.
const LOOK: Duration = Duration::from_millis(200);

/// Bind a role to somebody for a limited time
///
/// oz makes the RoleBinding when the window opens and deletes it when it is over. You need the verb
/// `bind` on the role, and the role must be on oz's list.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl bind view --user alice --for 1h --reason INC-7
  ozctl bind role/deployer --group on-call --until 2026-01-31T17:00:00Z
  ozctl bind view --cluster-wide --serviceaccount ci:runner --for 30m

As in `kubectl create rolebinding`, --user is who is bound here; the user of
your kubeconfig is chosen by --context.")]
pub(crate) struct Bind {
    /// The role: NAME or clusterrole/NAME, or role/NAME for a Role of the namespace
    role: String,
    /// Who is bound; `--user` of the command line, which would be the kubeconfig's elsewhere
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
    /// How long it lasts, such as 30m or 1h30m
    #[arg(
        long = "for",
        value_name = "DURATION",
        conflicts_with = "until",
        required_unless_present = "until"
    )]
    duration: Option<String>,
    /// When it ends, such as 2026-01-31T17:00:00Z
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    /// When it begins [default: at once]
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,
    /// In the whole cluster, in place of the namespace
    #[arg(long)]
    cluster_wide: bool,
    /// Why it is needed; kept in the audit record
    #[arg(long)]
    reason: Option<String>,
    /// What its name begins with [default: $USER]
    #[arg(short = 'N', long, value_name = "PREFIX")]
    request_name: Option<String>,
    /// How long to wait for it
    #[arg(short, long, default_value = "1m", value_name = "DURATION")]
    wait: String,
}

impl Bind {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let within = go_duration(&self.wait)
            .ok_or_else(|| Failure::new(format!("invalid time supplied: {}", self.wait)))?;
        let object = self.object()?;
        let cluster = context.cluster().await?;
        if self.cluster_wide {
            let api = Api::<TransientClusterRoleBinding>::all(cluster.client.clone());
            bind(context, &cluster, &api, object, within).await
        } else {
            let api = cluster.api::<TransientRoleBinding>();
            bind(context, &cluster, &api, object, within).await
        }
    }

    /// Returns the object to create.
    fn object(&self) -> Result<Value> {
        let prefix = match &self.request_name {
            Some(prefix) => prefix.clone(),
            None => default_prefix(),
        };
        request::check_prefix(&prefix)?;
        let (kind, name) = match self.role.split_once('/') {
            None => ("ClusterRole", self.role.as_str()),
            Some(("clusterrole", name)) => ("ClusterRole", name),
            Some(("role", name)) => ("Role", name),
            Some(_) => {
                return Err(Failure::new(format!("{} is no role", self.role))
                    .next("write NAME, clusterrole/NAME or role/NAME"));
            }
        };
        let mut spec = Map::new();
        spec.insert("roleRef".to_owned(), json!({"kind": kind, "name": name}));
        spec.insert("subjects".to_owned(), self.subjects()?.into());
        for (field, value) in [
            ("validFrom", &self.from),
            ("validUntil", &self.until),
            ("duration", &self.duration),
            ("reason", &self.reason),
        ] {
            if let Some(value) = value {
                spec.insert(field.to_owned(), value.as_str().into());
            }
        }
        Ok(json!({"metadata": {"generateName": format!("{prefix}-")}, "spec": spec}))
    }

    fn subjects(&self) -> Result<Vec<Value>> {
        let named = |kind: &str, name: &String| json!({"kind": kind, "name": name});
        let mut subjects: Vec<Value> = self.user.iter().map(|name| named("User", name)).collect();
        subjects.extend(self.groups.iter().map(|name| named("Group", name)));
        for account in &self.service_accounts {
            let (namespace, name) = account.split_once(':').ok_or_else(|| {
                Failure::new(format!(
                    "{account} is no NAMESPACE:NAME of a service account"
                ))
            })?;
            subjects.push(json!({
                "kind": "ServiceAccount", "name": name, "namespace": namespace,
            }));
        }
        if subjects.is_empty() {
            return Err(Failure::new("nobody is to be bound")
                .next("say who with --user, --group or --serviceaccount"));
        }
        Ok(subjects)
    }
}

/// Creates the object, waits until the role is bound, and prints the result.
async fn bind<K: Kind>(
    context: &Context,
    cluster: &Cluster,
    api: &Api<K>,
    object: Value,
    within: Duration,
) -> Result<Exit> {
    let object: K = serde_json::from_value(object)
        .map_err(|error| Failure::new(format!("failed to put the request together: {error}")))?;
    let mut interrupts = Interrupts::new()?;
    let parameters = PostParams::default();
    let creating = cluster.answer(api.create(&parameters, &object));
    let not_wanted = async |created: K, interrupts: &mut Interrupts| {
        give_back(api, &created.name_any(), interrupts).await
    };
    let created = match interrupts.made(creating, not_wanted).await? {
        Ok(created) => created,
        Err(exit) => return Ok(exit),
    };
    let name = created.name_any();
    let role = role(&created);
    let what = resource::<K>(&name);
    let waited = tokio::select! {
        waited = bound(context, cluster, api, &created, within) => waited,
        exit = interrupts.next() => {
            let given_back = give_back(api, &name, &mut interrupts).await;
            return given_back.map(|()| exit).map_err(|failure| failure.with(exit));
        }
    };
    // The role may be bound after this wait has ended.
    let ends = format!("`ozctl revoke {what}` gives it back");
    let status = waited.map_err(|failure| match failure.is_not_found() {
        true => failure,
        false => failure.or_next(&ends),
    })?;
    context.print(&context.typed(&told(&role, &what, &status)?))?;
    Ok(Exit::SUCCESS)
}

/// Returns the kind and the name of the role.
fn role<K: Kind>(binding: &K) -> String {
    let role = binding.terms().map(|terms| terms.role).unwrap_or_default();
    format!("{} {}", role.kind, role.name)
}

/// Waits until the role is bound or denied, or only its window must still open.
async fn bound<K: Kind>(
    context: &Context,
    cluster: &Cluster,
    api: &Api<K>,
    created: &K,
    within: Duration,
) -> Result<BindingStatus> {
    let (name, role) = (created.name_any(), role(created));
    let mut retry = Retry::default();
    let looking = async {
        let mut waiting = Waiting::new(context, &format!("waiting until {role} is bound"));
        loop {
            match cluster.answer(api.get(&name)).await {
                Err(failure) => retry.with(failure).await?,
                Ok(found) => {
                    retry.over();
                    let status = found.status().cloned().unwrap_or_default();
                    if settled(&status) {
                        return Ok(status);
                    }
                    if let Some(who) = waits_for_others(status.phase, &status.conditions) {
                        waiting.is(&format!("{name}: {who}"), true);
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
            waiting.draw();
        }
    };
    if let Ok(looked) = tokio::time::timeout(within, looking).await {
        return looked;
    }
    let late = format!("{role} was not bound within {within:?}");
    Err(match retry.at_the_end() {
        Some(failure) => failure.during(&late),
        None => Failure::new(late).next(format!(
            "`ozctl explain {}` says what it waits for",
            resource::<K>(&name)
        )),
    })
}

/// Returns the name as kubectl writes it.
fn resource<K: Kind>(name: &str) -> String {
    format!("{}/{name}", <K as Resource>::plural(&()))
}

/// Deletes the object. Success includes an object that does not exist any more.
async fn give_back<K: Kind>(api: &Api<K>, name: &str, interrupts: &mut Interrupts) -> Result<()> {
    let deleting = async {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop).map_err(Failure::from),
        }
    };
    let later = format!("`ozctl revoke {}` does so later", resource::<K>(name));
    interrupts.given_back(name, deleting, later).await
}

/// Checks whether the role is bound or denied, or only its window must still open.
fn settled(status: &BindingStatus) -> bool {
    status.phase != Phase::Pending || status.next_transition_time.is_some()
}

fn told(role: &str, what: &str, status: &BindingStatus) -> Result<String> {
    let end = format!("`ozctl revoke {what}` ends it");
    match (status.phase, status.expires_at, status.next_transition_time) {
        (Phase::Active, Some(until), _) => {
            let until = instant(until);
            Ok(format!("{role} is bound until {until}; {end}\n"))
        }
        (Phase::Pending, _, Some(from)) => {
            let from = instant(from);
            Ok(format!("{role} will be bound at {from}; {end}\n"))
        }
        (phase, ..) => {
            let ready = status
                .conditions
                .iter()
                .find(|known| known.type_ == "Ready");
            let why = ready.map(|ready| ready.message.clone()).unwrap_or_default();
            Err(Failure::new(format!(
                "{role} is not bound ({phase}): {why}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
        line.bind
            .object()
            .map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn instants_are_told_in_whole_seconds() {
        let status = BindingStatus {
            phase: Phase::Active,
            expires_at: "2026-01-31T09:00:00.001027227Z".parse().ok(),
            ..BindingStatus::default()
        };
        let told = told("ClusterRole view", "trb/mine", &status).unwrap();
        let expected = "ClusterRole view is bound until 2026-01-31T09:00:00Z; `ozctl revoke trb/mine` ends it\n";
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
    fn what_makes_no_sense_is_said() {
        for (words, user, said) in [
            (&["view", "--for", "1h"][..], None, "nobody is to be bound"),
            (&["view"], Some("alice"), "--for"),
            (
                &["view", "--for", "1h", "--until", "x"],
                Some("alice"),
                "cannot be used with",
            ),
            (&["pod/view", "--for", "1h"], Some("alice"), "is no role"),
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
