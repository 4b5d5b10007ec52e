//! `ozctl explain`: how a request was decided, or would be, rule by rule, and the plan that the
//! operator would carry out. All of it comes from the functions that the operator itself calls.

mod binding;
mod made_now;
mod plan;
mod show;

use clap::Args;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use kube::ResourceExt;
use oz_core::access::decide::{self, Ask as Asked, Rule};
use oz_core::access::stamp::{self, Requester};
use oz_core::access::window::Window;
use oz_core::api::{ExecAccessRequest, Phase, PodAccessRequest, RequestStatus};
use oz_core::validate::Violation;

use self::plan::Planned;
use super::revoke::kinds;
use crate::choose;
use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::names;
use crate::output::TextFormat;
use crate::request::{Ask, RequestKind};
use crate::target::Offering;

/// Show how a request is decided, rule by rule, and what would be done
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl explain alice-x7k2p
  ozctl explain trb/lea-m2k9c
  ozctl explain --template shell
  ozctl explain --template shell --user bob --group devs --duration 8h

With --template, --user is who would ask; the user of your kubeconfig is then
chosen by --context.

The requester's seal is checked by the operator alone: nobody else has its key.
What needs rights that you do not have, such as listing pods, is left out, and
that is said.

Exit codes: 0 if access is or would be given, 1 if not.")]
pub(crate) struct Explain {
    /// Name of a request or transient binding, or KIND/NAME
    #[arg(required_unless_present = "template", add = ArgValueCandidates::new(complete::requests))]
    request: Option<String>,
    /// A template instead: what if somebody asked by it
    #[arg(long, conflicts_with = "request", add = ArgValueCandidates::new(complete::templates))]
    template: Option<String>,
    /// Who would ask, as --user [default: you]
    #[arg(long = "for", requires = "template", value_name = "USER")]
    person: Option<String>,
    /// A group that they would be in; may be repeated
    #[arg(long, requires = "template", value_name = "GROUP")]
    group: Vec<String>,
    /// How long they would ask for
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
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// All that is to be told.
struct Explanation {
    kind: String,
    namespace: String,
    name: Option<String>,
    requester: Requester,
    ask: Ask,
    /// What became of it, if it exists.
    status: Option<RequestStatus>,
    template_exists: bool,
    rules: Vec<Rule>,
    request_violations: Vec<Violation>,
    template_violations: Vec<Violation>,
    window: Option<Window>,
    plan: Planned,
}

impl Explanation {
    /// Whether access is there, or would be given.
    fn is_yes(&self) -> bool {
        if let Some(status) = &self.status
            && status.phase != Phase::Pending
        {
            return status.phase == Phase::Active;
        }
        self.template_exists
            && self.rules.iter().all(|rule| rule.verdict.is_ok())
            && self.request_violations.is_empty()
            && self.template_violations.is_empty()
    }
}

impl Explain {
    /// With a template, `--user` of the command line is who would ask, and not the kubeconfig's;
    /// unless `--for` says who.
    pub(crate) fn take_person(&mut self, user: &mut Option<String>) {
        if self.template.is_some() {
            self.person = self.person.take().or_else(|| user.take());
        }
    }

    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        if !self.group.is_empty() && self.person.is_none() {
            return Err(
                Failure::new("--group goes with a person who would be in it")
                    .next("name one with --user"),
            );
        }
        let cluster = context.cluster().await?;
        let exit = |yes| if yes { Exit::SUCCESS } else { Exit::FAILURE };
        let explanation = match (&self.request, &self.template) {
            (Some(word), _) => match of_request(&cluster, word).await? {
                Some(found) => found,
                // Not a request of access; perhaps a transient binding.
                None => {
                    let explained = binding::explain(context, &cluster, word, self.output).await?;
                    return explained.map(exit).ok_or_else(|| none(&cluster, word));
                }
            },
            (None, Some(template)) => self.of_template(&cluster, template).await?,
            (None, None) => return Err(Failure::new("name a request, or a --template")),
        };
        show::show(context, self.output, &explanation)?;
        Ok(exit(explanation.is_yes()))
    }

    async fn of_template(&self, cluster: &Cluster, template: &str) -> Result<Explanation> {
        names::checked(template)?;
        let requester = match &self.person {
            None => choose::myself(cluster).await?,
            Some(user) => Requester {
                user: user.clone(),
                uid: String::new(),
                groups: self.group.clone(),
            },
        };
        let ask = Ask {
            template: template.to_owned(),
            prefix: "explained".to_owned(),
            duration: self.duration.clone(),
            target_pod: self.target_pod.clone(),
            container: self.container.clone(),
            reason: self.reason.clone(),
            extends: None,
        };
        let exec = cluster.api::<<ExecAccessRequest as RequestKind>::Template>();
        if cluster.find(&exec, template).await?.is_some() {
            return explained::<ExecAccessRequest>(cluster, requester, ask, None).await;
        }
        let pod = cluster.api::<<PodAccessRequest as RequestKind>::Template>();
        if cluster.find(&pod, template).await?.is_some() {
            return explained::<PodAccessRequest>(cluster, requester, ask, None).await;
        }
        Err(Failure::new(format!(
            "no template {template} in namespace {}",
            cluster.namespace
        ))
        .next("`ozctl templates --all` lists those that are there"))
    }
}

/// The request that `word` names, if there is one.
async fn of_request(cluster: &Cluster, word: &str) -> Result<Option<Explanation>> {
    let Ok((exec, pod, name)) = kinds(word) else {
        return Ok(None);
    };
    if exec && let Some(found) = existing::<ExecAccessRequest>(cluster, name).await? {
        return Ok(Some(found));
    }
    if pod {
        return existing::<PodAccessRequest>(cluster, name).await;
    }
    Ok(None)
}

/// The failure that a word which names nothing is.
fn none(cluster: &Cluster, word: &str) -> Failure {
    match kinds(word) {
        Err(failure) => failure,
        Ok((_, _, name)) => super::revoke::no_request(cluster, name),
    }
}

async fn existing<R>(cluster: &Cluster, name: &str) -> Result<Option<Explanation>>
where
    R: plan::Explained,
    R::Template: Offering,
{
    let Some(request) = cluster.find(&cluster.api::<R>(), name).await? else {
        return Ok(None);
    };
    // What the webhook wrote; whether it is believed is the operator's to say, and its status does.
    let requester = stamp::of(request.meta())
        .and_then(|text| serde_json::from_str::<Requester>(text).ok())
        .or_else(|| {
            super::requests::requester(&request).map(|user| Requester {
                user,
                ..Requester::default()
            })
        })
        .unwrap_or_default();
    let ask = request.asked();
    explained::<R>(cluster, requester, ask, Some(&request))
        .await
        .map(Some)
}

async fn explained<R>(
    cluster: &Cluster,
    requester: Requester,
    ask: Ask,
    request: Option<&R>,
) -> Result<Explanation>
where
    R: plan::Explained,
    R::Template: Offering,
{
    let templates = cluster.api::<R::Template>();
    let template = cluster.find(&templates, &ask.template).await?;
    let now = Timestamp::now();
    let asked = Asked {
        reason: ask.reason.as_deref(),
        container: ask.container.as_deref(),
    };
    let created = request
        .and_then(|request| request.meta().creation_timestamp.as_ref())
        .map_or(now, |time| time.0);
    let mut rules = Vec::new();
    let mut template_violations = Vec::new();
    let mut window = None;
    let would_be = plan::would_be::<R>(&cluster.namespace, &requester, &ask, now)?;
    let checked = R::check_request(&would_be);
    if let Some(template) = &template {
        rules = decide::rules(&requester, &ask.template, template.config(), asked).collect();
        match R::terms(template) {
            Ok((default, max)) => {
                let asked = checked.as_ref().ok().and_then(|asked| asked.duration);
                window = Some(Window::new(created, asked, default, max));
            }
            Err(violations) => template_violations = violations,
        }
    }
    let template_exists = template.is_some();
    let plan = would_be.plan(cluster, template, now).await?;
    Ok(Explanation {
        kind: R::kind(&()).into_owned(),
        namespace: cluster.namespace.clone(),
        name: request.map(ResourceExt::name_any),
        requester,
        status: request.and_then(|request| request.request_status().cloned()),
        template_exists,
        ask,
        rules,
        request_violations: checked.err().unwrap_or_default(),
        template_violations,
        window,
        plan,
    })
}
