//! Reviews of writes and connections without a session: copies of a grant's rights that would outlast the grant, and
//! access to pods of enforcing namespaces through proxies, images and limits.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use oz_api::{Operation, TargetKind};
use oz_e2e::{
    GrantedRequest, TEMPLATE, WORKLOAD, exec_request, exec_template, records_in, refusal, refused,
};
use oz_testkit::{eventually, fixtures};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::Stage;
use crate::connecting::{becomes, enforced};

const SOON: Duration = Duration::from_secs(60);
const RBAC: &str = "rbac.authorization.k8s.io";
const REFUSED: &str = "a user may not pass on or extend the rights of a grant";

/// Sets up an observing namespace in which alice has a grant, and may write Roles and RoleBindings.
async fn writes_rbac(prefix: &str) -> Result<(Stage, GrantedRequest)> {
    let stage = Stage::set(prefix).await?;
    let rule = json!({
        "apiGroups": [RBAC], "resources": ["roles", "rolebindings"],
        "verbs": ["get", "create", "update", "patch"],
    });
    stage.allow("writes-rbac", "alice", &[rule]).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "10m"))
        .await?;
    Ok((stage, asked))
}

/// Returns the rules of the grant's own Role that permit exec.
fn rules(pod: &str) -> Value {
    json!([{
        "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"],
        "resourceNames": [pod],
    }])
}

fn role(name: &str, rules: &Value) -> Result<Role> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name }, "rules": rules }),
    )?)
}

fn binding(name: &str, kind: &str, role: &str, users: &[&str]) -> Result<RoleBinding> {
    let subject = |user| json!({ "apiGroup": RBAC, "kind": "User", "name": user });
    let subjects: Vec<Value> = users.iter().map(subject).collect();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role }, "subjects": subjects,
    }))?)
}

async fn by<K>(stage: &Stage, user: &str) -> Result<Api<K>>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Ok(Api::namespaced(
        stage.cluster.client(user).await?,
        stage.name(),
    ))
}

/// Creates an object in dry runs until oz observes the grant and the denial contains `wanted`, and then without a dry
/// run.
async fn at_last<K>(api: &Api<K>, object: &K, wanted: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    K: kube::Resource<DynamicType = ()>,
{
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually(wanted, SOON, async || {
        let why = refused(api.create(&dry, object).await)?;
        anyhow::ensure!(why.contains(wanted), "{why}");
        Ok(Some(()))
    })
    .await?;
    let why = refused(api.create(&PostParams::default(), object).await)?;
    assert!(why.contains(wanted), "{why}");
    Ok(())
}

/// Writing a Role with the rights of the user's own grant, to keep them after its expiry: the webhook denies it, and
/// the audit trail records the name of the Role.
#[tokio::test]
async fn a_copy_of_the_role() -> Result<()> {
    let (stage, asked) = writes_rbac("copy").await?;
    let roles: Api<Role> = by(&stage, "alice").await?;
    at_last(&roles, &role("for-ever", &rules(&asked.pod()))?, REFUSED).await?;
    let recorded = records_in(&stage.oz()?.webhook.process)?;
    let named = recorded.into_iter().any(|record| {
        record.action == Action::GrantCopied
            && record.request.namespace == stage.name()
            && record
                .details
                .get("role")
                .is_some_and(|role| role == "Role for-ever")
    });
    assert!(named, "no record names the Role");
    Ok(())
}

/// Writing an empty Role, binding it, and then adding the rights of the user's own grant to it: the webhook denies
/// the addition.
#[tokio::test]
async fn rights_that_are_added_to_a_role_that_binds_already() -> Result<()> {
    let (stage, asked) = writes_rbac("added").await?;
    let parameters = PostParams::default();
    let roles: Api<Role> = by(&stage, "alice").await?;
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    roles
        .create(&parameters, &role("mine", &json!([]))?)
        .await?;
    let bound = binding("mine", "Role", "mine", &["alice"])?;
    bindings.create(&parameters, &bound).await?;
    let more = Patch::Merge(json!({ "rules": rules(&asked.pod()) }));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    eventually("a refusal", SOON, async || {
        let why = refused(roles.patch("mine", &dry, &more).await)?;
        anyhow::ensure!(why.contains(REFUSED), "{why}");
        Ok(Some(()))
    })
    .await?;
    refused(roles.patch("mine", &PatchParams::default(), &more).await)?;
    Ok(())
}

/// Binding oneself to an administrator's Role with the rights of the user's own grant: the webhook denies it.
#[tokio::test]
async fn a_binding_to_a_role_with_the_same_rights() -> Result<()> {
    let (stage, asked) = writes_rbac("same").await?;
    let roles: Api<Role> = stage.api();
    let same = role("on-call", &rules(&asked.pod()))?;
    roles.create(&PostParams::default(), &same).await?;
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    let mine = binding("mine", "Role", "on-call", &["alice"])?;
    at_last(&bindings, &mine, REFUSED).await
}

/// Adding oneself to an administrator's RoleBinding to a Role with the rights of the user's own grant: the webhook
/// denies it, and allows a change of the labels.
#[tokio::test]
async fn a_subject_that_is_added_to_such_a_binding() -> Result<()> {
    let (stage, asked) = writes_rbac("subject").await?;
    let parameters = PostParams::default();
    let roles: Api<Role> = stage.api();
    let bindings: Api<RoleBinding> = stage.api();
    let same = role("on-call", &rules(&asked.pod()))?;
    roles.create(&parameters, &same).await?;
    let theirs = binding("theirs", "Role", "on-call", &["carol"])?;
    bindings.create(&parameters, &theirs).await?;
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    let more = binding("theirs", "Role", "on-call", &["carol", "alice"])?;
    let more = Patch::Merge(json!({ "subjects": more.subjects }));
    eventually("a refusal", SOON, async || {
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let why = refused(bindings.patch("theirs", &dry, &more).await)?;
        anyhow::ensure!(why.contains(REFUSED), "{why}");
        Ok(Some(()))
    })
    .await?;
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "shop" } } }));
    bindings
        .patch("theirs", &PatchParams::default(), &labels)
        .await?;
    Ok(())
}

/// Obtaining the rights of the user's own grant by wildcards, by the ClusterRoles `edit` and `admin`, or by a new
/// ClusterRole: the escalation check of Kubernetes denies it, because a grant is for one pod of one namespace and
/// `pods/*` has no meaning in RBAC.
#[tokio::test]
async fn wildcards_and_cluster_roles() -> Result<()> {
    let (stage, asked) = writes_rbac("wild").await?;
    let parameters = PostParams::default();
    let roles: Api<Role> = by(&stage, "alice").await?;
    for resource in ["*", "*/exec", "pods/*"] {
        for names in [json!([asked.pod()]), json!([])] {
            let rules = json!([{
                "apiGroups": [""], "resources": [resource], "verbs": ["create"],
                "resourceNames": names,
            }]);
            refused(roles.create(&parameters, &role("wild", &rules)?).await)?;
        }
    }
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    for name in ["edit", "admin"] {
        let mine = binding("wild", "ClusterRole", name, &["alice"])?;
        refused(bindings.create(&parameters, &mine).await)?;
    }
    let cluster_roles: Api<ClusterRole> = Api::all(stage.cluster.client("alice").await?);
    let wide: ClusterRole = serde_json::from_value(json!({
        "metadata": { "name": stage.name() }, "rules": rules(&asked.pod()),
    }))?;
    refused(cluster_roles.create(&parameters, &wide).await)?;
    // A user with the same rights may write the Role. The check denies it only to users who lack them, such as the
    // user of a grant.
    let every = json!({ "apiGroups": [""], "resources": ["*/exec"], "verbs": ["create"] });
    let writes = json!({ "apiGroups": [RBAC], "resources": ["roles"], "verbs": ["create"] });
    stage
        .allow("every", "bob", &[every.clone(), writes])
        .await?;
    let roles: Api<Role> = by(&stage, "bob").await?;
    roles
        .create(&parameters, &role("wild", &json!([every]))?)
        .await?;
    Ok(())
}

/// Writing a Role with the rights of the user's own grant, or binding oneself to such a Role, before the webhook
/// observes the grant or while it does not respond: the admission policy denies it to a user with access to
/// individual pods only.
#[tokio::test]
async fn a_copy_that_the_webhook_does_not_see() -> Result<()> {
    let stage = Stage::set("unseen").await?;
    let pod = stage.pod()?;
    let rule = json!({
        "apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["get", "create"],
    });
    let single = &rules(&pod)[0];
    // The API server cannot distinguish these rights from those of a grant. The webhook finds no grant.
    stage
        .allow("single", "alice", &[rule, single.clone()])
        .await?;
    let roles: Api<Role> = by(&stage, "alice").await?;
    let policy = "ValidatingAdmissionPolicy";
    at_last(&roles, &role("for-ever", &rules(&pod))?, policy).await?;
    let parameters = PostParams::default();
    let same = role("on-call", &rules(&pod))?;
    stage.api::<Role>().create(&parameters, &same).await?;
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    let mine = binding("mine", "Role", "on-call", &["alice"])?;
    at_last(&bindings, &mine, policy).await
}

/// Writing Roles and RoleBindings for individual pods as a user with access to every pod, and for other resources as
/// a user with a grant: the API server accepts them as it does without oz.
#[tokio::test]
async fn roles_that_are_no_copies() -> Result<()> {
    let (stage, asked) = writes_rbac("honest").await?;
    let parameters = PostParams::default();
    let pods = json!({ "apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"] });
    stage
        .allow("reads", "alice", std::slice::from_ref(&pods))
        .await?;
    let roles: Api<Role> = by(&stage, "alice").await?;
    let bindings: Api<RoleBinding> = by(&stage, "alice").await?;
    roles
        .create(&parameters, &role("readers", &json!([pods]))?)
        .await?;
    let readers = binding("readers", "Role", "readers", &["carol"])?;
    bindings.create(&parameters, &readers).await?;

    let everything = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] });
    stage.allow("everything", "bob", &[everything]).await?;
    for user in ["bob", "admin"] {
        let roles: Api<Role> = by(&stage, user).await?;
        let bindings: Api<RoleBinding> = by(&stage, user).await?;
        let mine = role(user, &rules(&asked.pod()))?;
        roles.create(&parameters, &mine).await?;
        let bound = binding(user, "Role", user, &["carol"])?;
        bindings.create(&parameters, &bound).await?;
    }
    Ok(())
}

/// Sets up an enforcing namespace in which alice has a grant, and may use proxies, change pods and resize them.
async fn may_proxy(prefix: &str) -> Result<(Stage, GrantedRequest)> {
    let (stage, asked) = enforced(prefix, "10m").await?;
    let rules = [
        json!({ "apiGroups": [""], "resources": ["pods/proxy", "services/proxy"], "verbs": ["*"] }),
        json!({ "apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["*"] }),
    ];
    stage.allow("around", "alice", &rules).await?;
    Ok((stage, asked))
}

fn proxy(stage: &Stage, resource: &str, name: &str) -> String {
    format!(
        "/api/v1/namespaces/{}/{resource}/{name}/proxy/",
        stage.name()
    )
}

/// Sending HTTP requests to the pod through the API server (`pods/proxy`, which the default ClusterRole `edit`
/// includes) with a grant for exec: the webhook denies it, regardless of the port and the scheme.
#[tokio::test]
async fn a_proxy_to_the_pod() -> Result<()> {
    let (stage, asked) = may_proxy("proxy").await?;
    for name in [
        asked.pod(),
        format!("{}:80", asked.pod()),
        format!("https:{}:443", asked.pod()),
    ] {
        let path = proxy(&stage, "pods", &name);
        let wanted = Some("grants exec, not proxy");
        becomes(&stage, &["get", "--raw", &path], wanted).await?;
    }
    Ok(())
}

/// Using `pods/proxy` with a grant for port-forward: the webhook allows it to the pod of the grant, and denies it to
/// any other pod.
#[tokio::test]
async fn a_proxy_where_port_forward_was_granted() -> Result<()> {
    let (stage, _) = may_proxy("proxied").await?;
    let mut template = exec_template("ports", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.operations = vec![Operation::PortForward];
    stage.template(&template).await?;
    let bob = stage.requests("bob").await?;
    let asked = bob.granted(&exec_request("ports", "ports", "10m")).await?;
    let rule = json!({ "apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["*"] });
    stage.allow("bob-proxies", "bob", &[rule]).await?;
    let said = async |pod: &str| {
        let path = proxy(&stage, "pods", pod);
        let output = stage.kubectl("bob", &["get", "--raw", &path]).output()?;
        anyhow::Ok(refusal(&output).unwrap_or_default())
    };
    eventually("bob to be let through", SOON, async || {
        let said = said(&asked.pod()).await?;
        anyhow::ensure!(
            !said.contains("oz:") && !said.contains("forbidden"),
            "{said}"
        );
        Ok(Some(()))
    })
    .await?;
    let mut names = stage
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone());
    let other = names
        .find(|name| *name != asked.pod())
        .context("no other")?;
    let said = said(&other).await?;
    assert!(said.contains("not to pod"), "{said}");
    Ok(())
}

/// Connecting to pods through a Service (`services/proxy`): the webhook denies it, because no grant covers Services.
#[tokio::test]
async fn a_proxy_to_a_service() -> Result<()> {
    let (stage, _) = may_proxy("service").await?;
    for name in ["web", "web:80", "https:web:443"] {
        let path = proxy(&stage, "services", name);
        let wanted = Some("connections through a service");
        becomes(&stage, &["get", "--raw", &path], wanted).await?;
    }
    Ok(())
}

/// Replacing the image of a running pod, which keeps its UID: the webhook denies it, and allows a change of the
/// labels.
#[tokio::test]
async fn an_image_that_is_exchanged() -> Result<()> {
    let (stage, asked) = may_proxy("image").await?;
    let pods: Api<Pod> = by(&stage, "alice").await?;
    let other = Patch::Strategic(json!({ "spec": { "containers": [
        { "name": fixtures::CONTAINER, "image": "example.test/around:1" },
    ] } }));
    eventually("a refusal", SOON, async || {
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let why = refused(pods.patch(&asked.pod(), &dry, &other).await)?;
        anyhow::ensure!(why.contains("other images in a running pod"), "{why}");
        Ok(Some(()))
    })
    .await?;
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "shop" } } }));
    pods.patch(&asked.pod(), &PatchParams::default(), &labels)
        .await?;
    Ok(())
}

/// Lowering the resource limits of a running pod (`pods/resize`), which can terminate its processes: the webhook
/// denies it.
#[tokio::test]
async fn a_pod_that_is_resized() -> Result<()> {
    let (stage, asked) = may_proxy("resize").await?;
    if !stage.cluster.resizes_pods()? {
        return Ok(());
    }
    let patch = json!({ "spec": { "containers": [
        { "name": fixtures::CONTAINER, "resources": { "limits": { "cpu": "1m" } } },
    ] } });
    let (pod, patch) = (asked.pod(), patch.to_string());
    let arguments = ["patch", "pod", &pod, "--subresource=resize", "-p", &patch];
    becomes(&stage, &arguments, Some("other limits for a running pod")).await
}

/// Setting variables or the user of a command with options of a newer Kubernetes (`env`, `user`), which bypass the
/// checks: an API server without these options drops them before it calls the webhook, and the webhook does not deny
/// the connection.
#[tokio::test]
async fn options_of_a_newer_api() -> Result<()> {
    let (stage, asked) = enforced("options", "10m").await?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/exec?command=true&stdout=true&env=LD_PRELOAD=/x&user=root",
        stage.name(),
        asked.pod()
    );
    let output = stage.kubectl("alice", &["get", "--raw", &path]).output()?;
    // The request is no upgrade to a stream, so no session opens. The API server calls the webhook before it detects
    // that.
    let said = refusal(&output).context("it is a page")?;
    assert!(!said.contains("oz:"), "{said}");
    Ok(())
}

/// Replacing an image and using the proxy of a Service in an enforcing namespace, as an administrator: the webhook
/// allows it, and the audit trail records both.
#[tokio::test]
async fn break_glass_user_may_change_image_and_use_proxy() -> Result<()> {
    let (stage, asked) = may_proxy("glass").await?;
    let pods: Api<Pod> = stage.api();
    let other = Patch::Strategic(json!({ "spec": { "containers": [
        { "name": fixtures::CONTAINER, "image": "example.test/mended:1" },
    ] } }));
    pods.patch(&asked.pod(), &PatchParams::default(), &other)
        .await?;
    let path = proxy(&stage, "services", "web");
    let output = stage.kubectl("admin", &["get", "--raw", &path]).output()?;
    let said = refusal(&output).unwrap_or_default();
    assert!(!said.contains("no grant"), "{said}");
    eventually("both on record", SOON, async || {
        let recorded = records_in(&stage.oz()?.webhook.process)?;
        let ours = recorded.into_iter().filter(|record| {
            record.reason == "BreakGlass" && record.request.namespace == stage.name()
        });
        let details: Vec<_> = ours.map(|record| record.details).collect();
        let image = details.iter().any(|all| {
            let images = all.get("images");
            images.is_some_and(|images| images.ends_with("-> example.test/mended:1"))
        });
        let service = details.iter().any(|all| all.contains_key("service"));
        Ok((image && service).then_some(()))
    })
    .await
}
