//! The hook that checks transient bindings. It denies a new one that the operator would never bind;
//! the contents of an existing one are immutable; only the operator writes its status.

use std::iter::empty;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::{Api, Client};
use oz_admission::{Cx, Notes, Operation, Rejection, Review, UserInfo, Validate};
use oz_api::{Requester, RoleKind};
use oz_audit::Sink;
use oz_core::access::emergency;
use oz_core::access::lock::Access;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::seal::Keys;
use oz_core::controller::Failure;
use oz_core::lifecycle::window::has_come;
use oz_core::transient::{
    Binding, Closes, FINALIZER, Kind, Listed, Policy, Terms, longest, may_bind,
};
use oz_core::validate::{REQUEST_METADATA, Violation};
use oz_trail::{Action, Decision};

use super::watches::Watches;
use crate::permission::{allowed, within_permission_timeout};
use crate::record;
use crate::refusal::{
    bounded, denied, forbidden, immutable, invalid, served, status_is_the_operators,
};
use crate::stamp::{is_who_asks, requester};
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
        let binding = object.view();
        let decided = self.decide(cx, review, &binding).await;
        if cx.dry_run {
            return decided;
        }
        let (action, decision, reason, message) = match &decided {
            Ok(_) => (
                Action::RequestCreated,
                Decision::Allow,
                "Admitted",
                asks(&review.user, &binding),
            ),
            Err(rejection) => (
                Action::RequestDenied,
                Decision::Deny,
                rejection.reason.as_ref(),
                rejection.message.clone(),
            ),
        };
        let record = binding.admission(cx.now, action, decision, reason, message);
        let stamp = binding.stamp(&self.keys).ok();
        let judgement = stamp.and_then(|stamp| stamp.judgement);
        let mut record = record::judged(record, judgement.as_ref());
        record.user = Some(requester(&review.user));
        review.display_name().clone_into(&mut record.request.name);
        match &decided {
            Ok(_) => record::write(&*self.records, &record).await?,
            Err(_) => record::write_refusal(&*self.records, &record).await,
        }
        decided
    }

    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<K>,
        binding: &Binding<'_>,
    ) -> Result<Notes, Rejection> {
        bounded(binding.metadata, None, &REQUEST_METADATA)?;
        let terms = match &binding.terms {
            Ok(terms) => terms,
            Err(violations) => return Err(invalid(binding.kind, violations)),
        };
        let created = binding.metadata.creation_timestamp.as_ref();
        let created = created.map_or(cx.now, |time| time.0);
        let mut notes = self.window(cx.now, created, binding, terms)?;
        let judgement = self.stamped(review, binding)?;
        let namespace = review.namespace.as_deref();
        served(&self.served, namespace)?;
        let asking = requester(&review.user);
        let listed = self
            .policy
            .permits(terms, namespace, created)
            .map_err(|failure| refused::<K>(terms, &failure))?;
        if !allowed(
            &cx.client,
            &review.user,
            may_bind(&asking, namespace, &terms.role),
        )
        .await?
        {
            let role = &terms.role;
            let message = format!(
                "{} may not bind {} {} themselves (verb bind on the role), and so not through oz \
                 either",
                asking.user, role.kind, role.name
            );
            return Err(refused::<K>(
                terms,
                &Failure::invalid("MayNotBind", message),
            ));
        }
        let access = Access::bound(&asking, &terms.subjects, namespace);
        self.watches.locks.admit(&access, cx.now).await?;
        binding
            .permitted(judgement.as_ref(), &asking)
            .map_err(denied)?;
        self.has_room(binding, judgement.as_ref(), &asking).await?;
        notes = shortened(notes, terms, created, judgement.as_ref());
        let rules = rules(&cx.client, &review.user, namespace, terms).await;
        let rules = match listed {
            // Read only for the warning: the operator's condition reports it as well.
            Listed::ByName => rules.ok().flatten(),
            _ => {
                let rules = rules?;
                if rules.is_none() {
                    notes = notes.warn(format!(
                        "{} {} does not exist; the binding is created when it exists",
                        terms.role.kind, terms.role.name
                    ));
                }
                rules
            }
        };
        let rules = rules.as_deref().unwrap_or(&[]);
        let danger = Policy::permits_content(&terms.role, listed, rules, namespace)
            .map_err(|failure| refused::<K>(terms, &failure))?;
        let uid = binding.metadata.uid.as_deref().unwrap_or(&review.uid);
        self.may_wait(cx, terms, (&asking.user, uid)).await?;
        Ok(match danger {
            Some(danger) => notes.warn(danger),
            None => notes,
        })
    }

    /// Checks whether the requester has few enough unreviewed emergencies for another one, as the watch has shown them:
    /// the operator checks again, and also counts those of this moment.
    async fn has_room(
        &self,
        binding: &Binding<'_>,
        judgement: Option<&Judgement>,
        requester: &Requester,
    ) -> Result<(), Rejection> {
        let terms = binding.emergency(judgement, requester).map_err(denied)?;
        let Some(terms) = terms else {
            return Ok(());
        };
        let reviews = self.watches.reviews.all().await?;
        let reviews = reviews.iter().map(AsRef::as_ref);
        let uid = binding.metadata.uid.as_deref();
        let uids = emergency::unreviewed(&self.keys, requester, uid, reviews, empty(), empty());
        let source = policy::deciders(judgement);
        emergency::has_room(requester, &source, terms.most, &uids).map_err(denied)
    }

    /// Checks whether one more window of the user may wait to open: that of the object with this UID. This is the
    /// last check, as the window counts from then on.
    async fn may_wait(
        &self,
        cx: &Cx,
        terms: &Terms,
        (user, uid): (&str, &str),
    ) -> Result<(), Rejection> {
        if terms.from.is_none_or(|from| has_come(cx.now, from)) {
            return Ok(());
        }
        let permits = |waiting| {
            let permitted = self.policy.permits_waiting(user, waiting);
            permitted.map_err(|failure| refused::<K>(terms, &failure))
        };
        let (who, when) = ((user, uid), (cx.now, cx.dry_run));
        self.watches
            .waiting
            .admit(&self.keys, who, when, permits)
            .await
    }

    /// Checks whether the window ever opens. The published kinds admit one that does not, and so
    /// does oz.
    fn window(
        &self,
        now: Timestamp,
        created: Timestamp,
        binding: &Binding<'_>,
        terms: &Terms,
    ) -> Result<Notes, Rejection> {
        let Some(wrong) = terms.futile(now, created) else {
            return Ok(Notes::none());
        };
        let field = format!("{}validUntil", K::PREFIX);
        if K::LENIENT {
            return Ok(Notes::none().warn(format!("{field}: {wrong}")));
        }
        Err(invalid(binding.kind, &[Violation::new(field, wrong)]))
    }

    /// Checks that the stored object is the stamped object, with oz's finalizer: another webhook
    /// may have changed it in between, or this webhook may not have been called. Returns the
    /// judgement of the access policies.
    fn stamped(
        &self,
        review: &Review<K>,
        binding: &Binding<'_>,
    ) -> Result<Option<Judgement>, Rejection> {
        let stamp = binding.stamp(&self.keys);
        let stamped = stamp.as_ref().map(|stamp| stamp.requester.clone());
        let stamped = stamped.map_err(Clone::clone);
        is_who_asks(stamped, &review.user, "create the object")?;
        if !has_finalizer(binding.metadata) {
            return Err(Rejection::forbidden(
                "NoFinalizer",
                format!(
                    "the finalizer {FINALIZER} was removed after oz's webhook: without it a \
                     deletion could leave the binding; check which other webhook removed it"
                ),
            ));
        }
        Ok(stamp.ok().and_then(|stamp| stamp.judgement))
    }
}

/// Adds a warning if access policies shorten the requested window.
fn shortened(
    notes: Notes,
    terms: &Terms,
    created: Timestamp,
    judgement: Option<&Judgement>,
) -> Notes {
    let longest = longest(judgement, terms.emergency);
    match longest.filter(|longest| SignedDuration::from(*longest) < terms.length(created)) {
        Some(longest) => notes.warn(format!(
            "the window will be {longest}, the maximum of the AccessPolicies of the cluster"
        )),
        None => notes,
    }
}

fn has_finalizer(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == FINALIZER)
}

/// Returns the denial by the policy, with the field that caused it.
fn refused<K: Kind>(terms: &Terms, failure: &Failure) -> Rejection {
    let field = match (failure.reason, terms.closes) {
        ("ReservedNamespace", _) => "metadata.namespace".to_owned(),
        ("WindowTooFar" | "TooManyWaiting", _) => format!("{}validFrom", K::PREFIX),
        ("WindowTooLong", Closes::At(_)) => format!("{}validUntil", K::PREFIX),
        ("WindowTooLong", Closes::After(_)) => format!("{}duration", K::PREFIX),
        _ => format!("{}roleRef", K::PREFIX),
    };
    forbidden(failure.reason, &field, &failure.message)
}

/// Returns the rules of the role; `None` if the role does not exist.
async fn rules(
    client: &Client,
    user: &UserInfo,
    namespace: Option<&str>,
    terms: &Terms,
) -> Result<Option<Vec<PolicyRule>>, Rejection> {
    let (name, client) = (&terms.role.name, client.clone());
    let read = async {
        Ok(match (terms.role.kind, namespace) {
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
