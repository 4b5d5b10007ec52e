//! Which template: the one that leads to the target, and of several the one that the user may use
//! and chooses.

use std::io::{BufRead, IsTerminal, Write};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::{ListParams, PostParams};
use oz_core::access::decide::{self, Ask as Asked};
use oz_core::access::stamp::Requester;
use oz_core::api::Operation;
use oz_core::kinds::{AccessRequest, AccessTemplate};

use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::names;
use crate::target::{Target, Way, hands_out, leads};

/// What is looked for.
pub(crate) struct Wish<'a> {
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation,
    pub(crate) template: Option<&'a str>,
    pub(crate) container: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

/// The template to ask by, and the pod of its workload if one is wanted.
pub(crate) async fn template<R>(
    context: &Context,
    cluster: &Cluster,
    wish: &Wish<'_>,
) -> Result<(R::Template, Option<String>)>
where
    R: AccessRequest,
{
    let api = cluster.api::<R::Template>();
    let named = match (wish.template, wish.target) {
        (Some(name), _) => Some(name),
        (None, Target::Template(name)) => Some(name.as_str()),
        _ => None,
    };
    let all = if let Some(name) = named {
        names::checked(name)?;
        let found = cluster.answer(api.get(name)).await;
        vec![found.map_err(|failure| match failure.is_not_found() {
            true => failure.next("`ozctl templates` lists those that are there"),
            false => failure,
        })?]
    } else {
        let listed = cluster.answer(api.list(&ListParams::default())).await;
        let listed = listed.map_err(|failure| match failure.is_forbidden() {
            true => failure.or_next("name the template with --template"),
            false => failure,
        })?;
        listed.items
    };
    let kind = <R::Template as kube::Resource>::kind(&()).into_owned();
    let leading: Vec<(R::Template, Way)> = all
        .into_iter()
        .filter_map(|template| leads(&template, wish.target).map(|way| (template, way)))
        .collect();
    if leading.is_empty() {
        return Err(nothing_leads(&kind, cluster, wish, named));
    }
    let (fitting, unfit): (Vec<_>, Vec<_>) = leading
        .into_iter()
        .partition(|(template, _)| hands_out(template, wish.operation, wish.container));
    let chosen = match fitting.len() {
        0 => return Err(nothing_fits(wish, &unfit)),
        1 => fitting.into_iter().next(),
        _ => several::<R::Template>(context, cluster, wish, fitting).await?,
    };
    let (template, way) = chosen.ok_or_else(|| Failure::new("no template was chosen"))?;
    let pod = match way {
        Way::Any => None,
        Way::Pod(name) => Some(name),
    };
    Ok((template, pod))
}

fn nothing_leads(kind: &str, cluster: &Cluster, wish: &Wish<'_>, named: Option<&str>) -> Failure {
    let namespace = &cluster.namespace;
    let target = wish.target;
    match named {
        Some(name) => Failure::new(format!(
            "template {name} in namespace {namespace} does not lead to {target}"
        ))
        .next("`ozctl templates` lists what each leads to"),
        None => Failure::new(format!(
            "no {kind} in namespace {namespace} leads to {target}"
        ))
        .next("`ozctl templates` lists what may be asked for; -n names another namespace"),
    }
}

fn nothing_fits<T: AccessTemplate>(wish: &Wish<'_>, unfit: &[(T, Way)]) -> Failure {
    let container = wish.container.map_or(String::new(), |container| {
        format!(" in container {container}")
    });
    Failure::new(format!(
        "no template allows {}{container} on {}: {} {} not",
        wish.operation,
        wish.target,
        some_of(unfit),
        if unfit.len() == 1 { "does" } else { "do" },
    ))
    .next(format!(
        "have a template's owners add {} to spec.accessConfig.operations{}",
        wish.operation,
        wish.container
            .map_or("", |_| ", or the container to spec.accessConfig.containers")
    ))
}

/// Names, as many as one reads in a message.
fn some_of<T: AccessTemplate>(templates: &[(T, Way)]) -> String {
    const SOME: usize = 10;
    let names = templates
        .iter()
        .take(SOME)
        .map(|(template, _)| template.name());
    let mut text = names.collect::<Vec<_>>().join(", ");
    if templates.len() > SOME {
        text.push_str(&format!(" and {} more", templates.len() - SOME));
    }
    text
}

/// Who we are, as the API server sees it.
pub(crate) async fn myself(cluster: &Cluster) -> Result<Requester> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let question = SelfSubjectReview::default();
    let answer = cluster
        .answer(reviews.create(&PostParams::default(), &question))
        .await?;
    let user = answer.status.and_then(|status| status.user_info);
    let user = user.ok_or_else(|| Failure::new("the API server does not say who you are"))?;
    Ok(Requester {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
    })
}

async fn several<T: AccessTemplate>(
    context: &Context,
    cluster: &Cluster,
    wish: &Wish<'_>,
    fitting: Vec<(T, Way)>,
) -> Result<Option<(T, Way)>> {
    let me = myself(cluster).await?;
    let ask = Asked {
        reason: wish.reason,
        container: wish.container,
    };
    let mut denial = None;
    let mut mine = Vec::new();
    for (template, way) in fitting {
        match decide::may(&me, template.name(), template.config(), ask) {
            Ok(()) => mine.push((template, way)),
            Err(refused) => denial = Some(refused),
        }
    }
    match (mine.len(), denial) {
        (0, Some(denial)) => Err(Failure::new(denial.message)),
        (0 | 1, _) => Ok(mine.into_iter().next()),
        _ if can_be_asked() => ask_which(context, mine),
        _ => Err(Failure::new(format!(
            "several templates lead to {}: {}",
            wish.target,
            some_of(&mine)
        ))
        .next("name one with --template")),
    }
}

fn can_be_asked() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn ask_which<T: AccessTemplate>(
    context: &Context,
    mut mine: Vec<(T, Way)>,
) -> Result<Option<(T, Way)>> {
    mine.sort_by(|(one, _), (other, _)| one.name().cmp(other.name()));
    context.say("Several templates let you in:");
    for (number, (template, _)) in mine.iter().enumerate() {
        let config = template.config();
        context.say(&format!(
            "  {}  {}  for {}, at most {}{}",
            number + 1,
            template.name(),
            config.default_duration,
            config.max_duration,
            if template.is_ready() {
                ""
            } else {
                "  (not ready)"
            },
        ));
    }
    loop {
        context.say_on(&format!("Which one (1-{})? ", mine.len()));
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(Failure::new("no template was chosen").next("name one with --template"));
        }
        let answer = line.trim();
        let number = answer
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(1));
        let at = number.filter(|&at| at < mine.len()).or_else(|| {
            mine.iter()
                .position(|(template, _)| template.name() == answer)
        });
        if let Some(at) = at {
            return Ok(Some(mine.swap_remove(at)));
        }
    }
}
