//! Kinds that the operator may not list: the access that ends nevertheless, the access that waits, and the reports of
//! the
//! operator during that time.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use oz_api::Phase;
use oz_e2e::{NAMESPACE, Operator, Options, Scene, System, TEMPLATE, exec_request, install};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};

use crate::alone;

/// The role of the operator.
const ROLE: &str = "oz-operator";

/// Takes the right to list these away from the operator, and leaves its other rights on them.
async fn forbid(cluster: &Cluster, resource: &str) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client("admin").await?);
    let mut role = roles.get(ROLE).await?;
    let mut rules = Vec::new();
    for mut rule in role.rules.take().context("no rules")? {
        let named = rule.resources.get_or_insert_default();
        if named.iter().any(|one| one == resource) {
            named.retain(|one| one != resource);
            let mut rest = rule.clone();
            rest.resources = Some(vec![resource.to_owned()]);
            rest.verbs.retain(|verb| verb != "list" && verb != "watch");
            rules.push(rest);
        }
        rules.push(rule);
    }
    rules.retain(|rule| {
        let named = rule.resources.as_deref().unwrap_or_default();
        !named.is_empty() && !rule.verbs.is_empty()
    });
    role.rules = Some(rules);
    roles.replace(ROLE, &PostParams::default(), &role).await?;
    eventually(
        "the operator to be refused",
        CONDITION_TIMEOUT,
        async || {
            let mut kubectl = cluster.kubectl("admin");
            let operator = format!("--as=system:serviceaccount:{NAMESPACE}:oz-operator");
            kubectl.args(["auth", "can-i", "list", resource, "-A", &operator]);
            Ok((kubectl.output()?.stdout == b"no\n").then_some(()))
        },
    )
    .await
}

/// Kills the operator, and starts it without the right to list these: a grant stands until its expiry, and expires;
/// access to pods waits if it needs them; and the operator reports the reason. Then the operator gets the right again,
/// and
/// continues.
async fn without_the_list_of(resource: &str, kind: &str, waits: bool) -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "unlisted").await?;
    let alice = scene.requests("alice").await?;
    let brief = alice
        .granted(&exec_request("brief", TEMPLATE, "30s"))
        .await?;
    let lasting = alice
        .granted(&exec_request("lasting", TEMPLATE, "1h"))
        .await?;
    system.operator.process.kill9();
    forbid(cluster, resource).await?;
    system.operator = Operator::spawn(cluster, &Options::default())?;
    let said = format!("{kind} list (");
    let says = async || {
        let readiness = system.operator.readiness().await.ok();
        let (code, text) = readiness.unwrap_or_default();
        anyhow::Ok((code == 503 && text.contains(&said)).then_some(()))
    };
    eventually("the operator to say what it lacks", CONDITION_TIMEOUT, says).await?;
    alice.create(&exec_request("next", TEMPLATE, "1h")).await?;
    let binding = brief.object_name();
    scene
        .gone::<RoleBinding>(&binding, CONDITION_TIMEOUT)
        .await?;
    let (_, binding) = scene.grant(&lasting.object_name()).await?;
    ensure!(binding.is_some(), "what lasts for an hour is gone");
    if waits {
        let status = alice.api().get("next").await?.status.unwrap_or_default();
        ensure!(!status.ready, "granted without the list of {resource}");
    } else {
        alice.ready("next").await?;
    }
    says().await?.context("it says so no more")?;

    install(cluster).await?;
    alice.ready("next").await?;
    alice.phase("brief", Phase::Expired).await?;
    eventually("the operator to be ready", CONDITION_TIMEOUT, async || {
        let (code, text) = system.operator.readiness().await?;
        ensure!(code == 200, "{text}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn without_the_list_of_roles_a_grant_ends_by_what_its_binding_says() -> Result<()> {
    without_the_list_of("roles", "Role", true).await
}

#[tokio::test]
async fn without_the_list_of_bindings_a_grant_ends_by_what_its_role_says() -> Result<()> {
    without_the_list_of("rolebindings", "RoleBinding", true).await
}

#[tokio::test]
async fn grant_ends_by_sealed_expiry_without_list_of_requests() -> Result<()> {
    without_the_list_of("execaccessrequests", "ExecAccessRequest", true).await
}

#[tokio::test]
async fn without_the_list_of_templates_of_pods_grants_of_others_come_and_go() -> Result<()> {
    without_the_list_of("podaccesstemplates", "PodAccessTemplate", false).await
}
