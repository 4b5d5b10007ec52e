//! The hook that checks runs: their spec, their stamp, whether the policies of their namespace
//! grant the requirements of their template, and whether their submitter may read the sources of
//! their prompt.

use std::iter::empty;
use std::sync::Arc;

use jiff::Timestamp;
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::harness::{BrokerPolicy, HarnessRun, Workspace};
use oz_api::{AccessReview, Requester, encode};
use oz_core::access::emergency;
use oz_core::access::lock::Access;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::seal::Keys;
use oz_core::access::stamp;
use oz_core::validate::{REQUEST_METADATA, Violation};
use oz_runs::policy::Matching;
use oz_runs::requires::{self, Shortfall};
use oz_runs::run::spec_digest;
use oz_runs::template::{Resolved, Unresolved};
use oz_runs::{admission, terms};
use oz_trail::Action;

use super::authors::may_get;
use super::record;
use super::templates::RunTemplates;
use super::validate::Installation;
use crate::lock::Locks;
use crate::refusal::{
    bounded, denied, forbidden, immutable, invalid, namespace, status_is_the_operators,
};
use crate::stamp::{is_who_asks, requester};
use crate::validate_request::{no_owner_added, same_requester};
use crate::watched::Watched;

const KIND: &str = "HarnessRun";

/// The hook that checks runs.
pub(super) struct RunValidator {
    pub(super) keys: Keys,
    pub(super) installation: Installation,
    pub(super) definitions: Definitions,
    pub(super) reviews: Watched<AccessReview>,
    pub(super) locks: Locks,
}

/// The definitions of runs and their permissions, as the watches have shown them.
pub(super) struct Definitions {
    pub(super) templates: RunTemplates,
    pub(super) policies: Watched<BrokerPolicy>,
    pub(super) workspaces: Watched<Workspace>,
}

/// A resolved template of a run, with its digest.
struct Found {
    resolved: Resolved,
    digest: String,
}

/// The reason why the template of a run is unavailable.
#[derive(Debug, thiserror::Error)]
enum Unavailable {
    /// The name of the template is invalid.
    #[error("the name of the template is invalid")]
    Misnamed,
    /// It does not exist.
    #[error("template {template} does not exist; the run waits a minute for it")]
    Missing {
        /// The name of the template.
        template: String,
    },
    /// It cannot be resolved.
    #[error("template {template}: {why}")]
    Unresolved {
        /// The name of the template.
        template: String,
        /// The reason.
        why: Unresolved,
    },
}

impl Validate for RunValidator {
    type Object = HarnessRun;

    async fn validate(&self, cx: &Cx, review: &Review<HarnessRun>) -> Result<Notes, Rejection> {
        let Some(run) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            if review.user.username == *self.installation.broker {
                return Ok(Notes::none());
            }
            let next = "delete the run to cancel it, submit another for another prompt";
            return status_is_the_operators(review, &self.installation.operator, next);
        }
        // An object that is being deleted is not checked.
        if run.metadata.deletion_timestamp.is_some() {
            return Ok(Notes::none());
        }
        match (review.operation, &review.old) {
            (Operation::Create, _) => self.submitted(cx, review, run).await,
            (Operation::Update, Some(old)) => {
                bounded(&run.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
                if let Some(violation) = admission::run_update(old, run).first() {
                    return Err(immutable(&violation.field, &violation.message));
                }
                same_requester(&old.metadata, &run.metadata)?;
                no_owner_added(&old.metadata, &run.metadata)?;
                Ok(Notes::none())
            }
            _ => Ok(Notes::none()),
        }
    }
}

impl RunValidator {
    async fn submitted(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        run: &HarnessRun,
    ) -> Result<Notes, Rejection> {
        let decided = self.decide(cx, review, run).await;
        let mut written = record::about(cx.now, review, Action::RunSubmitted, &spec_digest(run));
        written.template.clone_from(&run.spec.template_ref.name);
        if let Ok((_, digest)) = &decided {
            written.template_digest.clone_from(digest);
        }
        written.details.extend(terms::details(&run.spec));
        let rejection = decided.as_ref().err();
        record::decided(cx, &*self.installation.records, written, rejection).await?;
        decided.map(|(notes, _)| notes)
    }

    /// Decides whether the run is admitted; returns the digest of its template, if the template
    /// exists.
    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        run: &HarnessRun,
    ) -> Result<(Notes, Option<String>), Rejection> {
        let namespace = namespace(review)?;
        self.installation.serves(Some(namespace))?;
        bounded(&run.metadata, None, &REQUEST_METADATA)?;
        let mut violations = admission::run(run);
        // An invalid name is not looked up.
        let named = violations
            .iter()
            .all(|one| one.field != "spec.templateRef.name");
        let found = match named {
            true => self.template(namespace, run).await?,
            false => Err(Unavailable::Misnamed),
        };
        let policies = self.policies(namespace).await?;
        let name = &run.spec.template_ref.name;
        let matching = Matching::from_policies(policies.iter().map(|policy| &**policy), name);
        if let Ok(found) = &found {
            let workspace = self.workspace(namespace, run).await?;
            let resolved = &found.resolved;
            let of_template =
                admission::run_of_template(run, resolved, &matching, workspace.as_deref());
            violations.extend(of_template);
        }
        if !violations.is_empty() {
            return Err(invalid(KIND, &violations));
        }
        let judgement = self.stamped(review, run)?;
        let submitter = requester(&review.user);
        let access = Access::run(&submitter, Some(namespace), name);
        self.locks.admit(&access, cx.now).await?;
        let resolved = found.as_ref().ok().map(|found| &found.resolved);
        if let Some(resolved) = resolved {
            terms::may(&submitter, &run.spec, resolved).map_err(denied)?;
        }
        policy::fulfils(judgement.as_ref(), terms::ask(&run.spec)).map_err(denied)?;
        self.has_room(&submitter, run, resolved).await?;
        let reads = admission::of_run(run);
        may_get(&cx.client, &review.user, namespace, &reads).await?;
        match found {
            Ok(found) => {
                granted(name, namespace, &found.resolved, &matching, cx.now)?;
                Ok((Notes::none(), Some(found.digest)))
            }
            Err(why) => Ok((Notes::none().warn(why.to_string()), None)),
        }
    }

    /// Checks whether the submitter has few enough unreviewed emergencies for another one, as the
    /// watch has shown them: the operator checks again, and also counts those of this moment.
    async fn has_room(
        &self,
        submitter: &Requester,
        run: &HarnessRun,
        template: Option<&Resolved>,
    ) -> Result<(), Rejection> {
        let declared = template.and_then(|template| terms::emergency(&run.spec, template));
        let Some(declared) = declared else {
            return Ok(());
        };
        let reviews = self.reviews.all().await?;
        let reviews = reviews.iter().map(AsRef::as_ref);
        let uid = run.metadata.uid.as_deref();
        let uids = emergency::unreviewed(&self.keys, submitter, uid, reviews, empty(), empty());
        let name = &run.spec.template_ref.name;
        emergency::has_room(submitter, name, declared.most, &uids).map_err(denied)
    }

    /// Returns the resolved template, or the reason why it is unavailable: the operator waits for
    /// it, and reports that.
    async fn template(
        &self,
        namespace: &str,
        run: &HarnessRun,
    ) -> Result<Result<Found, Unavailable>, Rejection> {
        let reference = &run.spec.template_ref;
        let template = || reference.name.clone();
        let Some(found) = self
            .definitions
            .templates
            .find(namespace, reference)
            .await?
        else {
            return Ok(Err(Unavailable::Missing {
                template: template(),
            }));
        };
        Ok(match found.resolved() {
            Ok(resolved) => Ok(Found {
                resolved,
                digest: encode::digest(found.spec()),
            }),
            Err(why) => Err(Unavailable::Unresolved {
                template: template(),
                why,
            }),
        })
    }

    async fn policies(&self, namespace: &str) -> Result<Vec<Arc<BrokerPolicy>>, Rejection> {
        let is_here =
            |policy: &BrokerPolicy| policy.metadata.namespace.as_deref() == Some(namespace);
        self.definitions.policies.select(is_here).await
    }

    async fn workspace(
        &self,
        namespace: &str,
        run: &HarnessRun,
    ) -> Result<Option<Arc<Workspace>>, Rejection> {
        match &run.spec.workspace_ref {
            Some(name) => {
                self.definitions
                    .workspaces
                    .find(Some(namespace), name)
                    .await
            }
            None => Ok(None),
        }
    }

    /// Checks that the stored run is the stamped run. Returns the judgement of the access policies.
    fn stamped(
        &self,
        review: &Review<HarnessRun>,
        run: &HarnessRun,
    ) -> Result<Option<Judgement>, Rejection> {
        let stamp = stamp::open(&self.keys, KIND, &run.metadata, &spec_digest(run));
        let stamped = stamp.as_ref().map(|stamp| stamp.requester.clone());
        let stamped = stamped.map_err(Clone::clone);
        is_who_asks(stamped, &review.user, "submit the run")?;
        Ok(stamp.ok().and_then(|stamp| stamp.judgement))
    }
}

/// Denies a run if its template requires more than the policies grant.
fn granted(
    name: &str,
    namespace: &str,
    resolved: &Resolved,
    policies: &Matching<'_>,
    now: Timestamp,
) -> Result<(), Rejection> {
    let Err(shortfall) = requires::admitted(name, namespace, resolved, policies, now) else {
        return Ok(());
    };
    let reason = match shortfall {
        Shortfall::Expired { .. } => "DiscoveryExpired",
        Shortfall::Lacking { .. } => "NotGranted",
    };
    let violation = Violation::new("spec.templateRef", shortfall.to_string());
    Err(forbidden(reason, &violation.field, &violation.message))
}
