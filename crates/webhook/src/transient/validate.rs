//! The hook that checks transient bindings. It denies a new one that the operator would never bind;
//! the contents of an existing one are immutable; only the operator writes its status.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::{Api, Client};
use oz_admission::{Cx, Notes, Operation, Rejection, Review, UserInfo, Validate};
use oz_api::{RoleKind, RoleReference};
use oz_audit::Sink;
use oz_core::access::rules::{Creation, NewObject as _, Served};
use oz_core::access::seal::Keys;
use oz_core::transient::creation::{BindingQuestion, NewBinding, has_finalizer};
use oz_core::transient::{Binding, Closes, FINALIZER, Kind, Policy, may_bind};
use oz_core::validate::REQUEST_METADATA;
use oz_trail::{Action, Decision};

use super::watches::Watches;
use crate::creation::apply;
use crate::permission::{allowed, within_permission_timeout};
use crate::record;
use crate::refusal::{bounded, immutable, status_is_the_operators};
use crate::review::unreviewed;
use crate::stamp::requester;
use crate::validate_request::{no_owner_added, same_requester};

/// The hook that checks transient bindings of one kind.
pub(crate) struct BindingValidator<K> {
    pub(crate) keys: Keys,
    pub(crate) policy: Arc<Policy>,
    /// The namespaces that the operator serves; empty for all.
    pub(crate) served: Arc<[String]>,
    pub(crate) operator: Arc<str>,
    pub(crate) records: Arc<dyn Sink>,
    pub(crate) watches: Watches,
    pub(crate) kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Validate for BindingValidator<K> {
    type Object = K;

    async fn validate(&self, cx: &Cx, review: &Review<K>) -> Result<Notes, Rejection> {
        let Some(object) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            let next = "delete the object to revoke the binding, create another for another window";
            return status_is_the_operators(review, &self.operator, next);
        }
        match (review.operation, &review.old) {
            (Operation::Create, _) => self.create(cx, review, object).await,
            (Operation::Update, Some(old)) => {
                bounded(object.meta(), Some(old.meta()), &REQUEST_METADATA)?;
                unchanged(object, old)
            }
            _ => Ok(Notes::none()),
        }
    }
}

impl<K: Kind> BindingValidator<K> {
    async fn create(&self, cx: &Cx, review: &Review<K>, object: &K) -> Result<Notes, Rejection> {
        let creator = requester(&review.user);
        let creation = Creation {
            now: cx.now,
            creator: &creator,
            namespace: review.namespace.as_deref(),
            // The limits of bindings reserve oz's own namespace.
            served: Served {
                own: None,
                namespaces: &self.served,
            },
            is_canary: false,
        };
        let mut new = NewBinding::new(&self.keys, creation, &self.policy, object);
        let decided = self.decide(cx, review, &mut new).await;
        if cx.dry_run {
            return decided;
        }
        let binding = new.binding();
        let (action, decision, reason, message) = match &decided {
            Ok(_) => (
                Action::RequestCreated,
                Decision::Allow,
                "Admitted",
                asks(&review.user, binding),
            ),
            Err(rejection) => (
                Action::RequestDenied,
                Decision::Deny,
                rejection.reason.as_ref(),
                rejection.message.clone(),
            ),
        };
        let record = binding.admission(cx.now, action, decision, reason, message);
        let mut record = record::judged(record, new.judgement());
        record.user = Some(creator.clone());
        review.display_name().clone_into(&mut record.request.name);
        match &decided {
            Ok(_) => {
                let written = record::write(&*self.records, &record).await;
                if written.is_err() {
                    self.watches.waiting.forget(counted_as(review, binding));
                }
                written?;
            }
            Err(_) => {
                self.watches.waiting.forget(counted_as(review, binding));
                record::write_refusal(&*self.records, &record).await;
            }
        }
        decided
    }

    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<K>,
        new: &mut NewBinding<'_, K>,
    ) -> Result<Notes, Rejection> {
        loop {
            match apply(K::title(), &*new)? {
                ControlFlow::Break(notes) => return Ok(notes),
                ControlFlow::Continue(question) => self.read(cx, review, new, question).await?,
            }
        }
    }

    /// Answers a question of the rules.
    async fn read(
        &self,
        cx: &Cx,
        review: &Review<K>,
        new: &mut NewBinding<'_, K>,
        question: BindingQuestion,
    ) -> Result<(), Rejection> {
        let (user, namespace) = (&review.user, review.namespace.as_deref());
        match question {
            BindingQuestion::Locks => new.facts.locks = Some(self.watches.locks.read().await?),
            BindingQuestion::MayBind(role) => {
                let right = may_bind(&requester(user), namespace, &role);
                new.facts.may_bind = Some(allowed(&cx.client, user, right).await?);
            }
            BindingQuestion::Waiting => {
                let permits =
                    |waiting| self.policy.permits_waiting(&user.username, waiting).is_ok();
                let uid = counted_as(review, new.binding());
                let (who, when) = ((user.username.as_str(), uid), (cx.now, cx.dry_run));
                let waiting = self
                    .watches
                    .waiting
                    .count(&self.keys, who, when, permits)
                    .await?;
                new.facts.waiting = Some(waiting);
            }
            BindingQuestion::Reviews => {
                let (keys, object) = (&self.keys, new.binding().metadata);
                let found = unreviewed(&self.watches.reviews, keys, user, object).await?;
                new.facts.unreviewed = Some(found);
            }
            BindingQuestion::Role { role, for_warning } => {
                let rules = rules(&cx.client, user, namespace, &role).await;
                new.facts.role = Some(match for_warning {
                    // The operator's condition reports it as well.
                    true => rules.ok().flatten(),
                    false => rules?,
                });
            }
        }
        Ok(())
    }
}

/// Returns the UID by which the binding counts.
fn counted_as<'a, K>(review: &'a Review<K>, binding: &Binding<'a>) -> &'a str {
    let uid = binding.metadata.uid.as_deref();
    uid.unwrap_or(&review.uid)
}

/// Returns the rules of the role; `None` if the role does not exist.
async fn rules(
    client: &Client,
    user: &UserInfo,
    namespace: Option<&str>,
    role: &RoleReference,
) -> Result<Option<Vec<PolicyRule>>, Rejection> {
    let (name, client) = (&role.name, client.clone());
    let read = async {
        Ok(match (role.kind, namespace) {
            // A binding of the whole cluster is to no Role.
            (RoleKind::Role, None) => None,
            (RoleKind::Role, Some(namespace)) => {
                let roles = Api::<Role>::namespaced(client, namespace);
                roles.get_opt(name).await?.map(|role| role.rules)
            }
            (RoleKind::ClusterRole, _) => {
                let roles = Api::<ClusterRole>::all(client);
                roles.get_opt(name).await?.map(|role| role.rules)
            }
        })
    };
    let rules = within_permission_timeout(user, read).await?;
    Ok(rules.map(Option::unwrap_or_default))
}

/// Returns the description of the requested binding for the audit record.
fn asks(user: &UserInfo, binding: &Binding<'_>) -> String {
    let Ok(terms) = &binding.terms else {
        return format!("{} asks for a binding", user.username);
    };
    let until = match terms.closes {
        Closes::At(until) => format!("until {until}"),
        Closes::After(duration) => format!("for {duration}"),
    };
    let (user, kind, name) = (&user.username, terms.role.kind, &terms.role.name);
    match terms.from {
        Some(from) => format!("{user} requests a binding of {kind} {name} from {from} {until}"),
        None => format!("{user} requests a binding of {kind} {name} {until}"),
    }
}

/// Denies a change of the requested contents or of the requester, and the removal of oz's
/// finalizer.
fn unchanged<K: Kind>(object: &K, old: &K) -> Result<Notes, Rejection> {
    if object.spec_digest() != old.spec_digest() {
        let role = |object: &K| object.terms().ok().map(|terms| terms.role);
        let field = match K::PREFIX {
            _ if role(object) != role(old) => format!("{}roleRef", K::PREFIX),
            "" => "validUntil".to_owned(),
            _ => "spec".to_owned(),
        };
        let message = "roleRef, subjects and window are immutable: delete the object to revoke the \
                       binding, create a new one for another window";
        return Err(immutable(&field, message));
    }
    same_requester(old.meta(), object.meta())?;
    no_owner_added(old.meta(), object.meta())?;
    if has_finalizer(old.meta()) && !has_finalizer(object.meta()) {
        let message = format!(
            "only oz removes {FINALIZER}, when no object of the binding is left; delete the object"
        );
        return Err(immutable("metadata.finalizers", &message));
    }
    Ok(Notes::none())
}
