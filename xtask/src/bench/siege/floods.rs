//! The floods: what hostile neighbours store, send and start, each at a pace of its own until it is
//! told to stop. What the API server refuses is part of it; how much was tried is counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Client, Config};
use oz_core::api::TargetKind;
use oz_core::labels;
use oz_e2e::{Scene, System, TEMPLATE, exec_template};
use oz_testkit::{Cluster, Image, fixtures};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Nested levels: more than a decoder that recurses bears.
const LEVELS: usize = 200;
/// Objects that no decoder likes, of each kind.
const POISONED: usize = 100;
/// Pods of a megabyte, and Roles with oz's label that are as large.
const FAT_PODS: usize = 300;
const FAT_ROLES: usize = 30;
/// Connections to the webhook's port by somebody who is not the API server.
const STRANGERS: usize = 200;
const IMAGE: &str = "example.test/hanging-shell:1";
const CODE: &str = "#!/bin/busybox ash\nexec /bin/busybox sleep 86400\n";

const SECOND: Duration = Duration::from_secs(1);

/// Where the API server has the siege's objects.
struct Places {
    core: String,
    oz: String,
    rbac: String,
}

impl Places {
    fn of(namespace: &str) -> Self {
        let group = |group: &str| format!("/apis/{group}/namespaces/{namespace}");
        Self {
            core: format!("/api/v1/namespaces/{namespace}"),
            oz: group("crds.wizardofoz.co/v1alpha1"),
            rbac: group("rbac.authorization.k8s.io/v1"),
        }
    }
}

/// What is under way.
pub(super) struct Floods {
    tasks: JoinSet<()>,
    counts: Vec<(&'static str, Arc<AtomicU32>)>,
    scene: Scene,
}

impl Floods {
    /// Stores what is to be stored before, and begins.
    pub(super) async fn start(cluster: &'static Cluster, system: &System) -> Result<Self> {
        let scene = Scene::set(cluster, "siege").await?;
        hanging_shell(cluster, &scene).await?;
        scene
            .standing("mallory", "pods/exec", &["get", "create"])
            .await?;
        let mut floods = Self {
            tasks: JoinSet::new(),
            counts: Vec::new(),
            scene,
        };
        let places = Places::of(floods.scene.name());
        let [admin, alice, bob, mallory] = [
            cluster.client("admin").await?,
            cluster.client("alice").await?,
            cluster.client("bob").await?,
            cluster.client("mallory").await?,
        ];
        floods.poison(&places, &admin, &bob);
        floods.fat(&places, &admin, &bob);
        floods.starts(&places, &alice, &mallory);
        floods.strangers(system.webhook.serving)?;
        Ok(floods)
    }

    /// Ends all of them, and tells how often each was tried.
    pub(super) async fn stop(mut self) -> Vec<(&'static str, f64)> {
        self.tasks.shutdown().await;
        let counts = self.counts.iter();
        counts
            .map(|(what, count)| (*what, f64::from(count.load(Ordering::Relaxed))))
            .collect()
    }

    /// Sends requests of one kind, one each `pace` by each of `clients`, whatever is answered.
    fn each(
        &mut self,
        what: &'static str,
        pace: Duration,
        clients: Vec<Client>,
        make: impl Fn(u32) -> Result<http::Request<Body>> + Clone + Send + Sync + 'static,
    ) {
        let count: Arc<AtomicU32> = Arc::default();
        self.counts.push((what, Arc::clone(&count)));
        for client in clients {
            let (count, make) = (Arc::clone(&count), make.clone());
            self.tasks.spawn(async move {
                let mut pace = tokio::time::interval(pace);
                pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    pace.tick().await;
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    let Ok(request) = make(number) else { continue };
                    if let Ok(answer) = client.send(request).await {
                        let _ = answer.into_body().collect_bytes().await;
                    }
                }
            });
        }
    }

    /// What does not decode, or is a bomb.
    fn poison(&mut self, places: &Places, admin: &Client, bob: &Client) {
        let at = format!("{}/pods", places.core);
        let poisoned = |number: u32| format!("poison-{}", number as usize % POISONED);
        self.each("pods with poison", SECOND / 4, once(admin), {
            let at = at.clone();
            move |number| post(&at, &poisoned_pod(&poisoned(number)))
        });
        self.each(
            "annotations of such pods",
            SECOND / 10,
            once(admin),
            move |number| {
                let body = json!({"metadata": {"annotations": {"turn": number.to_string()}}});
                merge(&format!("{at}/{}", poisoned(number)), &body)
            },
        );
        let at = format!("{}/execaccessrequests", places.oz);
        self.each("requests with poison", SECOND, once(admin), move |number| {
            let mut request = request(&format!("poison-{number}"), TEMPLATE);
            request["spec"]["deep"] = deep(121);
            post(&at, &request)
        });
        let at = format!("{}/podaccesstemplates", places.oz);
        self.each(
            "templates with poison, bombs or a megabyte",
            SECOND / 2,
            once(admin),
            move |number| post(&at, &bad_template(number)),
        );
        let at = format!("{}/podaccessrequests", places.oz);
        self.each("requests of bombs", SECOND / 2, once(bob), move |number| {
            let template = format!("bad-{}", number % 30);
            let mut request = request(&format!("bomb-{number}"), &template);
            request["kind"] = "PodAccessRequest".into();
            post(&at, &request)
        });
    }

    /// What is large.
    fn fat(&mut self, places: &Places, admin: &Client, bob: &Client) {
        let at = format!("{}/pods", places.core);
        self.each("pods of a megabyte", SECOND, once(admin), move |number| {
            let mut pod = idle_pod(&format!("fat-{}", number as usize % FAT_PODS));
            let value = "a".repeat(1 << 20);
            pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": value}]);
            post(&at, &pod)
        });
        let at = format!("{}/roles", places.rbac);
        self.each(
            "Roles of a megabyte with oz's label",
            SECOND,
            once(admin),
            move |number| post(&at, &fat_role(number as usize % FAT_ROLES)),
        );
        let at = format!("{}/execaccessrequests", places.oz);
        self.each("requests of 6,756 annotations", SECOND, once(bob), {
            let at = at.clone();
            move |number| {
                let mut request = request(&format!("many-{number}"), TEMPLATE);
                let many = (0..6756).map(|key| (format!("a/{key}"), Value::from("")));
                request["metadata"]["annotations"] = Value::Object(many.collect());
                post(&at, &request)
            }
        });
        let six = vec![bob.clone(); 6];
        self.each("dry runs of 2.5 MB", SECOND * 2, six, move |number| {
            let mut request = request(&format!("dry-{number}"), TEMPLATE);
            request["metadata"]["managedFields"] = fat_managed_fields();
            post(&format!("{at}?dryRun=All"), &request)
        });
    }

    /// What is started: sessions in a container that there is not, of which the hook is told all the
    /// same, and grants of a pod in which nothing can be ended.
    fn starts(&mut self, places: &Places, alice: &Client, mallory: &Client) {
        let query = "command=true&container=none&stdout=true";
        let at = format!("{}/pods/poison-0/exec?{query}", places.core);
        let two = vec![mallory.clone(); 2];
        self.each("execs", SECOND / 25, two, move |_| {
            Ok(http::Request::post(&at).body(Body::empty())?)
        });
        let at = format!("{}/execaccessrequests", places.oz);
        self.each(
            "grants where the shell hangs",
            SECOND / 2,
            once(alice),
            move |number| post(&at, &request_for(&format!("hang-{number}"), "hung", "10s")),
        );
    }

    /// What goes to the webhook's port directly.
    fn strangers(&mut self, webhook: SocketAddr) -> Result<()> {
        let mut config = Config::new(format!("https://{webhook}").parse()?);
        config.accept_invalid_certs = true;
        let strangers: Result<Vec<Client>, _> = (0..STRANGERS)
            .map(|_| Client::try_from(config.clone()))
            .collect();
        let body = "a".repeat(256 << 10);
        self.each(
            "posts to the port",
            Duration::from_secs(1),
            strangers?,
            move |number| {
                let path = ["/connect-enforced", "/watch-v1-pod", "/"][number as usize % 3];
                let request = http::Request::post(path).header("content-type", "application/json");
                Ok(request.body(Body::from(body.clone().into_bytes()))?)
            },
        );
        Ok(())
    }
}

/// A workload whose containers have a shell that never ends, and a template for it.
async fn hanging_shell(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let busybox = std::fs::read("/bin/busybox").context("failed to read a static busybox")?;
    let image = Image::new(IMAGE, &["/bin/busybox", "sleep", "86400"])
        .file("bin/busybox", 0o755, &busybox)?
        .file("bin/sh", 0o755, CODE.as_bytes())?;
    cluster.import_image(image)?;
    let labels = json!({"app": "hung"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "hung"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "app", "image": IMAGE}],
                    "terminationGracePeriodSeconds": 1,
                },
            },
        },
    }))?;
    let api = scene.api::<Deployment>();
    api.create(&PostParams::default(), &deployment).await?;
    fixtures::ready_pods(&scene.admin, scene.name(), "app=hung", 1).await?;
    scene
        .template(&exec_template("hung", TargetKind::Deployment, "hung"))
        .await?;
    Ok(())
}

fn once(client: &Client) -> Vec<Client> {
    vec![client.clone()]
}

fn post(path: &str, body: &Value) -> Result<http::Request<Body>> {
    let request = http::Request::post(path).header("content-type", "application/json");
    Ok(request.body(Body::from(body.to_string().into_bytes()))?)
}

fn merge(path: &str, body: &Value) -> Result<http::Request<Body>> {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    Ok(request.body(Body::from(body.to_string().into_bytes()))?)
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"f:a": inner}))
}

/// A pod that no node takes.
fn idle_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody", "containers": [{"name": "app", "image": fixtures::IMAGE}],
        },
    })
}

fn poisoned_pod(name: &str) -> Value {
    let mut pod = idle_pod(name);
    pod["metadata"]["managedFields"] = json!([{
        "manager": "siege", "operation": "Update", "apiVersion": "v1",
        "time": "2026-11-22T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": deep(LEVELS)},
    }]);
    pod
}

fn fat_managed_fields() -> Value {
    let many = (0..50_000).map(|key| (format!("f:{key:040}"), json!({})));
    json!([{
        "manager": "siege", "operation": "Update", "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "time": "2026-11-22T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": Value::Object(many.collect())},
    }])
}

fn request(name: &str, template: &str) -> Value {
    request_for(name, template, "10m")
}

fn request_for(name: &str, template: &str, duration: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
        "metadata": {"name": name}, "spec": {"templateName": template, "duration": duration},
    })
}

/// A template whose patches are too deep, too many or too large, in turn.
fn bad_template(number: u32) -> Value {
    let patch =
        |value: Value| json!({"op": "add", "path": "/metadata/annotations/a", "value": value});
    let patches: Vec<Value> = match number % 3 {
        0 => vec![patch(deep(121))],
        1 => (0..64).map(|_| patch("b".repeat(10_000).into())).collect(),
        _ => vec![patch("c".repeat(1_300_000).into())],
    };
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "PodAccessTemplate",
        "metadata": {"name": format!("bad-{}", number % 30)},
        "spec": {
            "accessConfig": {"allowedGroups": ["devs"]},
            "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "controllerTargetMutationConfig": {"patchSpecOperations": patches},
        },
    })
}

fn fat_role(number: usize) -> Value {
    let names: Vec<String> = (0..20_000).map(|name| format!("{name:050}")).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {
            "name": format!("fat-{number}"), "labels": {labels::MANAGED_BY: labels::OZ},
        },
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": names,
        }],
    })
}
