//! The checks that any user can run: the API server, oz's kinds, the user's own rights, the webhook
//! by a dry-run, the templates.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use futures::future::{join_all, try_join_all};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use oz_api::{ExecAccessRequest, GROUP, TemplateStatus, VERSION, labels};
use oz_core::for_each_kind;
use oz_core::kinds::{self, AccessTemplate, Family, Role};

use super::finding::{Check, Finding};
use super::site::logs;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::Ask;

/// The tolerated difference between clocks: sessions end by the API server's clock, and ozctl shows
/// times by the clock here.
const TOLERATED: SignedDuration = SignedDuration::from_secs(5);

pub(super) async fn api_server(cluster: &Cluster) -> Vec<Finding> {
    const CHECK: Check = Check::ApiServer;
    let version = match cluster.answer(cluster.client.apiserver_version()).await {
        Ok(version) => version.git_version,
        Err(failure) => {
            let fix = failure.next_step().unwrap_or("check your kubeconfig");
            return vec![CHECK.wrong(failure.message(), fix)];
        }
    };
    let answers = CHECK.good(format!("Kubernetes {version} at {}", cluster.url));
    vec![answers, Check::Clock.concluded(clock(cluster).await)]
}

async fn clock(cluster: &Cluster) -> Result<Finding> {
    let clocks = cluster.clocks().await?;
    Ok(match clocks.server {
        None => Check::Clock.unknown("the API server sends no time"),
        Some(date) => judge_clock(clocks.before, clocks.after, date),
    })
}

/// Judges the clock. The server's date is in whole seconds, and was written between the two
/// instants.
fn judge_clock(before: Timestamp, after: Timestamp, date: Timestamp) -> Finding {
    let second = SignedDuration::from_secs(1);
    let ahead = before.duration_since(date) - second;
    let behind = date.duration_since(after);
    if ahead > TOLERATED || behind > TOLERATED {
        let (off, side) = if ahead > behind {
            (ahead, "ahead of")
        } else {
            (behind, "behind")
        };
        return Check::Clock.wrong(
            format!("yours is {}s {side} the API server's", off.as_secs()),
            "correct it with NTP; until then the remaining time of access is shown wrong",
        );
    }
    Check::Clock.good("yours agrees with the API server's")
}

pub(super) async fn kinds(cluster: &Cluster) -> Result<Finding> {
    const CHECK: Check = Check::Kinds;
    let version = format!("{GROUP}/{VERSION}");
    let fix =
        "have an administrator install them: kubectl apply --server-side -f charts/oz/files/crds";
    let listed = cluster.client.list_api_group_resources(&version);
    let there: Vec<String> = match cluster.answer(listed).await {
        Ok(list) => list.resources.into_iter().map(|one| one.kind).collect(),
        Err(failure) if failure.is_unknown_kind() || failure.is_not_found() => {
            return Ok(CHECK.wrong(format!("{version} is not installed"), fix));
        }
        Err(failure) => return Err(failure),
    };
    let wanted = kinds::crds(Family::Access)
        .into_iter()
        .map(|crd| crd.spec.names.kind);
    let missing: Vec<String> = wanted.filter(|kind| !there.contains(kind)).collect();
    Ok(match missing.is_empty() {
        true => CHECK.good(format!("{version} is installed")),
        false => CHECK.wrong(format!("{} are not installed", missing.join(", ")), fix),
    })
}

/// Returns the rights that users need: verb, resource, and the role of oz that grants the right.
fn needed() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    kinds::all().into_iter().flat_map(|kind| {
        let (verbs, role): (&[_], _) = match kind.role {
            Role::Template => (&["list"], "oz-view-access"),
            Role::Request => (&["create", "watch", "delete"], "oz-request-access"),
            _ => (&[], ""),
        };
        let plural = kind.resource.plural;
        verbs.iter().map(move |&verb| (verb, plural.clone(), role))
    })
}

pub(super) async fn rights(cluster: &Cluster) -> Vec<Finding> {
    const CHECK: Check = Check::YourRights;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answers = join_all(needed().map(|(verb, resource, role)| {
        let reviews = &reviews;
        async move {
            let question = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        group: Some(GROUP.to_owned()),
                        namespace: Some(cluster.namespace.clone()),
                        resource: Some(resource.clone()),
                        verb: Some(verb.to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let answer = reviews.create(&PostParams::default(), &question).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, kube::Error>((allowed, verb, resource, role))
        }
    }))
    .await;
    let namespace = &cluster.namespace;
    let mut findings = Vec::new();
    for answer in answers {
        match answer {
            Ok((true, ..)) => {}
            Ok((false, verb, resource, role)) => findings.push(CHECK.wrong(
                format!("you may not {verb} {resource} in namespace {namespace}"),
                format!(
                    "have an administrator bind the ClusterRole {role} to you: kubectl create \
                     rolebinding {role} -n {namespace} --clusterrole={role} --user=YOU"
                ),
            )),
            Err(error) => {
                findings.push(CHECK.unknown(Failure::from(error).message()));
            }
        }
    }
    if findings.is_empty() {
        let text = format!(
            "you may read templates, request and revoke access in namespace \
            {namespace}"
        );
        findings.push(CHECK.good(text));
    }
    findings
}

/// Checks whether the webhook stamps, by a request that is never stored: the operator makes the
/// same check each minute.
pub(super) async fn stamp(cluster: &Cluster, oz: &str) -> Result<Finding> {
    const CHECK: Check = Check::Webhook;
    let ask = Ask {
        template: "oz-doctor".to_owned(),
        prefix: "oz-doctor".to_owned(),
        ..Ask::default()
    };
    let request: ExecAccessRequest = ask.request();
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = cluster.api::<ExecAccessRequest>();
    let finding = match cluster.answer(api.create(&parameters, &request)).await {
        Ok(request) if request.annotations().contains_key(labels::REQUESTER) => {
            CHECK.good("it stamps requests with their requester")
        }
        Ok(_) => CHECK.wrong(
            "requests are not stamped, so none is ever granted: the webhook is not called",
            format!(
                "start oz-webhook; it registers itself. See its log if it runs: {}",
                logs(oz, "webhook")
            ),
        ),
        Err(failure) if failure.is_forbidden() && failure.message().contains(" may not ") => {
            return Err(failure);
        }
        Err(failure) => CHECK.wrong(
            failure.message(),
            format!(
                "check that oz-webhook runs and that the API server can reach it: kubectl get pods \
                 -n {oz}; {}",
                logs(oz, "webhook")
            ),
        ),
    };
    Ok(finding)
}

pub(super) async fn templates(cluster: &Cluster) -> Result<Finding> {
    const CHECK: Check = Check::Templates;
    let mut lists = Vec::new();
    for_each_kind!(templates T => { lists.push(unfit::<T>(cluster).boxed_local()) });
    let lists = try_join_all(lists).await?;
    let count: usize = lists.iter().map(|(count, _)| count).sum();
    let unfit: Vec<(String, String)> = lists.into_iter().flat_map(|(_, unfit)| unfit).collect();
    let namespace = &cluster.namespace;
    let names: Vec<&str> = unfit.iter().map(|(name, _)| &name[..]).collect();
    let unfit: Vec<String> = unfit
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    Ok(match (count, unfit.is_empty()) {
        (0, _) => CHECK.good(format!("there are none in namespace {namespace}")),
        (count, true) => CHECK.good(format!("all {count} in {namespace} are ready")),
        (_, false) => CHECK.wrong(
            format!("some in {namespace} cannot be used: {}", unfit.join("; ")),
            format!(
                "correct the cause of each: kubectl edit -n {namespace} {}",
                names.join(" ")
            ),
        ),
    })
}

/// Returns the number of templates of a kind, and those that cannot be used, with the reasons.
async fn unfit<T: AccessTemplate>(cluster: &Cluster) -> Result<(usize, Vec<(String, String)>)> {
    let templates = cluster.api::<T>();
    let templates = cluster
        .answer(templates.list(&ListParams::default()))
        .await?;
    let kind = T::short_names().first().unwrap_or(&T::NAME);
    let mut unfit = Vec::new();
    for template in &templates {
        let why = match template.status() {
            None => "was never reconciled by the operator".to_owned(),
            Some(status) if !status.ready => why(status),
            Some(_) => continue,
        };
        unfit.push((format!("{kind}/{}", template.name_any()), why));
    }
    Ok((templates.items.len(), unfit))
}

/// Reports the objects that oz recently failed to read, by their events; `None` if there are none.
pub(super) async fn unreadable(cluster: &Cluster) -> Option<Finding> {
    let events = cluster.api::<Event>();
    let lately = ListParams::default().fields("reason=Unreadable");
    let found = cluster.answer(events.list(&lately)).await.ok()?;
    let names: BTreeSet<String> = found
        .iter()
        .filter_map(|event| {
            let about = &event.involved_object;
            let (kind, name) = (about.kind.as_ref()?, about.name.as_ref()?);
            Some(format!("{kind}/{name}"))
        })
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        Check::Unreadable.wrong(
            format!(
                "some objects in {} cannot be read and are treated as deleted: {}",
                cluster.namespace,
                names.join(", ")
            ),
            format!(
                "find the cause, and correct or delete them: kubectl get events -n {} \
                 --field-selector reason=Unreadable",
                cluster.namespace
            ),
        )
    })
}

fn why(status: &TemplateStatus) -> String {
    let mut conditions = status.conditions.iter();
    let failed = conditions.find(|condition| condition.status == "False");
    let message = failed.map_or("not ready", |condition| &condition.message);
    // The message of the original begins with the prefix that ozctl prints itself.
    message.trim_start_matches("Error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_judged_by_more_than_what_an_answer_takes() {
        let date: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let after = |seconds| date + SignedDuration::from_secs(seconds);
        for (before, answered, good) in [
            (0, 1, true),
            (-4, 2, true),
            (0, 30, true),
            (10, 11, false),
            (-20, -19, false),
        ] {
            let finding = judge_clock(after(before), after(answered), date);
            assert_eq!(
                !finding.is_wrong(),
                good,
                "{before} {answered}: {finding:?}"
            );
        }
    }
}
