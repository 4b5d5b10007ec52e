//! The survey of a CompositeController before it runs: its kinds, as the API server describes them,
//! and the rights that its account lacks.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::Api;
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use oz_composites::declared::{Declared, Family, KindName};
use oz_composites::supervise::{
    Composites, KIND_MISSING, Kinds, Later, Survey, binds, has_ends, needs, needs_of_rules,
};
use oz_composites::{Account, Accounts, Source};
use oz_core::controller::Failure;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::{Store, within};
use serde_json::{Value, json};

use super::kinds::placed;
use super::{Policies, Runs};

/// The timeout of all lookups of one survey.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(30);

/// The edge of [`Composites`].
pub(crate) struct Surveys<S> {
    pub(crate) objects: Store<S>,
    /// The definitions, of which the store has only the metadata: a changed one is looked up again.
    pub(crate) definitions: Store<PartialObjectMeta<CustomResourceDefinition>>,
    pub(crate) accounts: Accounts,
    pub(crate) runs: Arc<Runs>,
    pub(crate) policies: Arc<Policies>,
}

impl<S: Source> Observe<Composites<S>> for Surveys<S> {
    fn watches(&self) -> Watches<S> {
        let watches = Watches::new(&self.objects).signalled(&self.runs.told);
        let watches = self.policies.stores().fold(watches, |watches, maps| {
            let namespaces = self.policies.namespaces();
            watches.related(maps, move |map, composites| {
                let namespace = map.metadata.namespace.as_deref();
                composites.select(|composite| {
                    let declared = composite.declared().ok();
                    let declared = declared.map(|one| one.with_policies(&namespaces));
                    let mut policies = declared.iter().flat_map(Declared::policies);
                    policies.any(|policy| policy.modules.namespace() == namespace)
                })
            })
        });
        watches.related(&self.definitions, |definition, composites| {
            let Some(name) = definition.metadata.name.as_deref() else {
                return Vec::new();
            };
            composites.select(|composite| names(composite).any(|kind| kind == name))
        })
    }

    fn timeout(&self) -> Duration {
        SURVEY_TIMEOUT
    }

    fn facts(&self, _: &S) -> Option<Survey> {
        None
    }

    async fn answer(
        &self,
        cx: &Cx,
        object: &S,
        declared: Box<Declared>,
        facts: &mut Option<Survey>,
    ) {
        let version = version(cx, &declared.parent).await;
        let (mut family, kinds) = kinds(cx, &declared, &version).await;
        let observes_generation = match &version {
            Ok(Some(version)) => observes_generation(version),
            _ => false,
        };
        let declared = declared.with_policies(&self.policies.namespaces());
        let policy = self.policies.found(&declared).await.transpose();
        let has_ends = has_ends(&declared, policy.is_some());
        if family.is_ok()
            && let Err(failure) = self.runs.check_hosts(&declared).await
        {
            family = Err(failure);
        }
        let account = self.accounts.listed(declared.run_as.as_ref());
        let mut later = Later::default();
        let lacks = match (&family, account) {
            (Ok(family), Some(account)) => {
                let mut needs = needs(&declared, has_ends);
                let asked = match object.meta().deletion_timestamp {
                    None => self.runs.customized(cx, &declared, family, account).await,
                    Some(_) => Ok(Vec::new()),
                };
                match asked {
                    Ok(rules) => needs.extend(needs_of_rules(&rules)),
                    Err(failure) => later.customize = Some(failure),
                }
                later.binds = none_of(cx, account, binds(&declared, self.runs.bindable())).await;
                lacks(cx, account, needs).await
            }
            _ => Ok(Vec::new()),
        };
        let Some(uid) = object.meta().uid.as_deref() else {
            return;
        };
        *facts = Some(Survey {
            family,
            kinds,
            observes_generation,
            lacks,
            policy,
            held: self.runs.held(uid),
            tally: self.runs.tally(uid).await,
            later,
        });
    }
}

/// Returns the names of the definitions on which a composite depends.
fn names<S: Source>(composite: &S) -> impl Iterator<Item = String> {
    let declared = composite.readable().into_iter();
    let kinds = declared.flat_map(|declared| {
        let children = declared.children.into_iter().map(|(kind, _)| kind);
        let related = declared.related.into_iter().map(|rule| rule.kind);
        std::iter::once(declared.parent)
            .chain(children)
            .chain(related)
    });
    kinds.map(|kind| format!("{}.{}", kind.resource, kind.group()))
}

/// Returns the kinds of a composite, if it can run with them; and the existing kinds. The failure names all kinds that
/// are missing.
async fn kinds(
    cx: &Cx,
    declared: &Declared,
    version: &Result<Option<CustomResourceDefinitionVersion>, Failure>,
) -> (Result<Family, Failure>, Kinds) {
    let parent = placed(cx, &declared.parent).await;
    let mut missing: Vec<Failure> = parent.as_ref().err().cloned().into_iter().collect();
    let found = declared.children.iter().map(async |(name, method)| {
        let placed = placed(cx, name).await.map(|(placed, _)| (placed, *method));
        let is_hidden = match &placed {
            Ok(_) => false,
            Err(failure) => !is_undefined(cx, name, failure).await,
        };
        (placed, is_hidden)
    });
    let (mut children, mut hidden) = (Vec::new(), false);
    for (placed, is_hidden) in join_all(found).await {
        hidden |= is_hidden;
        match placed {
            Ok(placed) => children.push(placed),
            Err(failure) => missing.push(failure),
        }
    }
    let related = declared.related.iter().map(|rule| placed(cx, &rule.kind));
    missing.extend(join_all(related).await.into_iter().filter_map(Result::err));
    let (parent, is_listed) = match parent {
        Ok(found) => found,
        Err(failure) => {
            let is_gone = is_undefined(cx, &declared.parent, &failure).await;
            let kinds = if is_gone {
                Kinds::NoParents
            } else {
                Kinds::Unknown
            };
            return (Err(together(&missing).unwrap_or(failure)), kinds);
        }
    };
    let family = Family { parent, children };
    let has_status = match version {
        // The list of resources lags behind the definition.
        Ok(Some(version)) => version
            .subresources
            .as_ref()
            .is_some_and(|all| all.status.is_some()),
        _ => is_listed,
    };
    let mut missing = together(&missing);
    if let Err(failure) = version {
        missing = missing.or_else(|| Some(failure.clone()));
    }
    if !has_status && declared.has_function() {
        let message = format!(
            "{} has no status subresource, which the function's response requires",
            declared.parent
        );
        missing = Some(Failure::invalid("StatusMissing", message));
    }
    let runnable = missing.map_or_else(|| Ok(family.clone()), Err);
    (runnable, Kinds::Served { family, hidden })
}

/// Combines failures into one: the first, with the messages of all.
fn together(failures: &[Failure]) -> Option<Failure> {
    let mut messages: Vec<&str> = Vec::new();
    for failure in failures {
        if !messages.contains(&failure.message.as_str()) {
            messages.push(&failure.message);
        }
    }
    let first = failures.first()?.clone();
    let message = messages.join("; ");
    Some(Failure { message, ..first })
}

/// Checks whether a kind that was not found has no definition either, so that it has no objects: a
/// version that is temporarily not served still has them.
async fn is_undefined(cx: &Cx, kind: &KindName, failure: &Failure) -> bool {
    let name = kind.to_string();
    let definition = async || cx.get::<CustomResourceDefinition>(None, &name).await;
    failure.reason == KIND_MISSING && matches!(definition().await, Ok(None))
}

/// Returns a version of a kind from its definition; `None` if it has no definition.
async fn version(
    cx: &Cx,
    kind: &KindName,
) -> Result<Option<CustomResourceDefinitionVersion>, Failure> {
    let name = format!("{}.{}", kind.resource, kind.group());
    let definition = cx.get::<CustomResourceDefinition>(None, &name).await?;
    let versions = definition.map(|definition| definition.spec.versions);
    let mut versions = versions.into_iter().flatten();
    Ok(versions.find(|version| version.name == kind.version()))
}

/// Checks whether a version of a kind has observedGeneration in its status.
fn observes_generation(version: &CustomResourceDefinitionVersion) -> bool {
    let schema = version.schema.as_ref();
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = json!(schema);
    let is_open = |at: &Value| at["x-kubernetes-preserve-unknown-fields"] == true;
    let status = &schema["properties"]["status"];
    is_open(status)
        || status["properties"]["observedGeneration"].is_object()
        || (status.is_null() && is_open(&schema))
}

/// Returns these rights if an account has none of them. Without an answer, it may have one.
async fn none_of(
    cx: &Cx,
    account: &Account,
    rights: Vec<ResourceAttributes>,
) -> Vec<ResourceAttributes> {
    let lacked = lacks(cx, account, rights.clone()).await;
    match lacked.is_ok_and(|lacked| lacked.len() == rights.len()) {
        true => rights,
        false => Vec::new(),
    }
}

/// Returns those of these rights that an account lacks.
async fn lacks(
    cx: &Cx,
    account: &Account,
    needs: Vec<ResourceAttributes>,
) -> Result<Vec<ResourceAttributes>, Failure> {
    let reviews: Api<SubjectAccessReview> = Api::all(cx.client().clone());
    let asked = needs.into_iter().map(async |need| {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(account.user()),
                groups: Some(account.groups().to_vec()),
                resource_attributes: Some(need.clone()),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let what = || format!("failed to check the rights of {account}");
        let parameters = PostParams::default();
        let answer = within(reviews.create(&parameters, &review), what).await;
        let answer = answer.map_err(oz_engine::of_call)?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok::<_, Failure>((!allowed).then_some(need))
    });
    let lacks = try_join_all(asked).await?;
    Ok(lacks.into_iter().flatten().collect())
}
