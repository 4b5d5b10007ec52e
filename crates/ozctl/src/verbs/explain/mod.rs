//! `ozctl explain`: shows how a request was decided, or would be, rule by rule, and the plan that
//! the operator would carry out; also the actions of a composite for a parent. All of it comes from
//! the functions that the operator itself calls.

mod show;
mod show_binding;
mod show_composite;

use clap::Args;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use oz_api::Requester;
use oz_core::for_each_kind;
use oz_core::kinds::{self, AccessRequest, Role};

use super::audit::Oz;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::explain::access::{self, Explained, Explanation};
use crate::explain::operator::Configured;
use crate::explain::{binding, composite, extra};
use crate::failure::{Failure, Result};
use crate::names::{self, Named};
use crate::output::TextFormat;
use crate::request::{Ask, requester};
use crate::{choose, complete};

/// Show the decision about an access request, rule by rule, and the next steps
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl explain alice-x7k2p
  ozctl explain trb/lea-m2k9c
  ozctl explain --template shell
  ozctl explain --template shell --user bob --group devs --duration 8h
  ozctl explain fleets/one          the steps of its composite, now and later
  ozctl explain fleets.example.org/one -o json

With --template, --user is the requester; --context then selects the user of
your kubeconfig.

Only the operator has the key that verifies the requester's seal. Checks for
which you lack the rights, such as listing pods, are skipped and reported. If
the operator's configuration is neither given nor readable in its ConfigMap,
its defaults are assumed.

A composite's Rego policy is read from its ConfigMaps and evaluated here, at the
instants that the parent names; nothing is written. Only the operator calls
functions behind HTTP: the known state of the parent is shown instead.

Exit codes: 0 if access is or would be granted, 1 if not. For the parent of a
composite: 0 if its steps are known and not blocked, 1 if not.")]
pub(crate) struct Explain {
    /// Name of a request or transient binding, or KIND/NAME; or PLURAL/NAME of a parent of a
    /// composite
    #[arg(required_unless_present = "template", add = ArgValueCompleter::new(complete::explained))]
    request: Option<String>,
    /// Template for which a new request is explained
    #[arg(long, conflicts_with = "request", add = ArgValueCandidates::new(complete::templates))]
    template: Option<String>,
    /// Requester of the new request, as --user [default: you]
    #[arg(long = "for", requires = "template", value_name = "USER")]
    person: Option<String>,
    /// A group that they would be in; may be repeated
    #[arg(long, requires = "template", value_name = "GROUP")]
    group: Vec<String>,
    /// Duration of the new request
    #[arg(short = 'D', long, requires = "template")]
    duration: Option<String>,
    /// The container that they would name
    #[arg(short, long, requires = "template")]
    container: Option<String>,
    /// The pod that they would name
    #[arg(short = 'p', long, requires = "template", value_name = "POD")]
    target_pod: Option<String>,
    /// The reason that they would give
    #[arg(long, requires = "template")]
    reason: Option<String>,
    /// The ticket that they would name
    #[arg(long, requires = "template")]
    ticket: Option<String>,
    /// Whether they would say that it is an emergency
    #[arg(long, requires = "template")]
    emergency: bool,
    #[command(flatten)]
    oz: Oz,
    /// A value of the operator's configuration, such as operator.podReadyTimeout=10m; may be
    /// repeated [default: its ConfigMap]
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Explain {
    /// Takes `--user` of the command line as the requester, and not as the user of the kubeconfig,
    /// if a template is given; unless `--for` names the requester.
    pub(crate) fn take_person(&mut self, user: &mut Option<String>) {
        if self.template.is_some() {
            self.person = self.person.take().or_else(|| user.take());
        }
    }

    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        if !self.group.is_empty() && self.person.is_none() {
            return Err(
                Failure::new("--group requires the user who would be in the group")
                    .next("name one with --user"),
            );
        }
        if let Some(template) = &self.template {
            names::checked(template)?;
        }
        if let Some(word) = &self.request {
            names::checked(word.split_once('/').map_or(word, |(_, name)| name))?;
        }
        let cluster = context.cluster().await?;
        let configured = Configured::read(&cluster, &self.oz.namespace, &self.set).await?;
        let explanation = match (&self.request, &self.template) {
            (Some(word), _) => match of_request(&cluster, &configured, word).await? {
                Some(found) => found,
                // The word names no access request, but perhaps a transient binding.
                None => {
                    if let Some(found) = of_parent(&cluster, &configured, word).await? {
                        show_composite::show(context, self.output, &found)?;
                        return Ok(exit(found.is_yes()));
                    }
                    let found = of_binding(&cluster, &configured, word).await?;
                    let found = found.ok_or_else(|| none(&cluster, word))?;
                    show_binding::show(context, self.output, &found)?;
                    return Ok(exit(found.holds));
                }
            },
            (None, Some(template)) => self.of_template(&cluster, &configured, template).await?,
            (None, None) => return Err(Failure::new("name a request, or a --template")),
        };
        show::show(context, self.output, &explanation)?;
        Ok(exit(explanation.is_yes()))
    }

    async fn of_template(
        &self,
        cluster: &Cluster,
        configured: &Configured,
        template: &str,
    ) -> Result<Explanation> {
        let asks = match &self.person {
            None => {
                let (requester, all) = choose::identity(cluster).await?;
                (requester, extra::selected(configured, Some(&all)))
            }
            Some(user) => {
                let requester = Requester {
                    user: user.clone(),
                    uid: String::new(),
                    groups: self.group.clone(),
                };
                (requester, extra::selected(configured, None))
            }
        };
        let ask = Ask {
            template: template.to_owned(),
            prefix: "explained".to_owned(),
            duration: self.duration.clone(),
            target_pod: self.target_pod.clone(),
            container: self.container.clone(),
            reason: self.reason.clone(),
            extends: None,
            ticket: self.ticket.clone(),
            emergency: self.emergency,
        };
        for_each_kind!(requests R => {
            let templates = cluster.api::<<R as AccessRequest>::Template>();
            if cluster.find(&templates, template).await?.is_some() {
                return access::explain::<R>(cluster, configured, asks, ask, None).await;
            }
        });
        Err(Failure::new(format!(
            "no template {template} in namespace {}",
            cluster.namespace
        ))
        .next("`ozctl templates --all` lists the existing templates"))
    }
}

fn exit(yes: bool) -> Exit {
    if yes { Exit::SUCCESS } else { Exit::FAILURE }
}

/// Returns the explanation of the request `word`, if it exists.
async fn of_request(
    cluster: &Cluster,
    configured: &Configured,
    word: &str,
) -> Result<Option<Explanation>> {
    let Ok(named) = Named::request(word) else {
        return Ok(None);
    };
    for_each_kind!(requests R => {
        if named.may_be::<R>()
            && let Some(found) = existing::<R>(cluster, configured, named.name).await?
        {
            return Ok(Some(found));
        }
    });
    Ok(None)
}

/// Returns the actions of composites for the object `word`, if its kind is not of oz, or is of a published group, in
/// which a composite may have another kind of the same name.
async fn of_parent(
    cluster: &Cluster,
    configured: &Configured,
    word: &str,
) -> Result<Option<composite::Explanation>> {
    let kind = word.split_once('/').map(|(kind, _)| kind);
    let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
        return Ok(None);
    };
    let namespaces = &configured.settings.policy_namespaces;
    match kinds::find(kind).filter(|kind| kind.is_of_access()) {
        None => composite::explain(cluster, namespaces, word).await,
        Some(found) if kind.contains('.') && found.resource.group != oz_api::GROUP => {
            // Users who may not read composites learn about oz's kind.
            Ok(composite::explain(cluster, namespaces, word)
                .await
                .ok()
                .flatten())
        }
        Some(_) => Ok(None),
    }
}

/// Returns the failure for a word that names no object.
fn none(cluster: &Cluster, word: &str) -> Failure {
    match Named::request(word) {
        Err(failure) => failure,
        Ok(named) => super::revoke::no_request(cluster, named.name),
    }
}

async fn existing<R: Explained>(
    cluster: &Cluster,
    configured: &Configured,
    name: &str,
) -> Result<Option<Explanation>> {
    let Some(request) = cluster.find(&cluster.api::<R>(), name).await? else {
        return Ok(None);
    };
    let asks = (
        requester(&request).unwrap_or_default(),
        Ok(extra::sealed(request.meta())),
    );
    let ask = Ask::from_request(&request);
    let explanation = access::explain::<R>(cluster, configured, asks, ask, Some(&request));
    explanation.await.map(Some)
}

/// Returns the explanation of the binding `word`: `trb/NAME` or `tcrb/NAME`, or only its name;
/// `None` if it does not exist.
async fn of_binding(
    cluster: &Cluster,
    configured: &Configured,
    word: &str,
) -> Result<Option<binding::Explanation>> {
    let Some(named) = Named::parse(word, Role::Binding)? else {
        return Ok(None);
    };
    // A user who gave only a name may have meant a request, and need not know of bindings.
    let only_a_name = named.is_of_any_kind();
    for_each_kind!(bindings B => {
        if named.may_be::<B>()
            && let Some(found) = absent(only_a_name, cluster.find_kind::<B>(named.name).await)?
        {
            return binding::explain(cluster, configured, &found).await.map(Some);
        }
    });
    if only_a_name {
        return Ok(None);
    }
    Err(Failure::new(format!("there is no {word}"))
        .next("`ozctl get trb` and `ozctl get tcrb` list the existing ones"))
}

/// Returns `None` for a kind that is not installed, or that the user may not read, if the word was
/// only a name.
fn absent<K>(only_a_name: bool, answer: Result<Option<K>>) -> Result<Option<K>> {
    match answer {
        Err(failure) if only_a_name && (failure.is_unknown_kind() || failure.is_forbidden()) => {
            Ok(None)
        }
        answer => answer,
    }
}
