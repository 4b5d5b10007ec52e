//! Change tickets and emergencies of transient bindings, by access policies, from the request to its end.

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::conditions::{self, EMERGENCY, TICKET_ACCEPTED};
use oz_api::{
    AccessPolicy, AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference,
    AccessReview, ApprovedKind, BindingStatus, EmergencyConfig, EndReason, Finding, Phase,
    PolicyThen, ReviewConfig, TicketConfig, TransientClusterRoleBinding, TransientRoleBinding,
    example_com,
};
use oz_core::transient::Kind;
use oz_e2e::{
    NAMESPACE, Options, Person, Scene, System, TicketAnswer, TicketServer, agreed, apply, apply_as,
    approval_rule, established, found, policy, records_in, refused, ticket_checks, with_policies,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);
const ERIN: Person = Person::new("erin", &["security"]);
const ANSWERS: &str = "accessrequestapprovals";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Starts oz with transient bindings of `view`, also of the published kinds, and permits the group `leads` to request
/// and bind them.
async fn start(cluster: &Cluster, operator: &Options) -> Result<System> {
    clean(cluster).await?;
    for part in ["deploy/rbac/transient", "deploy/example-com"] {
        apply(cluster, part)?;
    }
    established(cluster)?;
    let admin = cluster.client("admin").await?;
    let bind = json!({
        "metadata": {"name": "leads-bind"},
        "rules": [{
            "apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"],
            "resourceNames": ["view"],
        }],
    });
    apply_as(&Api::<ClusterRole>::all(admin.clone()), bind).await?;
    for (name, role) in [
        ("leads-bind", "leads-bind"),
        ("leads-ask", "oz-request-bindings"),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "leads"}],
        });
        apply_as(&Api::<ClusterRoleBinding>::all(admin.clone()), binding).await?;
    }
    let with_bindings = |options: Options| {
        options
            .set("transient.bindableRoles", r#"["view"]"#)
            .set("transient.serveExampleCom", true)
    };
    let webhook = with_bindings(Options::default());
    System::start_as(cluster, &webhook, &with_bindings(operator.clone())).await
}

/// Returns a binding of a user to `view` for ten minutes, with more fields of the spec.
fn binding<K: Kind>(name: &str, user: &str, more: &Value) -> Result<K> {
    let mut spec = json!({
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": user}],
        "duration": "10m",
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    Ok(serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": spec}),
    )?)
}

/// Waits until an object has a status for which `holds`.
async fn until<K: Kind>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(&BindingStatus) -> bool,
) -> Result<BindingStatus> {
    eventually(&format!("{name} {what}"), CONDITION_TIMEOUT, async || {
        let status = api.get(name).await?.status().cloned().unwrap_or_default();
        ensure!(holds(&status), "{status:?}");
        Ok(Some(status))
    })
    .await
}

/// Waits until an object is in this phase.
async fn phase<K: Kind>(api: &Api<K>, name: &str, phase: Phase) -> Result<BindingStatus> {
    until(api, name, &format!("to be {phase}"), |status| {
        status.phase == phase
    })
    .await
}

/// Waits until the webhook refuses an object with this message. Before, the API server does not know the rights of its
/// user yet.
async fn is_refused<K: Kind>(api: &Api<K>, object: &K, message: &str) -> Result<()> {
    eventually(
        &format!("a denial: {message}"),
        CONDITION_TIMEOUT,
        async || {
            let why = refused(api.create(&PostParams::default(), object).await)?;
            ensure!(why.contains(message), "{why}");
            Ok(Some(()))
        },
    )
    .await
}

fn reason(status: &BindingStatus, type_: &str) -> String {
    let found = conditions::find(&status.conditions, type_);
    found.map_or_else(String::new, |found| {
        format!("{} {}", found.status, found.reason)
    })
}

/// Returns the record of an action about an object.
fn recorded(system: &System, name: &str, action: Action) -> Result<Record> {
    let mut records = records_in(&system.operator.process)?.into_iter();
    let found = records.find(|record| record.request.name == name && record.action == action);
    found.with_context(|| format!("no {action} of {name}"))
}

/// Returns the approval of a waiting binding.
async fn approval(api: &Api<TransientRoleBinding>, name: &str) -> Result<AccessRequestApproval> {
    let binding = api.get(name).await?;
    let status = binding.status.clone().unwrap_or_default();
    let spec = AccessRequestApprovalSpec {
        access_request_ref: AccessRequestReference {
            kind: ApprovedKind::TransientRoleBinding,
            name: name.to_owned(),
            uid: binding.uid().context("no UID")?,
        },
        approval: true,
        reason: None,
        digest: status.approval.context("no approval is required")?.digest,
    };
    Ok(AccessRequestApproval::new("yes", spec))
}

#[tokio::test]
async fn approved_binding_ends_when_its_ticket_is_closed() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let server = TicketServer::start(TicketAnswer::Open).await?;
    let mut check = server.check("Fail");
    // A server that answers late on a busy machine is not unavailable.
    check["timeout"] = json!("10s");
    let system = start(cluster, &ticket_checks(&json!({"jira": check}))).await?;
    let scene = Scene::set(cluster, "binding-ticket").await?;
    scene.may_approve("approvers").await?;
    cluster.issue_kubeconfig("lea", &["leads"])?;
    let api: Api<TransientRoleBinding> =
        Api::namespaced(cluster.client("lea").await?, scene.name());
    let required = PolicyThen {
        require_ticket: Some(TicketConfig {
            pattern: Some("INC-.*".to_owned()),
            check: Some("jira".to_owned()),
        }),
        ..agreed(approval_rule("security", &["bob"], &[], 1))
    };
    let required = policy(&scene, "ticket", "true", required);
    with_policies(&scene, &[required], async || {
        ends_with_ticket(&scene, &system, &server, &api).await?;
        published_kind_is_refused(&scene).await
    })
    .await
}

async fn ends_with_ticket(
    scene: &Scene,
    system: &System,
    server: &TicketServer,
    api: &Api<TransientRoleBinding>,
) -> Result<()> {
    let create = PostParams::default();
    let unnamed = binding::<TransientRoleBinding>("unnamed", "lea", &json!({}))?;
    is_refused(api, &unnamed, "requires a ticket").await?;

    let named = binding("on-call", "lea", &json!({"ticket": "INC-42"}))?;
    api.create(&create, &named).await?;
    let waits = |status: &BindingStatus| status.approval.is_some();
    let waiting = until(api, "on-call", "to wait for bob", waits).await?;
    assert_eq!(waiting.phase, Phase::Pending);
    ensure!(!server.asked().is_empty(), "the server was not asked");
    let bindings = scene.api::<RoleBinding>();
    ensure!(bindings.get_opt("on-call").await?.is_none(), "it is bound");
    let yes = approval(api, "on-call").await?;
    BOB.create(&scene.admin, scene.name(), ANSWERS, &yes)
        .await?;
    let active = phase(api, "on-call", Phase::Active).await?;
    assert_eq!(reason(&active, TICKET_ACCEPTED), "True Success");
    ensure!(
        bindings.get_opt("on-call").await?.is_some(),
        "it is not bound"
    );

    server.answer(TicketAnswer::Closed);
    let status = phase(api, "on-call", Phase::Revoked).await?;
    assert_eq!(reason(&status, TICKET_ACCEPTED), "False TicketClosed");
    let ending = status.ending.context("no end")?;
    assert_eq!(ending.reason, EndReason::TicketClosed);
    ensure!(
        bindings.get_opt("on-call").await?.is_none(),
        "it is still bound"
    );
    let granted = recorded(system, "on-call", Action::AccessGranted)?;
    assert_eq!(granted.details["ticket"], "INC-42");
    assert_eq!(granted.details["ticketChecks"], "jira");
    ensure!(granted.details["approvedBy"].contains("bob"), "{granted:?}");
    let revoked = recorded(system, "on-call", Action::AccessRevoked)?;
    assert_eq!(revoked.reason, "TicketClosed");

    // A closed ticket binds nothing.
    let again = binding("again", "lea", &json!({"ticket": "INC-42"}))?;
    api.create(&create, &again).await?;
    let denied = phase(api, "again", Phase::Denied).await?;
    assert_eq!(reason(&denied, TICKET_ACCEPTED), "False TicketRefused");
    Ok(())
}

async fn published_kind_is_refused(scene: &Scene) -> Result<()> {
    let now = jiff::Timestamp::now();
    let flat: example_com::RoleBinding = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "TransientRoleBinding",
        "metadata": {"name": "flat"},
        "validFrom": now, "validUntil": now + SignedDuration::from_mins(10),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "lea"}],
    }))?;
    let api = Api::<example_com::RoleBinding>::namespaced(scene.admin.clone(), scene.name());
    let why = refused(api.create(&PostParams::default(), &flat).await)?;
    let next = "create a TransientRoleBinding of crds.wizardofoz.co with spec.ticket";
    ensure!(why.contains(next), "{why}");
    Ok(())
}

/// Returns an approval of bob, which an emergency of the group `leads` replaces.
fn guarded() -> PolicyThen {
    PolicyThen {
        emergency: Some(EmergencyConfig {
            groups: vec!["leads".to_owned()],
            users: Vec::new(),
            max_duration: "5m".to_owned(),
            review: ReviewConfig {
                deadline: "24h".to_owned(),
                groups: vec!["security".to_owned()],
                users: Vec::new(),
            },
            open_reviews: 2,
        }),
        ..agreed(approval_rule("security", &["bob"], &[], 1))
    }
}

#[tokio::test]
async fn emergency_binding_is_bound_without_approval_announced_and_reviewed() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let system = start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "binding-emergency").await?;
    scene.may_review("security").await?;
    // Unreviewed emergencies count across namespaces.
    cluster.issue_kubeconfig("lea-burns", &["leads"])?;
    let api: Api<TransientRoleBinding> =
        Api::namespaced(cluster.client("lea-burns").await?, scene.name());
    let urgent = json!({"emergency": true, "reason": "INC-42"});
    let of_scene = policy(&scene, "guarded", "true", guarded());
    with_policies(&scene, &[of_scene], async || {
        let create = PostParams::default();
        let others = binding::<TransientRoleBinding>("others", "alison", &urgent)?;
        is_refused(&api, &others, "binds its requester alone").await?;

        let own = binding::<TransientRoleBinding>("inc", "lea-burns", &urgent)?;
        api.create(&create, &own).await?;
        let status = phase(&api, "inc", Phase::Active).await?;
        assert_eq!(reason(&status, EMERGENCY), "True GrantedWithoutApproval");
        assert_eq!(status.approval, None);
        let (from, until) = (status.activated_at, status.expires_at);
        let length = until
            .context("no end")?
            .duration_since(from.context("no start")?);
        assert_eq!(length, SignedDuration::from_mins(5));
        let granted = recorded(&system, "inc", Action::EmergencyGranted)?;
        assert_eq!(granted.details["reason"], "INC-42");
        is_announced(&scene, "inc").await?;

        let review = scene.review_of("inc").await?;
        let about = review
            .spec
            .access_request_ref
            .as_ref()
            .context("no request")?;
        assert_eq!(about.kind, ApprovedKind::TransientRoleBinding);
        assert_eq!(review.spec.requester.user, "lea-burns");
        let written = found(Finding::Justified);
        ERIN.reviews(&scene, &review.name_any(), &written).await?;
        Ok(())
    })
    .await?;
    cluster_wide_emergency_is_reviewed_in_namespace_of_oz(&scene, &urgent).await
}

/// Waits until an event announces an emergency.
async fn is_announced(scene: &Scene, name: &str) -> Result<()> {
    let events = scene.api::<Event>();
    eventually(
        "the emergency to be announced",
        CONDITION_TIMEOUT,
        async || {
            let all = events.list(&Default::default()).await?;
            let is_it = |event: &Event| {
                let about = event.regarding.as_ref();
                event.reason.as_deref() == Some("EmergencyGranted")
                    && event.type_.as_deref() == Some("Warning")
                    && about.is_some_and(|about| about.name.as_deref() == Some(name))
            };
            Ok(all.iter().any(is_it).then_some(()))
        },
    )
    .await
}

async fn cluster_wide_emergency_is_reviewed_in_namespace_of_oz(
    scene: &Scene,
    urgent: &Value,
) -> Result<()> {
    let name = format!("{}-whole", scene.name());
    let mut whole = policy(scene, "whole", "true", guarded());
    whole.spec.r#match = format!("request.name == '{name}'");
    let policies = Api::<AccessPolicy>::all(scene.admin.clone());
    let whole = policies.create(&PostParams::default(), &whole).await?;
    let client = scene.cluster.client("lea-burns").await?;
    let api = Api::<TransientClusterRoleBinding>::all(client);
    let object = binding::<TransientClusterRoleBinding>(&name, "lea-burns", urgent)?;
    let created = eventually("the policy to permit it", CONDITION_TIMEOUT, async || {
        Ok(Some(api.create(&PostParams::default(), &object).await?))
    })
    .await?;
    phase(&api, &name, Phase::Active).await?;
    let reviews = Api::<AccessReview>::namespaced(scene.admin.clone(), NAMESPACE);
    let uid = created.uid();
    let review = eventually("its review", CONDITION_TIMEOUT, async || {
        let all = reviews.list(&Default::default()).await?;
        let about = |review: &AccessReview| {
            let about = review.spec.access_request_ref.as_ref();
            about.map(|about| about.uid.clone())
        };
        Ok(all.into_iter().find(|review| about(review) == uid))
    })
    .await?;
    assert_eq!(review.spec.reviewed_namespace.as_deref(), Some(""));
    let now = DeleteParams::default();
    api.delete(&name, &now).await?;
    policies.delete(&whole.name_any(), &now).await?;
    Ok(())
}
