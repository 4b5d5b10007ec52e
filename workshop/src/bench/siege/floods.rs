//! The floods: the objects and connections of hostile neighbours, each at a separate pace until it is
//! stopped. Requests that the API server rejects are part of it; the attempts are counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Client, Config};
use oz_api::{TargetKind, labels};
use oz_e2e::{Scene, System, TEMPLATE, exec_template};
use oz_testkit::{Cluster, Image, fixtures};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The number of nested levels: more than a recursive decoder can handle.
const LEVELS: usize = 200;
/// The number of malformed objects, of each kind.
const POISONED: usize = 100;
/// The number of pods of a megabyte, and of Roles with oz's label that are as large.
const FAT_PODS: usize = 300;
const FAT_ROLES: usize = 30;
/// The users who repeatedly request access that cannot be ended or granted, each up to the limits of
/// requests.
const HOSTILE: [&str; 5] = [
    "mallory-1",
    "mallory-2",
    "mallory-3",
    "mallory-4",
    "mallory-5",
];
/// The connections to the webhook's port by a client that is not the API server, and does not know the key in
/// its paths: each post takes a handshake, and is answered before its body is read.
const STRANGERS: usize = 200;
const IMAGE: &str = "example.test/hanging-shell:1";
const CODE: &str = "#!/bin/busybox ash\nexec /bin/busybox sleep 86400\n";

const SECOND: Duration = Duration::from_secs(1);

/// The paths of the siege's objects on the API server.
struct ApiPaths {
    core: String,
    oz: String,
    rbac: String,
}

impl ApiPaths {
    fn new(namespace: &str) -> Self {
        let group = |group: &str| format!("/apis/{group}/namespaces/{namespace}");
        Self {
            core: format!("/api/v1/namespaces/{namespace}"),
            oz: group("crds.wizardofoz.co/v1alpha1"),
            rbac: group("rbac.authorization.k8s.io/v1"),
        }
    }
}

/// The running floods.
pub(super) struct Floods {
    tasks: JoinSet<()>,
    counts: Vec<(&'static str, Arc<Count>)>,
    scene: Scene,
    began: Instant,
}

/// The number of attempts, and of accepted ones.
#[derive(Default)]
struct Count {
    tried: AtomicU32,
    let_in: AtomicU32,
}

/// The result of one flood.
pub(super) struct Flood {
    pub(super) what: &'static str,
    pub(super) each_second: f64,
    /// Share of accepted attempts, in percent.
    pub(super) let_in: f64,
}

impl Floods {
    /// Creates the required objects, and begins.
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
            began: Instant::now(),
        };
        let paths = ApiPaths::new(floods.scene.name());
        let [admin, bob, mallory] = [
            cluster.client("admin").await?,
            cluster.client("bob").await?,
            cluster.client("mallory").await?,
        ];
        let mut hostile = Vec::new();
        for name in HOSTILE {
            cluster.issue_kubeconfig(name, &["devs"])?;
            hostile.push(cluster.client(name).await?);
        }
        floods.poison(&paths, &admin, &hostile);
        floods.fat(&paths, &admin, &bob);
        floods.starts(&paths, hostile, &mallory);
        floods.strangers(system.webhook.serving)?;
        Ok(floods)
    }

    /// Ends all of them, and returns the amount of each.
    pub(super) async fn stop(mut self) -> Vec<Flood> {
        self.tasks.shutdown().await;
        let elapsed = self.began.elapsed().as_secs_f64();
        let counts = self.counts.iter().map(|(what, count)| {
            let [tried, let_in] =
                [&count.tried, &count.let_in].map(|count| f64::from(count.load(Ordering::Relaxed)));
            Flood {
                what,
                each_second: tried / elapsed,
                let_in: let_in / tried * 100.0,
            }
        });
        counts.collect()
    }

    /// Sends requests of one kind, one each `pace` by each of `clients`, regardless of the response.
    fn each(
        &mut self,
        what: &'static str,
        pace: Duration,
        clients: Vec<Client>,
        make: impl Fn(u32) -> Result<http::Request<Body>> + Clone + Send + Sync + 'static,
    ) {
        let count: Arc<Count> = Arc::default();
        self.counts.push((what, Arc::clone(&count)));
        for client in clients {
            let (count, make) = (Arc::clone(&count), make.clone());
            self.tasks.spawn(async move {
                let mut pace = tokio::time::interval(pace);
                pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    pace.tick().await;
                    let number = count.tried.fetch_add(1, Ordering::Relaxed);
                    let Ok(request) = make(number) else { continue };
                    if let Ok(answer) = client.send(request).await {
                        let let_in = u32::from(answer.status().is_success());
                        count.let_in.fetch_add(let_in, Ordering::Relaxed);
                        let _ = answer.into_body().collect_bytes().await;
                    }
                }
            });
        }
    }

    /// Sends objects that do not decode, or that exhaust memory.
    fn poison(&mut self, paths: &ApiPaths, admin: &Client, hostile: &[Client]) {
        let at = format!("{}/pods", paths.core);
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
        let at = format!("{}/execaccessrequests", paths.oz);
        self.each("requests with poison", SECOND, once(admin), move |number| {
            let mut request = request(&format!("poison-{number}"), TEMPLATE);
            request["spec"]["deep"] = deep(121);
            post(&at, &request)
        });
        let at = format!("{}/podaccesstemplates", paths.oz);
        self.each(
            "templates with poison, bombs or a megabyte",
            SECOND / 2,
            once(admin),
            move |number| post(&at, &bad_template(number)),
        );
        let at = format!("{}/podaccessrequests", paths.oz);
        let hostile = hostile.to_vec();
        self.each("requests of bombs", SECOND * 2, hostile, move |number| {
            let template = format!("bad-{}", number % 30);
            let mut request = request(&format!("bomb-{number}"), &template);
            request["kind"] = "PodAccessRequest".into();
            post(&at, &request)
        });
    }

    /// Sends large objects.
    fn fat(&mut self, paths: &ApiPaths, admin: &Client, bob: &Client) {
        let at = format!("{}/pods", paths.core);
        self.each("pods of a megabyte", SECOND, once(admin), move |number| {
            let mut pod = idle_pod(&format!("fat-{}", number as usize % FAT_PODS));
            let value = "a".repeat(1 << 20);
            pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": value}]);
            post(&at, &pod)
        });
        let at = format!("{}/roles", paths.rbac);
        self.each(
            "Roles of a megabyte with oz's label",
            SECOND,
            once(admin),
            move |number| post(&at, &fat_role(number as usize % FAT_ROLES)),
        );
        let at = format!("{}/execaccessrequests", paths.oz);
        let mut many = request("many", TEMPLATE);
        let annotations = (0..6756).map(|key| (format!("a/{key}"), Value::from("")));
        many["metadata"]["annotations"] = Value::Object(annotations.collect());
        let many = bytes(&many);
        self.each("requests of 6,756 annotations", SECOND, once(bob), {
            let at = at.clone();
            move |_| post_bytes(&at, many.clone())
        });
        let mut dry = request("dry", TEMPLATE);
        dry["metadata"]["managedFields"] = fat_managed_fields();
        let dry = bytes(&dry);
        let six = vec![bob.clone(); 6];
        self.each("dry runs of 2.5 MB", SECOND * 2, six, move |_| {
            post_bytes(&format!("{at}?dryRun=All"), dry.clone())
        });
    }

    /// Starts sessions in a missing container, for which the API server calls the hook nevertheless, and
    /// grants for a pod in which no session can be ended.
    fn starts(&mut self, paths: &ApiPaths, hostile: Vec<Client>, mallory: &Client) {
        let query = "command=true&container=none&stdout=true";
        let at = format!("{}/pods/poison-0/exec?{query}", paths.core);
        let two = vec![mallory.clone(); 2];
        self.each("execs", SECOND / 25, two, move |_| {
            Ok(http::Request::post(&at).body(Body::empty())?)
        });
        let at = format!("{}/execaccessrequests", paths.oz);
        self.each(
            "grants where the shell hangs",
            SECOND * 2,
            hostile,
            move |number| post(&at, &request_for(&format!("hang-{number}"), "hung", "10s")),
        );
    }

    /// Connects to the webhook's port directly.
    fn strangers(&mut self, webhook: SocketAddr) -> Result<()> {
        let mut config = Config::new(format!("https://{webhook}").parse()?);
        config.accept_invalid_certs = true;
        let strangers: Result<Vec<Client>, _> = (0..STRANGERS)
            .map(|_| Client::try_from(config.clone()))
            .collect();
        let body = "a".repeat(256 << 10).into_bytes();
        let what = "posts of 256 KiB to the webhook's port";
        self.each(what, SECOND, strangers?, move |number| {
            let path = ["/connect-enforced", "/watch-v1-pod", "/"][number as usize % 3];
            post_bytes(path, body.clone())
        });
        Ok(())
    }
}

/// Creates a workload of which the containers have a shell that never ends, and a template for it.
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

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn post(path: &str, body: &Value) -> Result<http::Request<Body>> {
    post_bytes(path, bytes(body))
}

fn post_bytes(path: &str, body: Vec<u8>) -> Result<http::Request<Body>> {
    let request = http::Request::post(path).header("content-type", "application/json");
    Ok(request.body(Body::from(body))?)
}

fn merge(path: &str, body: &Value) -> Result<http::Request<Body>> {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    Ok(request.body(Body::from(bytes(body)))?)
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"f:a": inner}))
}

/// Returns a pod that no node accepts.
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

/// Returns a template with patches that are too deep, too many or too large, in turn.
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
