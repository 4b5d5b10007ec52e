use futures::executor::block_on;
use serde_json::json;

use super::*;

/// A namespace of objects that responds like an API server. It is read-only, and selects by the labels of an equality
/// selector.
struct World(Vec<Value>);

impl Reader for World {
    fn namespace(&self) -> &str {
        "shop"
    }

    async fn get(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        let found = self.0.iter().find(|object| {
            object["kind"] == resource.kind.as_str()
                && object["apiVersion"] == resource.api_version.as_str()
                && object["metadata"]["name"] == name
        });
        Ok(found.map(|object| serde_json::from_value(object.clone()).unwrap()))
    }

    async fn list<K>(&self, selector: Option<&str>) -> Result<Vec<K>, Failure>
    where
        K: Listed,
    {
        let selected = |object: &&Value| {
            let mut wanted = selector.into_iter().flat_map(|text| text.split(','));
            wanted.all(|pair| {
                let (key, value) = pair.split_once('=').unwrap();
                object["metadata"]["labels"][key] == value
            })
        };
        let kind = K::kind(&());
        let all = self.0.iter().filter(|object| object["kind"] == *kind);
        Ok(all
            .filter(selected)
            .map(|object| serde_json::from_value(object.clone()).unwrap())
            .collect())
    }
}

fn target(kind: TargetKind) -> CrossVersionObjectReference {
    CrossVersionObjectReference {
        api_version: kind.api_version(),
        kind,
        name: "web".to_owned(),
    }
}

fn object(kind: TargetKind, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": kind.api_version().as_str(), "kind": kind.to_string(),
        "metadata": {"name": name, "uid": format!("{kind}-{name}"), "generation": 3},
        "spec": spec,
    })
}

fn child(kind: &str, api_version: &str, name: &str, owner: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "uid": name, "labels": {"app": "web"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Any", "name": "any", "uid": owner, "controller": true,
            }],
        },
    })
}

fn pod(name: &str, owner: &str) -> Value {
    let mut pod = child("Pod", "v1", name, owner);
    pod["status"] = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    });
    pod
}

/// A spec that selects `app=web` and runs `image`.
fn spec(image: &str) -> Value {
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(image),
    })
}

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "app", "image": image}]}})
}

/// Returns each kind of target, as it is written, with the objects that connect it to its pods.
fn worlds() -> Vec<(TargetKind, World)> {
    use TargetKind::{CronJob, DaemonSet, Deployment, Job, Rollout, StatefulSet};
    let replica_set = |owner: &str| child("ReplicaSet", "apps/v1", "set", owner);
    let mut run = child("Job", "batch/v1", "run", "CronJob-web");
    run["spec"] = spec("one");
    let by_reference = json!({"workloadRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "model",
    }});
    let direct = |kind: TargetKind| {
        let owner = format!("{kind}-web");
        World(vec![object(kind, "web", spec("one")), pod("web-1", &owner)])
    };
    let through = |kind: TargetKind, objects: Vec<Value>| {
        let mut all = objects;
        all.extend([replica_set(&format!("{kind}-web")), pod("web-1", "set")]);
        (kind, World(all))
    };
    vec![
        through(Deployment, vec![object(Deployment, "web", spec("one"))]),
        (StatefulSet, direct(StatefulSet)),
        (DaemonSet, direct(DaemonSet)),
        (Job, direct(Job)),
        (
            CronJob,
            World(vec![
                object(
                    CronJob,
                    "web",
                    json!({"jobTemplate": {"spec": {"template": template("one")}}}),
                ),
                run,
                pod("web-1", "run"),
            ]),
        ),
        through(Rollout, vec![object(Rollout, "web", spec("one"))]),
        through(
            Rollout,
            vec![
                object(Rollout, "web", by_reference),
                object(Deployment, "model", spec("one")),
            ],
        ),
    ]
}

fn read(world: &World, kind: TargetKind) -> Result<Workload, Failure> {
    let identity = block_on(identify(world, &target(kind)))?;
    block_on(with_pods(world, &target(kind), identity))
}

#[test]
fn the_pods_of_every_kind_of_target_are_found() {
    for (kind, world) in worlds() {
        let workload = read(&world, kind).unwrap();
        assert_eq!(
            (workload.kind.as_str(), &*workload.name),
            (&*kind.to_string(), "web")
        );
        assert_eq!(workload.uid, format!("{kind}-web"));
        let pod = workload.choose("request", None).unwrap();
        assert_eq!(pod.name_any(), "web-1", "{kind}");
    }
}

#[test]
fn the_pod_template_of_every_kind_of_target_is_found() {
    for (kind, world) in worlds() {
        let model = block_on(model(&world, &target(kind))).unwrap();
        assert_eq!(model.title, format!("{kind} web"));
        assert_eq!(
            model.template["spec"]["containers"][0]["image"], "one",
            "{kind}"
        );
        let own = format!("{kind}-web/3");
        let version = match kind == TargetKind::Rollout && world.0.len() == 4 {
            true => format!("{own} Deployment-model/3"),
            false => own,
        };
        assert_eq!(model.version, Some(version));
    }
}

#[test]
fn missing_workload_or_selector_is_reported() {
    use TargetKind::{Deployment, Rollout};
    let everything = json!({"selector": {}, "template": template("one")});
    let dangling = json!({"workloadRef": {"kind": "Deployment", "name": "gone"}});
    for (kind, objects, pods, model_says) in [
        (Deployment, vec![], "does not exist", "does not exist"),
        (Rollout, vec![], "does not exist", "does not exist"),
        (
            Deployment,
            vec![object(Deployment, "web", everything)],
            "has no selector",
            "",
        ),
        (
            Deployment,
            vec![object(Deployment, "web", json!({}))],
            "has no selector",
            "no pod template",
        ),
        (
            Rollout,
            vec![object(Rollout, "web", dangling)],
            "has no selector",
            "no pod template",
        ),
    ] {
        let world = World(objects);
        let failure = read(&world, kind).unwrap_err();
        assert_eq!(failure.reason, TARGET_NOT_FOUND);
        assert!(
            failure.message.contains(&format!("{kind} shop/web {pods}")),
            "{}",
            failure.message
        );
        match block_on(model(&world, &target(kind))) {
            Ok(_) => assert_eq!(model_says, ""),
            Err(failure) => assert!(failure.message.contains(model_says), "{}", failure.message),
        }
    }
}

#[test]
fn of_a_cron_job_the_runs_that_go_on_are_looked_into() {
    let mut objects = vec![object(TargetKind::CronJob, "web", json!({}))];
    for (name, owner, finished) in [
        ("goes-on", "CronJob-web", None),
        ("done", "CronJob-web", Some("Complete")),
        ("failed", "CronJob-web", Some("Failed")),
        ("of-another", "elsewhere", None),
    ] {
        let mut job = child("Job", "batch/v1", name, owner);
        job["spec"] =
            json!({"selector": {"matchLabels": {"app": name}}, "template": template("one")});
        if let Some(condition) = finished {
            job["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        }
        objects.push(job);
        let mut pod = pod(&format!("pod-of-{name}"), name);
        pod["metadata"]["labels"]["app"] = name.into();
        objects.push(pod);
    }
    let workload = read(&World(objects), TargetKind::CronJob).unwrap();
    let pods: Vec<String> = workload.pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(pods, ["pod-of-goes-on"]);
}

#[test]
fn the_access_modes_of_mounted_claims_are_read() {
    let mut spec = spec("one");
    spec["template"]["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "gone", "persistentVolumeClaim": {"claimName": "gone"}},
    ]);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    });
    let world = World(vec![object(TargetKind::Deployment, "web", spec), claim]);
    let model = block_on(model(&world, &target(TargetKind::Deployment))).unwrap();
    let expected = ("data".to_owned(), vec!["ReadWriteOnce".to_owned()]);
    assert_eq!(model.access_modes, [expected].into());
}
