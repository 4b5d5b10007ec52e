//! The choice of the template: the template that leads to the target, and of several the one that the user may use and
//! chooses.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{Operation, Requester};
use oz_core::access::decide;
use oz_core::access::extra::Extra;
use oz_core::kinds::{AccessRequest, AccessTemplate};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::target::{PodChoice, Target, hands_out, leads};
use crate::{names, request};

/// The access that a user wants.
pub struct AccessQuery<'a> {
    /// The target.
    pub target: &'a Target,
    /// The operation.
    pub operation: Operation,
    /// The template, if the user named one.
    pub template: Option<&'a str>,
    /// The container, if the user named one.
    pub container: Option<&'a str>,
    /// True if the access is an emergency.
    pub emergency: bool,
}

/// Returns the template for the request, and the pod of its workload if the user named one. `which` chooses among
/// several templates that the user may use, in the order of their names; it returns `None` if there is no user to ask.
///
/// # Errors
/// No template leads to the target, or grants access to the user.
pub async fn template<R>(
    cluster: &Cluster,
    query: &AccessQuery<'_>,
    which: impl FnOnce(&[&R::Template]) -> Option<Result<usize>>,
) -> Result<(R::Template, Option<String>)>
where
    R: AccessRequest,
{
    let api = cluster.api::<R::Template>();
    let named = match (query.template, query.target) {
        (Some(name), _) => Some(name),
        (None, Target::Template(name)) => Some(name.as_str()),
        _ => None,
    };
    let all = if let Some(name) = named {
        names::checked(name)?;
        let found = cluster.answer(api.get(name)).await;
        vec![found.map_err(|failure| match failure.is_not_found() {
            true => failure.next("`ozctl templates` lists the existing templates"),
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
    let leading: Vec<(R::Template, PodChoice)> = all
        .into_iter()
        .filter_map(|template| leads(&template, query.target).map(|way| (template, way)))
        .collect();
    if leading.is_empty() {
        return Err(nothing_leads(&kind, cluster, query, named));
    }
    let (fitting, unfit): (Vec<_>, Vec<_>) = leading
        .into_iter()
        .partition(|(template, _)| hands_out(template, query.operation, query.container));
    let chosen = match fitting.len() {
        0 => return Err(nothing_fits(query, &unfit)),
        1 => fitting.into_iter().next(),
        _ => several::<R::Template>(cluster, query, fitting, which).await?,
    };
    let (template, way) = chosen.ok_or_else(|| Failure::new("no template was chosen"))?;
    let pod = match way {
        PodChoice::Any => None,
        PodChoice::Pod(name) => Some(name),
    };
    Ok((template, pod))
}

/// Returns the existing grants; none for a user who may not list them, who gets access nevertheless.
pub async fn grants<R: AccessRequest>(cluster: &Cluster) -> Vec<R> {
    // A kind that creates a pod for each request has no pod to use again.
    if R::MAKES_POD {
        return Vec::new();
    }
    let listed = cluster.api::<R>().list(&ListParams::default()).await;
    let mut grants = listed.map_or_else(|_| Vec::new(), |list| list.items);
    grants.retain(|one| one.status().is_some_and(|status| status.ready));
    grants
}

/// A pod of one of the user's own grants.
pub struct LastUsed {
    /// The name of the pod.
    pub pod: String,
    /// The request of the grant.
    pub request: String,
}

/// Returns the pod of the last of the user's own grants by this template: work that began there continues there.
pub async fn last_used<R: AccessRequest>(
    cluster: &Cluster,
    mut grants: Vec<R>,
    template: &str,
) -> Option<LastUsed> {
    grants.retain(|one| one.terms().template == template);
    if grants.is_empty() {
        return None;
    }
    let me = myself(cluster).await.ok()?.user;
    let mine = grants
        .into_iter()
        .filter(|one| request::user(one).as_deref() == Some(me.as_str()));
    let last = mine.max_by_key(|one| one.meta().creation_timestamp.clone())?;
    Some(LastUsed {
        pod: last.status()?.pod_name.clone()?,
        request: last.name_any(),
    })
}

fn nothing_leads(
    kind: &str,
    cluster: &Cluster,
    query: &AccessQuery<'_>,
    named: Option<&str>,
) -> Failure {
    let namespace = &cluster.namespace;
    let target = query.target;
    match named {
        Some(name) => Failure::new(format!(
            "template {name} in namespace {namespace} does not grant access to {target}"
        ))
        .next("`ozctl templates` lists the target of each template"),
        None => Failure::new(format!(
            "no {kind} in namespace {namespace} grants access to {target}"
        ))
        .next("`ozctl templates` lists the templates; -n selects another namespace"),
    }
}

fn nothing_fits<T: AccessTemplate>(query: &AccessQuery<'_>, unfit: &[(T, PodChoice)]) -> Failure {
    let container = query.container.map_or(String::new(), |container| {
        format!(" in container {container}")
    });
    Failure::new(format!(
        "no template allows {}{container} on {}: {} {} not",
        query.operation,
        query.target,
        some_of(unfit),
        if unfit.len() == 1 { "does" } else { "do" },
    ))
    .next({
        let operation = query.operation;
        let next =
            format!("have a template's owners add {operation} to spec.accessConfig.operations");
        match query.container {
            None => next,
            Some(_) => format!("{next}, or the container to spec.accessConfig.containers"),
        }
    })
}

/// Returns the names, as many as fit into a message.
fn some_of<T: AccessTemplate>(templates: &[(T, PodChoice)]) -> String {
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

/// Returns the user as the API server identifies the user.
pub async fn myself(cluster: &Cluster) -> Result<Requester> {
    Ok(identity(cluster).await?.0)
}

/// Returns the user as the API server identifies the user, with all extra attributes.
pub async fn identity(cluster: &Cluster) -> Result<(Requester, Extra)> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let question = SelfSubjectReview::default();
    let answer = cluster
        .answer(reviews.create(&PostParams::default(), &question))
        .await?;
    let user = answer.status.and_then(|status| status.user_info);
    let unknown = || Failure::new("the API server returned no user");
    let user = user.ok_or_else(unknown)?;
    let username = user.username.ok_or_else(unknown)?;
    let requester = Requester {
        user: username,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.into_iter().flatten().collect(),
    };
    Ok((requester, user.extra.into_iter().flatten().collect()))
}

async fn several<T: AccessTemplate>(
    cluster: &Cluster,
    query: &AccessQuery<'_>,
    fitting: Vec<(T, PodChoice)>,
    which: impl FnOnce(&[&T]) -> Option<Result<usize>>,
) -> Result<Option<(T, PodChoice)>> {
    let me = myself(cluster).await?;
    let ask = decide::Ask {
        container: query.container,
        emergency: query.emergency,
        ..decide::Ask::default()
    };
    let mut denial = None;
    let mut mine = Vec::new();
    for (template, way) in fitting {
        match decide::may_ask(&me, template.name(), template.config(), ask) {
            Ok(()) => mine.push((template, way)),
            Err(refused) => denial = Some(refused),
        }
    }
    match (mine.len(), denial) {
        (0, Some(denial)) => return Err(Failure::new(denial.message)),
        (0 | 1, _) => return Ok(mine.into_iter().next()),
        _ => {}
    }
    mine.sort_by(|(one, _), (other, _)| one.name().cmp(other.name()));
    let templates: Vec<&T> = mine.iter().map(|(template, _)| template).collect();
    match which(&templates) {
        Some(chosen) => {
            let chosen = chosen?;
            Ok(mine.into_iter().nth(chosen))
        }
        None => Err(Failure::new(format!(
            "several templates grant access to {}: {}",
            query.target,
            some_of(&mine)
        ))
        .next("name one with --template")),
    }
}
