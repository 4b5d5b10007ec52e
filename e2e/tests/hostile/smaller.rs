//! Rights for a time that would be kept, templates by those who may do less than they hand out,
//! requests that continue what is not theirs, and what surrounds a pod of one's own.

use anyhow::{Context as _, Result};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_core::api::{ExecAccessTemplate, Phase, TargetKind, TransientRoleBinding};
use oz_e2e::{
    NAMESPACE, Options, System, TEMPLATE, WORKLOAD, conditions_line, exec_request, exec_template,
    pod_request, refused, repository, run,
};
use oz_testkit::{Cluster, eventually};
use serde_json::{Value, json};

use crate::Stage;
use crate::requests::SOON;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A ClusterRole that the list names in full, and that can write RBAC.
const KEEPER: &str = "keeper";

/// oz with transient bindings: of whatever is called `team-*` if it is harmless, and of [`KEEPER`].
pub(crate) async fn start(cluster: &Cluster) -> Result<System> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["apply", "--server-side", "-f"]);
    // The account that it names is made here as well; what oz is installed with comes after.
    kubectl.arg(repository().join("deploy/rbac/transient"));
    run(kubectl)?;
    let admin = cluster.client("admin").await?;
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let apply = PatchParams::apply("test").force();
    for (name, rule) in [
        (
            KEEPER,
            json!({"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": ["create"]}),
        ),
        (
            "bind-keeper",
            json!({
                "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": [KEEPER],
                "verbs": ["bind"],
            }),
        ),
    ] {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": [rule],
        });
        roles.patch(name, &apply, &Patch::Apply(&role)).await?;
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "bind-keeper"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "bind-keeper"},
        "subjects": [{"kind": "ServiceAccount", "name": "oz-operator", "namespace": NAMESPACE}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(admin);
    let patch = Patch::Apply(&binding);
    bindings.patch("bind-keeper", &apply, &patch).await?;
    let options = Options::default().flag("--bindable-roles=team-*,keeper");
    let webhook = crate::numbers::limited(options.clone());
    System::start_as(cluster, &webhook, &options).await
}

/// A place where alice may ask for transient bindings, and bind whatever ClusterRole there is.
async fn binding_stage(prefix: &str) -> Result<Stage> {
    let stage = Stage::set(prefix).await?;
    let rules = [
        json!({
            "apiGroups": ["crds.wizardofoz.co"], "resources": ["transientrolebindings"],
            "verbs": ["create", "get"],
        }),
        json!({"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]}),
    ];
    stage.allow("binding", "alice", &rules).await?;
    Ok(stage)
}

/// A ClusterRole with one rule, named after the stage.
async fn cluster_role(stage: &Stage, prefix: &str, rule: Value) -> Result<String> {
    let name = format!("{prefix}-{}", stage.name());
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": name}, "rules": [rule],
    }))?;
    let roles: Api<ClusterRole> = Api::all(stage.admin.clone());
    roles.create(&PostParams::default(), &role).await?;
    Ok(name)
}

/// Asks as alice for this ClusterRole for a while.
async fn ask_to_bind(
    stage: &Stage,
    name: &str,
    role: &str,
) -> Result<kube::Result<TransientRoleBinding>> {
    let client = stage.cluster.client("alice").await?;
    let bindings: Api<TransientRoleBinding> = Api::namespaced(client, stage.name());
    let object: TransientRoleBinding = serde_json::from_value(json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientRoleBinding",
        "metadata": {"name": name},
        "spec": {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "alice"}],
            "duration": "5m",
        },
    }))?;
    Ok(bindings.create(&PostParams::default(), &object).await)
}

/// What is said when a role with this rule, which the operator's list has by a pattern, is asked for.
async fn told_of(stage: &Stage, name: &str, rule: Value) -> Result<String> {
    let role = cluster_role(stage, &format!("team-{name}"), rule).await?;
    refused(ask_to_bind(stage, name, &role).await?)
}

/// A right for five minutes to write Roles or RoleBindings, with which one would bind oneself for
/// good: refused, with the rule that says so.
#[tokio::test]
async fn a_transient_right_to_write_rbac() -> Result<()> {
    let stage = binding_stage("writing-rbac").await?;
    for (number, resource) in ["roles", "rolebindings"].into_iter().enumerate() {
        let rule =
            json!({"apiGroups": [RBAC], "resources": [resource], "verbs": ["create", "get"]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(&format!("create {resource}")), "{why}");
    }
    Ok(())
}

/// A right for five minutes to make pods, or workloads that make them, which run as any service
/// account and read any Secret of the namespace: refused.
#[tokio::test]
async fn a_transient_right_to_make_pods() -> Result<()> {
    let stage = binding_stage("making-pods").await?;
    for (number, (group, resource, verb)) in [
        ("", "pods", "create"),
        ("apps", "deployments", "patch"),
        ("batch", "cronjobs", "update"),
    ]
    .into_iter()
    .enumerate()
    {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(&format!("{verb} {resource}")), "{why}");
    }
    Ok(())
}

/// A right for five minutes to take part in everybody's admission, to change what an API is, or to
/// change the labels of a namespace that say what may happen in it: refused.
#[tokio::test]
async fn a_transient_right_over_admission() -> Result<()> {
    let stage = binding_stage("over-admission").await?;
    for (number, (group, resource, verb)) in [
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "create",
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            "delete",
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions", "patch"),
        ("apiregistration.k8s.io", "apiservices", "update"),
        ("", "namespaces", "patch"),
    ]
    .into_iter()
    .enumerate()
    {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(&format!("{verb} {resource}")), "{why}");
    }
    Ok(())
}

/// A right for five minutes to have certificates signed for whatever name, or to write oz's own
/// templates and records: refused.
#[tokio::test]
async fn a_transient_right_to_sign_or_to_write_ozs_own_kinds() -> Result<()> {
    let stage = binding_stage("signing").await?;
    for (number, (group, resource, verb)) in [
        (
            "certificates.k8s.io",
            "certificatesigningrequests/approval",
            "update",
        ),
        ("certificates.k8s.io", "signers", "approve"),
        ("crds.wizardofoz.co", "execaccesstemplates", "create"),
        ("crds.wizardofoz.co", "auditevents", "delete"),
    ]
    .into_iter()
    .enumerate()
    {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(resource), "{why}");
    }
    Ok(())
}

/// A role that the operator's list names in full, and that can write RBAC: bound, since the list says
/// so, with a warning to who asks, a condition and an event.
#[tokio::test]
async fn a_powerful_role_that_is_named_in_full() -> Result<()> {
    let stage = binding_stage("in-full").await?;
    ask_to_bind(&stage, "keeper", KEEPER).await??;
    let bindings = stage.api::<TransientRoleBinding>();
    let status = eventually("the binding to be active", SOON, async || {
        let status = bindings.get("keeper").await?.status.unwrap_or_default();
        Ok((status.phase == Phase::Active).then_some(status))
    })
    .await?;
    let told = status
        .conditions
        .iter()
        .find(|one| one.type_ == "RoleHarmless");
    let told = told.context("nothing is said of the role")?;
    assert!(
        told.status == "False" && told.message.contains("create rolebindings"),
        "{told:?}"
    );
    eventually("an event that says so", SOON, async || {
        let events = ["get", "events", "-o", "jsonpath={.items[*].reason}"];
        let told = stage.kubectl("admin", &events).output()?;
        let told = String::from_utf8_lossy(&told.stdout).contains("RoleTooPowerful");
        Ok(told.then_some(()))
    })
    .await
}

/// A template by somebody who may exec into pods, but may not look at them, which a grant hands out
/// as well: refused, with what is missing.
#[tokio::test]
async fn an_author_who_may_not_look_at_pods() -> Result<()> {
    let stage = Stage::set("blind").await?;
    let rules = [
        json!({
            "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccesstemplates"],
            "verbs": ["create"],
        }),
        json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}),
    ];
    stage.allow("author", "bob", &rules).await?;
    let client = stage.cluster.client("bob").await?;
    let templates: Api<ExecAccessTemplate> = Api::namespaced(client, stage.name());
    let template = exec_template("mine", TargetKind::Deployment, WORKLOAD);
    let why = refused(templates.create(&PostParams::default(), &template).await)?;
    assert!(
        why.contains("get pods, list pods, watch pods") && !why.contains("pods/exec"),
        "{why}"
    );
    Ok(())
}

/// Continuing somebody else's request: refused, and it says whose it is not.
#[tokio::test]
async fn extending_anothers_request() -> Result<()> {
    let stage = Stage::set("extend-other").await?;
    let bob = stage.requests("bob").await?;
    bob.granted(&exec_request("bobs", TEMPLATE, "10m")).await?;
    let alice = stage.requests("alice").await?;
    let mut next = exec_request("mine", TEMPLATE, "5m");
    next.spec.extends = Some("bobs".to_owned());
    let why = refused(alice.create(&next).await)?;
    assert!(
        why.contains("spec.extends") && why.contains("bobs"),
        "{why}"
    );
    Ok(())
}

/// Continuing a request that is over, that never was, or that was not granted: refused.
#[tokio::test]
async fn extending_what_is_over() -> Result<()> {
    let stage = Stage::set("extend-over").await?;
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("over", TEMPLATE, "3s")).await?;
    alice.phase("over", Phase::Expired).await?;
    alice
        .create(&exec_request("waiting", "later", "5m"))
        .await?;
    for other in ["over", "never", "waiting"] {
        let mut next = exec_request("mine", TEMPLATE, "5m");
        next.spec.extends = Some(other.to_owned());
        let why = refused(alice.create(&next).await)?;
        assert!(why.contains("spec.extends") && why.contains(other), "{why}");
    }
    Ok(())
}

/// Continuing one's own request in another pod than it is for: refused; without a pod, it is the
/// same one.
#[tokio::test]
async fn extending_into_another_pod() -> Result<()> {
    let stage = Stage::set("extend-pod").await?;
    let alice = stage.requests("alice").await?;
    for (number, pod) in stage.pods.iter().enumerate() {
        let pod = pod.metadata.name.clone().unwrap_or_default();
        let (first, next) = (format!("first-{number}"), format!("next-{number}"));
        let mut request = exec_request(&first, TEMPLATE, "5m");
        request.spec.target_pod = Some(pod.clone());
        alice.granted(&request).await?;
        let mut request = exec_request(&next, TEMPLATE, "5m");
        request.spec.extends = Some(first);
        let mut elsewhere = request.clone();
        let other = stage.pods[1 - number].metadata.name.clone();
        elsewhere.spec.target_pod = other;
        let why = refused(alice.create(&elsewhere).await)?;
        assert!(why.contains("spec.extends") && why.contains(&pod), "{why}");
        let asked = alice.granted(&request).await?;
        assert_eq!(asked.pod(), pod);
    }
    Ok(())
}

/// A request that names one which is deleted before it is decided about: denied.
#[tokio::test]
async fn extending_what_is_taken_away_meanwhile() -> Result<()> {
    let stage = Stage::set("extend-gone").await?;
    let alice = stage.requests("alice").await?;
    alice
        .granted(&exec_request("first", TEMPLATE, "5m"))
        .await?;
    // It waits for its template.
    let mut next = exec_request("next", "later", "5m");
    next.spec.extends = Some("first".to_owned());
    alice.create(&next).await?;
    alice
        .api()
        .delete("first", &DeleteParams::default())
        .await?;
    eventually("the first to be gone", SOON, async || {
        Ok(alice.api().get_opt("first").await?.is_none().then_some(()))
    })
    .await?;
    stage
        .template(&exec_template("later", TargetKind::Deployment, WORKLOAD))
        .await?;
    let status = alice.phase("next", Phase::Denied).await?;
    let line = conditions_line(&status);
    assert!(line.contains("first"), "{line}");
    Ok(())
}

/// Sending data through port 53 to a name server of one's own, from a pod that may use name servers
/// only: its NetworkPolicy lets it talk to the cluster's name servers, and to nobody else.
#[tokio::test]
async fn a_name_server_of_ones_own() -> Result<()> {
    let stage = Stage::set("dns").await?;
    stage
        .pod_template(
            "closed",
            &json!({"network": {"egress": "Dns", "ingress": "None"}}),
        )
        .await?;
    let alice = stage.pod_requests("alice").await?;
    let asked = alice.granted(&pod_request("mine", "closed", "5m")).await?;
    let policy = stage
        .api::<NetworkPolicy>()
        .get(&asked.object_name())
        .await?;
    let egress = policy.spec.and_then(|spec| spec.egress).unwrap_or_default();
    assert!(!egress.is_empty());
    for rule in &egress {
        assert!(
            rule.to.as_ref().is_some_and(|to| !to.is_empty()),
            "{rule:?}"
        );
    }
    let line = serde_json::to_string(&egress)?;
    assert!(
        line.contains("kube-system") && line.contains("kube-dns"),
        "{line}"
    );
    Ok(())
}

/// A NetworkPolicy of one's own that selects an access pod as well, since policies add up: it is
/// named in a condition of the request, and the grant goes on.
#[tokio::test]
async fn a_policy_that_opens_what_a_template_closes() -> Result<()> {
    let stage = Stage::set("additive").await?;
    stage
        .pod_template(
            "closed",
            &json!({"network": {"egress": "None", "ingress": "None"}}),
        )
        .await?;
    for (name, selector) in [
        ("opens", json!({})),
        ("elsewhere", json!({"matchLabels": {"app": "other"}})),
    ] {
        let policy: NetworkPolicy = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"podSelector": selector, "policyTypes": ["Egress"], "egress": [{}]},
        }))?;
        stage
            .api::<NetworkPolicy>()
            .create(&PostParams::default(), &policy)
            .await?;
    }
    let alice = stage.pod_requests("alice").await?;
    let asked = alice.granted(&pod_request("mine", "closed", "5m")).await?;
    let status = asked.status();
    let told = status
        .conditions
        .iter()
        .find(|one| one.type_ == "NetworkIsolated");
    let told = told.with_context(|| conditions_line(&status))?;
    assert!(
        told.status == "False"
            && told.message.contains("opens")
            && !told.message.contains("elsewhere"),
        "{told:?}"
    );
    Ok(())
}
