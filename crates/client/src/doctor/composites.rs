//! The checks that the composites work as declared, and that no other controller carries them out
//! as well.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodSpec;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use oz_composites::Declaration;
use oz_composites::declared::KindName;

use super::finding::{Check, Finding, Object, name};
use super::site::Site;
use crate::cluster::Cluster;
use crate::composites::{DECORATOR, NO_DECORATORS};
use crate::failure::Result;
use crate::{composites, printable};

const CHECK: Check = Check::Composites;
/// The maximum number of workloads that are searched for a second controller.
const MOST_WORKLOADS: u32 = 5_000;

/// Reports each composite by its conditions. Reports nothing for a cluster without composites.
pub(super) async fn composites(site: &Site<'_>) -> Vec<Finding> {
    let found = match composites::read(site.cluster, &[]).await {
        Err(failure) if failure.is_not_found() => return Vec::new(),
        Err(failure) => return vec![CHECK.unknown(failure.message())],
        Ok(found) => found,
    };
    let mut findings = vec![CHECK.concluded(judge(&found.composites))];
    findings.extend(decorators(site.cluster).await);
    let is_metacontroller = |one: &Declaration| matches!(one, Declaration::CompositeController(_));
    if found.composites.iter().any(is_metacontroller) {
        let names = site.config.iter();
        let names = names.flat_map(|config| &config.composites.adopt_all_matching);
        findings.extend(adopting(names));
        let others = others(site.cluster).await;
        findings.extend(others.transpose().map(|others| CHECK.concluded(others)));
    }
    findings
}

/// Reports the DecoratorControllers, which oz does not run. Reports nothing for a cluster without their kind.
async fn decorators(cluster: &Cluster) -> Option<Finding> {
    let kind = KindName {
        api_version: "metacontroller.k8s.io/v1alpha1".to_owned(),
        resource: "decoratorcontrollers".to_owned(),
    };
    let resource = kind.api_resource(DECORATOR);
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let listed = cluster
        .answer(api.list_metadata(&ListParams::default()))
        .await;
    let names = listed.ok()?.items.into_iter();
    let names: Vec<String> = names.filter_map(|one| one.metadata.name).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        CHECK.wrong(format!("{DECORATOR} {names}: not run here"), NO_DECORATORS)
    })
}

/// Reports the composites with parents that adopt as with MetaController.
fn adopting<'a>(names: impl Iterator<Item = &'a String>) -> Option<Finding> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        CHECK.wrong(
            format!(
                "parents of {} adopt all objects that their selector matches: users who may create \
                 a parent can have objects of others deleted",
                names.join(", ")
            ),
            "remove them from composites.adoptAllMatching in oz's values, when the objects to adopt \
             have the label controller-uid",
        )
    })
}

fn judge(all: &[Declaration]) -> Result<Finding> {
    let mut wrong = Vec::new();
    let mut silent = Vec::new();
    let mut commands = Vec::new();
    for composite in all {
        let name = name(composite.metadata())?;
        let kind = composite.kind();
        if composite.standing().is_none() {
            silent.push(format!("{kind} {name}"));
        } else if let Some(condition) = composites::failed(composite) {
            let message = printable::line(&condition.message);
            wrong.push(format!("{kind} {name}: {}: {message}", condition.reason));
            commands.push(format!("kubectl edit {} {name}", kind.to_lowercase()));
        }
    }
    if !wrong.is_empty() {
        let fix = format!("correct the cause of each: {}", commands.join(" && "));
        return Ok(CHECK.wrong(wrong.join("; "), fix));
    }
    if !silent.is_empty() {
        let text = format!(
            "{} have no conditions: oz does not run composites here (composites.enabled) or not \
             these (composites.selector), or their definition has no conditions; `ozctl \
             composites` shows their events",
            silent.join(", ")
        );
        return Ok(CHECK.unknown(text));
    }
    let text = match all.len() {
        0 => "there are none".to_owned(),
        count => format!("all {count} are accepted and run"),
    };
    Ok(CHECK.good(text))
}

/// Checks whether MetaController runs as well, which carries out each CompositeController without a
/// check for other controllers.
async fn others(cluster: &Cluster) -> Result<Option<Finding>> {
    let all = ListParams::default().limit(MOST_WORKLOADS);
    let deployments: Api<Deployment> = Api::all(cluster.client.clone());
    let sets: Api<StatefulSet> = Api::all(cluster.client.clone());
    let listed = futures::future::try_join(
        cluster.answer(deployments.list(&all)),
        cluster.answer(sets.list(&all)),
    );
    // A user without the right to list them gets no finding: most clusters have never had
    // MetaController.
    let Ok((deployments, sets)) = listed.await else {
        return Ok(None);
    };
    let deployments = deployments.items.into_iter().map(|one| {
        let pod = one.spec.and_then(|spec| spec.template.spec);
        ("Deployment", one.metadata, pod)
    });
    let sets = sets.items.into_iter().map(|one| {
        let pod = one.spec.and_then(|spec| spec.template.spec);
        ("StatefulSet", one.metadata, pod)
    });
    let running = deployments
        .chain(sets)
        .filter(|(_, _, pod)| pod.as_ref().is_some_and(is_metacontroller));
    let running = running.map(|(kind, metadata, _)| {
        let object = Object::from_metadata(kind, &metadata)?;
        Ok(object.to_string())
    });
    let running = running.collect::<Result<Vec<String>>>()?;
    Ok((!running.is_empty()).then(|| {
        CHECK.wrong(
            format!(
                "MetaController runs as well, and both write the same children: {}",
                running.join(", ")
            ),
            "scale it to 0, or separate them: composites.selector in oz's values, \
             --target-label-selector there",
        )
    }))
}

/// Checks whether a container of the pod is MetaController, by the name of its image.
fn is_metacontroller(pod: &PodSpec) -> bool {
    let images = pod.containers.iter().filter_map(|one| one.image.as_deref());
    let mut names = images.filter_map(|image| {
        let last = image.rsplit('/').next()?;
        last.split([':', '@']).next()
    });
    let known = ["metacontroller", "metacontroller-distroless"];
    names.any(|name| known.contains(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Verdict;
    use super::*;

    fn composite(name: &str, conditions: &Value) -> Declaration {
        let composite = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"parentResource": {"apiVersion": "v1", "resource": "configmaps"}},
            "status": conditions.as_array().map(|_| json!({"conditions": conditions})),
        }));
        Declaration::CompositeController(Box::new(composite.unwrap()))
    }

    fn condition(type_: &str, status: &str, message: &str) -> Value {
        json!({
            "type": type_, "status": status, "reason": "Because", "message": message,
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        })
    }

    #[test]
    fn doctor_reports_first_condition_that_fails() {
        let good = composite("good", &json!([condition("Accepted", "True", "yes")]));
        let conditions = json!([
            condition("Accepted", "True", "yes"),
            condition("Permitted", "False", "may not list\nwidgets"),
            condition("Running", "False", "waits"),
        ]);
        let bad = composite("bad", &conditions);
        assert_eq!(
            judge(std::slice::from_ref(&good)).unwrap(),
            CHECK.good("all 1 are accepted and run")
        );
        let found = judge(&[good.clone(), bad]).unwrap();
        let (text, Verdict::Wrong { fix }) = (found.message, found.verdict) else {
            panic!("it is wrong");
        };
        assert!(
            text.starts_with("CompositeController bad: Because: may not list"),
            "{text}"
        );
        assert!(!text.contains('\n') && !text.contains("waits"), "{text}");
        assert!(
            fix.ends_with("kubectl edit compositecontroller bad"),
            "{fix}"
        );
        let silent = judge(&[good, composite("silent", &Value::Null)]).unwrap();
        assert!(
            silent.verdict == Verdict::Unknown
                && silent.message.contains("CompositeController silent"),
            "{silent:?}"
        );
    }

    #[test]
    fn composites_that_adopt_as_with_metacontroller_are_named() {
        let names = ["fleets".to_owned(), "crews".to_owned()];
        let found = adopting(names.iter());
        let found = found.map(|found| (found.message, found.verdict));
        let Some((text, Verdict::Wrong { fix })) = found else {
            panic!("it is a finding");
        };
        assert!(text.contains("fleets, crews"), "{text}");
        assert!(fix.contains("composites.adoptAllMatching"), "{fix}");
        assert_eq!(adopting([].iter()), None);
    }

    #[test]
    fn metacontroller_is_known_by_its_image() {
        let pod = |image: &str| -> PodSpec {
            serde_json::from_value(json!({"containers": [{"name": "one", "image": image}]}))
                .unwrap()
        };
        for image in [
            "metacontroller",
            "registry.example.org/metacontroller/metacontroller:v4.11",
            "registry.example.org:5000/x/metacontroller-distroless@sha256:0123",
        ] {
            assert!(is_metacontroller(&pod(image)), "{image}");
        }
        for image in ["metacontroller/hook:1", "nginx", "x/metacontroller-hooks"] {
            assert!(!is_metacontroller(&pod(image)), "{image}");
        }
    }
}
