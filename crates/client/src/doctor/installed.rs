//! The checks that require an administrator: how oz is installed, and whether it runs.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use oz_api::{GROUP, names};
use x509_parser::pem::Pem;

use super::finding::{Check, Finding, Object};
use super::registrations::{Hook, MUTATING, Registration, VALIDATING};
use super::site::{Site, logs};
use crate::cluster::Cluster;
use crate::explain::operator;
use crate::failure::{Failure, Result};

/// The age of a stale lease. The operator renews its lease every two seconds.
const STALE: SignedDuration = SignedDuration::from_secs(60);
/// The minimum remaining validity of a certificate: with less, no component renews it any more.
const LEAST_LEFT: SignedDuration = SignedDuration::from_hours(24);

/// Checks the registrations for oz's kinds, and their certificates.
pub(super) fn webhooks(registrations: &Result<Vec<Registration>>) -> Vec<Finding> {
    const CHECK: Check = Check::Registration;
    let registrations = match registrations {
        Ok(registrations) => registrations,
        Err(failure) => return vec![CHECK.unknown(failure.message())],
    };
    let of = |kind: &str| {
        let hooks = registrations.iter().filter(|one| one.object.kind == kind);
        let hooks = hooks.flat_map(|one| &one.hooks);
        hooks
            .filter(|hook| hook.concerns(GROUP))
            .collect::<Vec<_>>()
    };
    let (stamping, checking) = (of(MUTATING), of(VALIDATING));
    let (stamps, checks) = (stamping.len(), checking.len());
    let hooks = [stamping, checking].concat();
    let registration = if stamps == 0 || checks == 0 {
        CHECK.wrong(
            format!("{stamps} hooks stamp and {checks} check oz's kinds; both are needed"),
            "start oz-webhook, or restart it: it registers itself",
        )
    } else {
        CHECK.good(format!(
            "{stamps} hooks stamp and {checks} check oz's kinds"
        ))
    };
    let mut findings = vec![registration, certificates(&hooks, Timestamp::now())];
    let others = registrations.iter().filter(|one| one.is_foreign(GROUP));
    findings.extend(others.map(foreign));
    findings
}

/// Reports the original's registration, which remains when only its pods are removed, and then
/// rejects every request.
fn foreign(registration: &Registration) -> Finding {
    let object = &registration.object;
    let wrong = Check::OtherRegistrations.wrong(
        format!("{object} registers hooks for oz's kinds, and is not oz's"),
        format!(
            "if it is the original Oz's, or of an earlier installation of oz, remove it: kubectl \
             delete {object}"
        ),
    );
    wrong.about(object.clone())
}

fn certificates(hooks: &[&Hook], now: Timestamp) -> Finding {
    const CHECK: Check = Check::Certificates;
    const FIX: &str = "restart oz-webhook: it creates its certificates and writes the bundle";
    let mut first_end: Option<Timestamp> = None;
    for Hook { name, config, .. } in hooks {
        let bundle = config
            .ca_bundle
            .as_ref()
            .map_or(&[][..], |bundle| &bundle.0);
        // With several certificates, as during a replacement, the youngest counts.
        let end = Pem::iter_from_buffer(bundle)
            .flatten()
            .filter_map(|pem| {
                let certificate = pem.parse_x509().ok()?;
                Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
            })
            .max();
        let Some(end) = end else {
            return CHECK.wrong(format!("{name} has no certificate authority"), FIX);
        };
        if end.duration_since(now) < LEAST_LEFT {
            return CHECK.wrong(format!("that of {name} expires at {end}"), FIX);
        }
        first_end = Some(first_end.map_or(end, |first| first.min(end)));
    }
    match first_end {
        Some(end) => CHECK.good(format!("valid until {end} at least")),
        None => CHECK.unknown("there is no registration"),
    }
}

pub(super) async fn operator(cluster: &Cluster, oz: &str) -> Result<Finding> {
    const CHECK: Check = Check::Operator;
    let fix = format!(
        "start oz-operator, or find out why it does not run: {}",
        logs(oz, "operator")
    );
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), oz);
    let object = Object::in_namespace("Lease", oz, names::LEASE);
    let Some(lease) = cluster.find(&leases, names::LEASE).await? else {
        let text = format!(
            "it holds no lease in namespace {oz}: it runs without --leader-elect, or not at all"
        );
        return Ok(CHECK.unknown(text).about(object));
    };
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let since = renewed.map(|renewed| Timestamp::now().duration_since(renewed.0));
    let finding = match (since, holder.filter(|holder| !holder.is_empty())) {
        (Some(since), Some(holder)) if since < STALE => CHECK.good(format!("{holder} leads")),
        (Some(since), _) => CHECK.wrong(
            format!(
                "there has been no leader for {}s; access expires only where Kubernetes ends it",
                since.as_secs()
            ),
            fix,
        ),
        (None, _) => CHECK.wrong("there is no leader", fix),
    };
    Ok(finding.about(object))
}

/// The right to create pods, which is not required without dedicated pods.
const MAKE_PODS: (&str, &str, &str, &str) = ("create", "", "pods", "");
/// The rights that the operator requires to grant and to revoke access.
const OPERATOR: [(&str, &str, &str, &str); 10] = [
    ("create", "rbac.authorization.k8s.io", "roles", ""),
    ("delete", "rbac.authorization.k8s.io", "roles", ""),
    ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
    ("delete", "rbac.authorization.k8s.io", "rolebindings", ""),
    ("list", "", "pods", ""),
    MAKE_PODS,
    ("create", "", "pods", "exec"),
    ("get", "", "pods", "exec"),
    ("patch", GROUP, "execaccessrequests", "status"),
    ("delete", GROUP, "execaccessrequests", ""),
];

/// Returns the account in the operator's Deployment; else the default.
fn account(deployments: &[Deployment]) -> String {
    let account = operator::operator(deployments)
        .and_then(operator::pod)
        .and_then(|spec| spec.service_account_name.clone());
    account.unwrap_or_else(|| names::OPERATOR.to_owned())
}

pub(super) async fn operator_rights(site: &Site<'_>) -> Result<Finding> {
    const CHECK: Check = Check::OperatorsRights;
    let Site { cluster, oz, .. } = site;
    let account = &account(site.readable());
    let makes_pods = site
        .config
        .as_ref()
        .map_or(true, |config| config.access.pods);
    let wanted = OPERATOR.into_iter();
    let wanted = wanted.filter(|right| makes_pods || *right != MAKE_PODS);
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let answers = join_all(wanted.map(|(verb, group, resource, subresource)| {
        let reviews = &reviews;
        async move {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let question = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(names::service_account(oz, account)),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{oz}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(ResourceAttributes {
                        group: some(group),
                        namespace: Some(cluster.namespace.clone()),
                        resource: Some(resource.to_owned()),
                        subresource: some(subresource),
                        verb: Some(verb.to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let parameters = PostParams::default();
            let created = reviews.create(&parameters, &question);
            let answer = cluster.answer(created).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            let slash = if subresource.is_empty() { "" } else { "/" };
            let what = format!("{verb} {resource}{slash}{subresource}");
            Ok::<_, Failure>((!allowed).then_some(what))
        }
    }))
    .await;
    let mut missing = BTreeSet::new();
    for answer in answers {
        missing.extend(answer?);
    }
    if missing.is_empty() {
        return Ok(CHECK.good(format!(
            "they are sufficient in namespace {}",
            cluster.namespace
        )));
    }
    let missing: Vec<String> = missing.into_iter().collect();
    Ok(CHECK.wrong(
        format!(
            "it may not {} in namespace {}",
            missing.join(", "),
            cluster.namespace
        ),
        "apply oz's roles again: kubectl apply --server-side -f deploy/rbac",
    ))
}

/// Reports the running versions.
pub(super) fn versions(site: &Site<'_>) -> Finding {
    const CHECK: Check = Check::Versions;
    let (ours, oz) = (env!("CARGO_PKG_VERSION"), site.oz);
    let deployments = match &site.deployments {
        Ok(list) => list,
        Err(failure) => {
            return CHECK.unknown(format!("ozctl is {ours}; {}", failure.message()));
        }
    };
    let versions: BTreeSet<String> = deployments.iter().flat_map(versions_of).collect();
    let seen: Vec<&str> = versions.iter().map(String::as_str).collect();
    match &seen[..] {
        [] if deployments.is_empty() => {
            CHECK.unknown(format!("ozctl is {ours}; oz runs as no Deployment of {oz}"))
        }
        [] => CHECK.unknown(format!(
            "ozctl is {ours}; the version of oz is in neither tags nor labels of {oz}"
        )),
        [one] if *one == ours => CHECK.good(format!("ozctl and oz are {ours}")),
        seen => CHECK.wrong(
            format!("ozctl is {ours}, oz is {}", seen.join(" and ")),
            "install the same version of both",
        ),
    }
}

/// Returns the versions by the tags of the images; for an image by digest, the version in the label
/// of its Deployment.
fn versions_of(deployment: &Deployment) -> Vec<String> {
    let labels = deployment.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get("app.kubernetes.io/version"));
    let spec = deployment.spec.as_ref();
    let spec = spec.and_then(|spec| spec.template.spec.as_ref());
    let containers = spec.iter().flat_map(|spec| &spec.containers);
    let images = containers.filter_map(|container| container.image.as_deref());
    let version = |image: &str| {
        let tag = match image.split_once('@') {
            Some((named, _)) => label.map(String::as_str).or_else(|| tag(named)),
            None => tag(image).or(label.map(String::as_str)),
        };
        Some(tag?.trim_start_matches('v').to_owned())
    };
    images.filter_map(version).collect()
}

/// Returns the text after the last colon, unless that is the colon before a registry's port.
fn tag(image: &str) -> Option<&str> {
    let (_, tag) = image.rsplit_once(':')?;
    (!tag.contains('/')).then_some(tag)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, image: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {
                "app.kubernetes.io/component": "operator", "app.kubernetes.io/version": "1.2.3",
            }},
            "spec": {"selector": {}, "template": {"spec": {
                "serviceAccountName": name,
                "containers": [{"name": "operator", "image": image}],
            }}},
        }))
        .unwrap()
    }

    #[test]
    fn a_version_is_the_tags_or_else_the_labels() {
        for (image, version) in [
            ("registry.example/oz:v2.0.0", "2.0.0"),
            ("registry.example:5000/oz:2.0.0", "2.0.0"),
            ("registry.example:5000/oz", "1.2.3"),
            ("registry.example/oz@sha256:0123", "1.2.3"),
            ("registry.example:5000/oz:2.0.0@sha256:0123", "1.2.3"),
        ] {
            assert_eq!(versions_of(&deployment("oz", image)), [version], "{image}");
        }
    }

    #[test]
    fn operator_account_is_that_of_its_deployment() {
        assert_eq!(account(&[]), "oz-operator");
        let other = deployment("access-oz-operator", "oz:1");
        assert_eq!(account(&[other]), "access-oz-operator");
    }
}
