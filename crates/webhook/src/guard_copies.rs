//! The hooks that prevent copies of the rights of a grant: during a grant, a user who may write
//! Roles and RoleBindings could give its rights to themselves permanently, since Kubernetes checks
//! whether a user has the rights and not their source. They are called only for objects that could
//! be such a copy, by a user who may not exec into every pod of the namespace. They change nothing.
//! They are called among the mutating hooks because the API server's policies, which deny most
//! copies too, run after those and write no audit record.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use kube::{Api, Client};
use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_audit::Sink;
use oz_core::connect::GrantState;
use oz_core::connect::copied::{Entry, copied};
use oz_core::kinds::Right;
use oz_runtime::{Event, EventType};
use oz_trail::{Action, Decision, Record};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::connect::Grants;
use crate::refusal::namespace;
use crate::stamp::requester;
use crate::{permission, record};

/// The data and components on which both hooks base their decisions.
#[derive(Clone)]
pub(crate) struct Copies {
    grants: Grants,
    records: Arc<dyn Sink>,
    unknown: Counter,
}

/// The hook for Roles.
pub(crate) struct RoleGuard(pub(crate) Copies);

/// The hook for RoleBindings: one that binds to a Role with the same rights is a copy as well.
pub(crate) struct BindingGuard(pub(crate) Copies);

impl Mutate for RoleGuard {
    type Object = Role;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<Role>,
        role: &mut Role,
    ) -> Result<Notes, Rejection> {
        let standings = self.0.standings(review);
        let rules = role.rules.as_deref().unwrap_or(&[]);
        let name = format!("Role {}", review.display_name());
        self.0.judge(cx, review, &standings, rules, &name).await
    }
}

impl Mutate for BindingGuard {
    type Object = RoleBinding;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<RoleBinding>,
        binding: &mut RoleBinding,
    ) -> Result<Notes, Rejection> {
        let standings = self.0.standings(review);
        // A user without a grant has no rights of a grant to copy, so no further check is required.
        if standings.is_empty() {
            return Ok(Notes::none());
        }
        let namespace = namespace(review)?;
        let (kind, name) = (&binding.role_ref.kind, &binding.role_ref.name);
        let role = format!("{kind} {name}");
        let read = rules_of(&cx.client, namespace, kind, name);
        match permission::within_permission_timeout(&review.user, read).await {
            // Kubernetes denies a binding to a role that does not exist.
            Ok(None) => Ok(Notes::none()),
            Ok(Some(rules)) => self.0.judge(cx, review, &standings, &rules, &role).await,
            Err(why) => {
                self.0.alarm(cx, review, namespace, &role, &why).await;
                Ok(Notes::none())
            }
        }
    }
}

async fn rules_of(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> kube::Result<Option<Vec<PolicyRule>>> {
    let rules = if kind == "ClusterRole" {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        roles.get_opt(name).await?.map(|role| role.rules)
    } else {
        let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
        roles.get_opt(name).await?.map(|role| role.rules)
    };
    Ok(rules.map(Option::unwrap_or_default))
}

impl Copies {
    pub(crate) fn new(grants: Grants, records: Arc<dyn Sink>) -> Self {
        Self {
            grants,
            records,
            unknown: Counter::default(),
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_grant_copies_unchecked",
            "RoleBindings of users with grants that were admitted without a decision",
            self.unknown.clone(),
        );
    }

    /// Returns the grants of the user, including expired ones: RBAC may still have them.
    fn standings<K>(&self, review: &Review<K>) -> Vec<GrantState> {
        let Some(namespace) = &review.namespace else {
            return Vec::new();
        };
        self.grants
            .list_for_user(namespace, &requester(&review.user))
    }

    /// Denies rules that hand out rights which the user has only by a grant.
    async fn judge<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        standings: &[GrantState],
        rules: &[PolicyRule],
        role: &str,
    ) -> Result<Notes, Rejection> {
        for standing in standings {
            let grant = &standing.grant;
            let entries = copied(rules, grant);
            if entries.is_empty() {
                continue;
            }
            let Some(entry) = self.held_by_a_grant_alone(cx, review, &entries).await? else {
                continue;
            };
            let refusal = Rejection::forbidden(
                "GrantCopied",
                format!(
                    "{role} grants {entry} for pod {}, which {} has by request {} until {}: a user \
                     may not pass on or extend the rights of a grant; have a user create it who \
                     has these rights for every pod of the namespace",
                    grant.pod.name, review.user.username, grant.request.name, grant.window.until
                ),
            );
            if !cx.dry_run {
                let (decision, message) = (Decision::Deny, &refusal.message);
                let record = about(cx, review, role, decision, &refusal.reason, message)
                    .detail("request", grant.request.name.clone());
                record::write_refusal(&*self.records, &record).await;
            }
            return Err(refusal);
        }
        Ok(Notes::none())
    }

    /// Returns the first of the rights that the user does not have for every pod. Every grant is
    /// for one pod, so a right for all pods has another source. A right for exactly this pod from
    /// another source cannot be distinguished from the grant; the user can hand it on when the
    /// grant is over.
    async fn held_by_a_grant_alone<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        entries: &[Entry],
    ) -> Result<Option<Right>, Rejection> {
        let right = |entry: &Entry| Right {
            verb: entry.verb,
            resource: "pods",
            subresource: Some(entry.subresource),
        };
        let namespace = namespace(review)?;
        let rights = entries.iter().map(right).collect();
        let missing = permission::missing(&cx.client, &review.user, namespace, rights).await?;
        Ok(missing.into_iter().next())
    }

    /// Reports a binding that could not be judged, and admits it: most are no copies.
    async fn alarm<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        namespace: &str,
        role: &str,
        why: &Rejection,
    ) {
        let message = format!(
            "{} has a grant, and binds subjects to {role}, but oz failed to check whether the role \
             grants the same rights ({}); check the binding: kubectl get rolebinding {} -n \
             {namespace} -o yaml",
            review.user.username,
            why.message,
            review.display_name()
        );
        self.unknown.inc();
        tracing::warn!("{message}");
        if cx.dry_run {
            return;
        }
        let record = about(cx, review, role, Decision::Note, "Unknown", &message);
        record::write_refusal(&*self.records, &record).await;
        let event = Event {
            type_: EventType::Warning,
            reason: "GrantCopyUnchecked".to_owned(),
            note: Some(message),
            action: "Bind".to_owned(),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some("rbac.authorization.k8s.io/v1".to_owned()),
            kind: Some("RoleBinding".to_owned()),
            namespace: review.namespace.clone(),
            name: Some(review.display_name().to_owned()),
            ..ObjectReference::default()
        };
        cx.publish(event, regarding);
    }
}

fn about<K>(
    cx: &Cx,
    review: &Review<K>,
    role: &str,
    decision: Decision,
    reason: &str,
    message: &str,
) -> Record {
    let (action, subject) = (Action::GrantCopied, &review.uid);
    let mut record = Record::about(cx.now, action, decision, subject, reason, message);
    record.user = Some(requester(&review.user));
    record.request.kind.clone_from(&review.kind.kind);
    record::set_namespace(&mut record, review);
    review.display_name().clone_into(&mut record.request.name);
    record.detail("role", role.to_owned())
}
