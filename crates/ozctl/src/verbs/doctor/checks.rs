//! The checks that any user can run: the API server, oz's kinds, the user's own rights, the webhook
//! by a dry-run, the templates.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use oz_api::{
    ExecAccessRequest, ExecAccessTemplate, GROUP, PodAccessTemplate, TemplateStatus, VERSION,
    labels,
};
use oz_core::kinds::{self, Family, Role};

use super::{Finding, logs};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::Ask;

/// The tolerated difference between clocks: sessions end by the API server's clock, and ozctl shows
/// times by the clock here.
const TOLERATED: SignedDuration = SignedDuration::from_secs(5);

pub(super) async fn api_server(cluster: &Cluster) -> Vec<Finding> {
    const CHECK: &str = "API server";
    let version = match cluster.answer(cluster.client.apiserver_version()).await {
        Ok(version) => version.git_version,
        Err(failure) => {
            let fix = failure.next_step().unwrap_or("look at your kubeconfig");
            return vec![Finding::wrong(CHECK, failure.message(), fix)];
        }
    };
    let answers = Finding::good(CHECK, format!("Kubernetes {version} at {}", cluster.url));
    vec![answers, clock(cluster).await]
}

async fn clock(cluster: &Cluster) -> Finding {
    const CHECK: &str = "clock";
    match cluster.clocks().await {
        Err(failure) => Finding::unknown(CHECK, failure.message()),
        Ok(clocks) => match clocks.server {
            None => Finding::unknown(CHECK, "the API server does not tell its time"),
            Some(date) => judge_clock(clocks.before, clocks.after, date),
        },
    }
}

/// Judges the clock. The server's date is in whole seconds, and was written between the two
/// instants.
fn judge_clock(before: Timestamp, after: Timestamp, date: Timestamp) -> Finding {
    const CHECK: &str = "clock";
    let second = SignedDuration::from_secs(1);
    let ahead = before.duration_since(date) - second;
    let behind = date.duration_since(after);
    if ahead > TOLERATED || behind > TOLERATED {
        let (off, side) = if ahead > behind {
            (ahead, "ahead of")
        } else {
            (behind, "behind")
        };
        return Finding::wrong(
            CHECK,
            format!("yours is {}s {side} the API server's", off.as_secs()),
            "set it by NTP; until then the remaining time of kept access is shown wrong",
        );
    }
    Finding::good(CHECK, "yours agrees with the API server's")
}

pub(super) async fn kinds(cluster: &Cluster) -> Finding {
    const CHECK: &str = "oz's kinds";
    let version = format!("{GROUP}/{VERSION}");
    let fix =
        "have an administrator install them: kubectl apply --server-side -f charts/oz/files/crds";
    let listed = cluster.client.list_api_group_resources(&version);
    let there: Vec<String> = match cluster.answer(listed).await {
        Ok(list) => list.resources.into_iter().map(|one| one.kind).collect(),
        Err(failure) if failure.is_unknown_kind() || failure.is_not_found() => {
            return Finding::wrong(CHECK, format!("{version} is not there"), fix);
        }
        Err(failure) => return Finding::unknown(CHECK, failure.message()),
    };
    let wanted = kinds::crds(Family::Access)
        .into_iter()
        .map(|crd| crd.spec.names.kind);
    let missing: Vec<String> = wanted.filter(|kind| !there.contains(kind)).collect();
    if missing.is_empty() {
        return Finding::good(CHECK, format!("{version} is there"));
    }
    Finding::wrong(CHECK, format!("{} are not there", missing.join(", ")), fix)
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
    const CHECK: &str = "your rights";
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
            Ok((false, verb, resource, role)) => findings.push(Finding::wrong(
                CHECK,
                format!("you may not {verb} {resource} in namespace {namespace}"),
                format!(
                    "have an administrator bind the ClusterRole {role} to you: kubectl create \
                     rolebinding {role} -n {namespace} --clusterrole={role} --user=YOU"
                ),
            )),
            Err(error) => {
                findings.push(Finding::unknown(CHECK, Failure::from(error).message()));
            }
        }
    }
    if findings.is_empty() {
        let text = format!("you may see templates, ask and give back in namespace {namespace}");
        findings.push(Finding::good(CHECK, text));
    }
    findings
}

/// Checks whether the webhook stamps, by a request that is never stored: the operator makes the
/// same check each minute.
pub(super) async fn stamp(cluster: &Cluster, oz: &str) -> Finding {
    const CHECK: &str = "webhook";
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
    match cluster.answer(api.create(&parameters, &request)).await {
        Ok(request) if request.annotations().contains_key(labels::REQUESTER) => {
            Finding::good(CHECK, "it stamps requests with who asks")
        }
        Ok(_) => Finding::wrong(
            CHECK,
            "requests are not stamped, so none is ever granted: the webhook is not in their path",
            format!(
                "start oz-webhook; it registers itself. See its log if it runs: {}",
                logs(oz, "webhook")
            ),
        ),
        Err(failure) if failure.is_forbidden() && failure.message().contains(" may not ") => {
            Finding::unknown(CHECK, failure.message())
        }
        Err(failure) => Finding::wrong(
            CHECK,
            failure.message(),
            format!(
                "see that oz-webhook runs and that the API server reaches it: kubectl get pods -n \
                 {oz}; {}",
                logs(oz, "webhook")
            ),
        ),
    }
}

pub(super) async fn templates(cluster: &Cluster) -> Finding {
    const CHECK: &str = "templates";
    let all = ListParams::default();
    let (exec, pod) = (
        cluster.api::<ExecAccessTemplate>(),
        cluster.api::<PodAccessTemplate>(),
    );
    let read = futures::future::try_join(
        cluster.answer(exec.list(&all)),
        cluster.answer(pod.list(&all)),
    );
    let (exec, pod) = match read.await {
        Ok(lists) => lists,
        Err(failure) => return Finding::unknown(CHECK, failure.message()),
    };
    let states = exec
        .iter()
        .map(|one| (format!("eat/{}", one.name_any()), one.status.clone()))
        .chain(
            pod.iter()
                .map(|one| (format!("pat/{}", one.name_any()), one.status.clone())),
        );
    let mut count = 0;
    let mut unfit = Vec::new();
    let mut names = Vec::new();
    for (name, status) in states {
        count += 1;
        let why = match status {
            None => "was never looked at by the operator".to_owned(),
            Some(status) if !status.ready => why(&status),
            Some(_) => continue,
        };
        unfit.push(format!("{name}: {why}"));
        names.push(name);
    }
    let namespace = &cluster.namespace;
    match (count, unfit.is_empty()) {
        (0, _) => Finding::good(CHECK, format!("there are none in namespace {namespace}")),
        (count, true) => Finding::good(CHECK, format!("all {count} in {namespace} are ready")),
        (_, false) => Finding::wrong(
            CHECK,
            format!("some in {namespace} cannot be used: {}", unfit.join("; ")),
            format!(
                "correct what each says: kubectl edit -n {namespace} {}",
                names.join(" ")
            ),
        ),
    }
}

/// Reports the objects that oz recently failed to read, by their events; `None` if there are none.
pub(super) async fn unreadable(cluster: &Cluster) -> Option<Finding> {
    let events = cluster.api::<Event>();
    let lately = ListParams::default().fields("reason=Unreadable");
    let found = cluster.answer(events.list(&lately)).await.ok()?;
    let names: BTreeSet<String> = found
        .iter()
        .map(|event| {
            let about = &event.involved_object;
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}/{}", part(&about.kind), part(&about.name))
        })
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        Finding::wrong(
            "what oz reads",
            format!(
                "some objects in {} cannot be read and are treated as gone: {}",
                cluster.namespace,
                names.join(", ")
            ),
            format!(
                "see why, and correct or delete them: kubectl get events -n {} --field-selector \
                 reason=Unreadable",
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
