//! Rights for a time that would be kept, templates by those who may do less than they hand out,
//! requests that continue what is not theirs, and what surrounds a pod of one's own.

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

/// A ClusterRole that the list names in full, and that can write RBAC.
const KEEPER: &str = "keeper";

/// oz with transient bindings, of whatever is called `team-*` if it is harmless, and of [`KEEPER`]; and
/// with pods that are tried as the authors of their templates.
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
    let bindable = "--bindable-roles=team-*,keeper";
    let webhook = Options::default().flag(bindable).limited();
    let operator = Gate::operator_options().flag(bindable);
    let operator = operator.flag("--impersonate-authors");
    System::start_as(cluster, &webhook, &operator).await
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

/// Each of these rights (group, resource, verb), by a role of its own, is refused with the rule that says so.
async fn each_is_refused(prefix: &str, rules: &[(&str, &str, &str)]) -> Result<()> {
    let stage = binding_stage(prefix).await?;
    for (number, (group, resource, verb)) in rules.iter().enumerate() {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        let why = told_of(&stage, &number.to_string(), rule).await?;
        assert!(why.contains(&format!("{verb} {resource}")), "{why}");
    }
    Ok(())
}

/// A right for five minutes to make pods, or workloads that make them, which run as any service
/// account and read any Secret of the namespace: refused.
#[tokio::test]
async fn a_transient_right_to_make_pods() -> Result<()> {
    let rules = [
        ("", "pods", "create"),
        ("apps", "deployments", "patch"),
        ("batch", "cronjobs", "update"),
    ];
    each_is_refused("making-pods", &rules).await
}

/// A right for five minutes to take part in everybody's admission, to change what an API is, or to
/// change the labels of a namespace that say what may happen in it: refused.
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
async fn extension_of_request_deleted_before_decision_is_denied() -> Result<()> {
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

/// A template for a pod that admission refuses to its author, but not to oz, which somebody exempted: the
/// pod is tried as its author, and the request waits and says so.
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
        // Who it is is not theirs to say.
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
        // Written again as it is, by somebody who may: it is still whose it was.
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

/// A policy that lets nobody but administrators and oz use the host's network: what people write who
/// exempt the accounts of namespaces that they trust.
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
    // The API server takes a moment.
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
