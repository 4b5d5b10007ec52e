//! Rights through transient bindings that would become permanent, templates by authors with fewer rights than the
//! template grants, requests that extend another request, and the network and admission of a dedicated pod.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::{ExecAccessTemplate, Phase, PodAccessTemplate, TargetKind, TransientRoleBinding};
use oz_e2e::{
    Gate, NAMESPACE, Options, System, TEMPLATE, WORKLOAD, conditions_line, exec_request,
    exec_template, pod_request, pod_template, refused, repository, run,
};
use oz_testkit::{Cluster, eventually};
use serde_json::{Value, json};

use crate::Stage;
use crate::requests::SOON;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A ClusterRole that the operator's list names in full, and that can write RBAC objects.
const KEEPER: &str = "keeper";

/// Starts oz with transient bindings of harmless roles named `team-*` and of [`KEEPER`], and with pods that are tried
/// as the authors of their templates.
pub(crate) async fn start(cluster: &Cluster) -> Result<System> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["apply", "--server-side", "--force-conflicts"]);
    for part in ["transient", "impersonate"] {
        let part = repository().join("deploy/rbac").join(part);
        kubectl.arg(format!("--filename={}", part.display()));
    }
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
    let bindable = r#"["team-*", "keeper"]"#;
    let webhook = Options::default()
        .set("transient.bindableRoles", bindable)
        .set("webhook.requesterExtra", "[example.org/acr]")
        .limited();
    let operator = Gate::operator_options()
        .set("transient.bindableRoles", bindable)
        .set("operator.impersonateAuthors", true);
    System::start_as(cluster, &webhook, &operator).await
}

/// Returns a stage in which alice may request transient bindings and bind every ClusterRole.
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

/// Creates a ClusterRole with one rule, named after the stage.
async fn cluster_role(stage: &Stage, prefix: &str, rule: Value) -> Result<String> {
    let name = format!("{prefix}-{}", stage.name());
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": name}, "rules": [rule],
    }))?;
    let roles: Api<ClusterRole> = Api::all(stage.admin.clone());
    roles.create(&PostParams::default(), &role).await?;
    Ok(name)
}

/// Requests a transient binding to this ClusterRole as alice.
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

/// Returns the denial of a role with this rule, which matches a pattern in the operator's list.
async fn told_of(stage: &Stage, name: &str, rule: Value) -> Result<String> {
    let role = cluster_role(stage, &format!("team-{name}"), rule).await?;
    refused(ask_to_bind(stage, name, &role).await?)
}

/// Requesting the right to write Roles or RoleBindings for five minutes, which would permit a permanent binding: the
/// webhook denies it and names the rule.
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

/// Checks that each of these rights (group, resource, verb), in a separate role, is denied with the rule as the reason.
async fn each_is_refused(prefix: &str, rules: &[(&str, &str, &str)]) -> Result<()> {
    let stage = binding_stage(prefix).await?;
    for (number, (group, resource, verb)) in rules.iter().enumerate() {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(&format!("{verb} {resource}")), "{why}");
    }
    Ok(())
}

/// Requesting the right to create pods or workloads for five minutes, which run as any service account and read any
/// Secret of the namespace: the webhook denies it.
#[tokio::test]
async fn a_transient_right_to_make_pods() -> Result<()> {
    let rules = [
        ("", "pods", "create"),
        ("apps", "deployments", "patch"),
        ("batch", "cronjobs", "update"),
    ];
    each_is_refused("making-pods", &rules).await
}

/// Requesting the right to change admission for all users, the definition of an API, or the labels of a namespace for
/// five minutes: the webhook denies it.
#[tokio::test]
async fn a_transient_right_over_admission() -> Result<()> {
    let rules = [
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
    ];
    each_is_refused("over-admission", &rules).await
}

/// Requesting the right to approve certificates for any name, or to write oz's own templates and audit records, for
/// five minutes: the webhook denies it.
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

/// Requesting a role that the operator's list names in full and that can write RBAC objects: the operator binds it,
/// because the list names it, with a condition and an event.
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

/// Creating a template as an author who may exec into pods but not read them, although a grant includes both rights:
/// the webhook denies it and names the missing rights.
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

/// Extending another user's request: the webhook denies it and names that request.
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

/// Extending a request that has expired, that does not exist, or that was not granted: the webhook denies it.
#[tokio::test]
async fn extension_of_ended_request_is_refused() -> Result<()> {
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

/// Extending one's own request with another pod: the webhook denies it; without a pod, the extension is for the same
/// pod.
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

/// Extending a request that is deleted before the decision: the operator denies the extension.
#[tokio::test]
async fn extension_of_request_deleted_before_decision_is_denied() -> Result<()> {
    let stage = Stage::set("extend-gone").await?;
    let alice = stage.requests("alice").await?;
    alice
        .granted(&exec_request("first", TEMPLATE, "5m"))
        .await?;
    // The request waits for its template.
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

/// Sending data through port 53 to another name server, from a pod that may use name servers only: each egress rule of
/// its NetworkPolicy has destinations, and these are the cluster's name servers.
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

/// Creating a NetworkPolicy that also selects a dedicated pod, since NetworkPolicies add up: a condition of the request
/// names it, and the request is granted.
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

/// A template for a pod that admission denies to the template's author but not to oz, which is exempt: the operator
/// tries the pod as the author, and the request waits with the denial in its condition.
#[tokio::test]
async fn a_pod_that_admission_refuses_to_its_author() -> Result<()> {
    let stage = Stage::set("as-author").await?;
    exempt_oz(&stage).await?;
    let account = format!("system:serviceaccount:{}:deployer", stage.name());
    stage.cluster.issue_kubeconfig(
        &account,
        &[
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{}", stage.name()),
        ],
    )?;
    let rules = [
        json!({
            "apiGroups": ["crds.wizardofoz.co"], "resources": ["podaccesstemplates"],
            "verbs": ["create", "patch", "get"],
        }),
        json!({
            "apiGroups": [""], "resources": ["pods", "pods/exec"],
            "verbs": ["get", "list", "watch", "create"],
        }),
    ];
    stage.allow("authors-bob", "bob", &rules).await?;
    stage.allow("authors-account", &account, &rules).await?;
    let patch = json!([{"op": "add", "path": "/spec/hostNetwork", "value": true}]);
    let host = json!({"controllerTargetMutationConfig": {"patchSpecOperations": patch}});
    let alice = stage.pod_requests("alice").await?;
    for (number, (author, more, why)) in [
        ("bob", &host, Some("no host network for bob")),
        ("bob", &json!({}), None),
        (
            account.as_str(),
            &host,
            Some("no host network for system:serviceaccount:"),
        ),
        ("admin", &host, None),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("pod-{number}");
        let client = stage.cluster.client(author).await?;
        let templates: Api<PodAccessTemplate> = Api::namespaced(client, stage.name());
        let mut template = pod_template(&name, WORKLOAD, more)?;
        // A user cannot choose the recorded author.
        template.metadata.annotations = Some(BTreeMap::from([(
            "crds.wizardofoz.co/author".to_owned(),
            json!({"user": "admin", "groups": ["system:masters"], "specDigest": ""}).to_string(),
        )]));
        templates.create(&PostParams::default(), &template).await?;
        let request = pod_request(&name, &name, "5m");
        let Some(why) = why else {
            alice.granted(&request).await?;
            continue;
        };
        alice.create(&request).await?;
        let waiting = alice.until(&name, "to say why it waits", |status| {
            conditions_line(status).contains(why)
        });
        let status = waiting.await?.status.unwrap_or_default();
        assert_eq!(status.phase, Phase::Pending);
        // A change of the template by another user with rights keeps the author.
        let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        let api = stage.api::<PodAccessTemplate>();
        let touched = api.patch(&name, &PatchParams::default(), &label).await?;
        let noted = touched.metadata.annotations.unwrap_or_default();
        let noted = noted
            .get("crds.wizardofoz.co/author")
            .cloned()
            .unwrap_or_default();
        assert!(noted.contains(author), "{noted}");
    }
    Ok(())
}

/// Creates an admission policy under which only administrators and oz may use the host's network, as in a cluster that
/// exempts the accounts of trusted namespaces.
async fn exempt_oz(stage: &Stage) -> Result<()> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": stage.name()},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                "operations": ["CREATE"],
            }]},
            "validations": [{
                "expression": "!(has(object.spec.hostNetwork) && object.spec.hostNetwork) || \
                    request.userInfo.username.startsWith('system:serviceaccount:oz-system:') || \
                    'system:masters' in request.userInfo.groups",
                "messageExpression": "'no host network for ' + request.userInfo.username",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": stage.name()},
        "spec": {
            "policyName": stage.name(), "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {
                "kubernetes.io/metadata.name": stage.name(),
            }}},
        },
    });
    let apply = PatchParams::apply("test");
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(stage.admin.clone());
    let patch = Patch::Apply(&policy);
    policies.patch(stage.name(), &apply, &patch).await?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.admin.clone());
    let patch = Patch::Apply(&binding);
    bindings.patch(stage.name(), &apply, &patch).await?;
    // The API server applies the policy with a delay.
    let host: Pod = serde_json::from_value(json!({
        "metadata": {"name": "host"},
        "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "a"}]},
    }))?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let rules = [json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})];
    stage.allow("tries", "mallory", &rules).await?;
    let client = stage.cluster.client("mallory").await?;
    let pods: Api<Pod> = Api::namespaced(client, stage.name());
    eventually("the policy to be in effect", SOON, async || {
        let refused = pods.create(&dry, &host).await.is_err();
        Ok(refused.then_some(()))
    })
    .await
}
