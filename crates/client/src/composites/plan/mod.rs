//! The plan of composites before they are applied: what a policy, a RegoController or a CompositeController from files
//! would change, for each live parent. The operator's own functions create the plans; nothing is written.

mod change;
mod kinds;
mod manifests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{DynamicObject, Selector};
use kube::{Api, ResourceExt as _};
use oz_composites::declared::{Declared, Family, InProcess, Modules, Placed};
use oz_composites::{Declaration, Moment};
use oz_core::controller::Live;
use oz_core::validate::Violation;
use serde::Serialize;

pub use self::change::{Change, Field, Kind};
pub use self::manifests::{Manifests, objects};
use super::{declared, parent};
use crate::cluster::Cluster;
use crate::explain::composite::{Outcome, Planner, Withheld, as_operator, family, withheld};
use crate::explain::function::Policies;
use crate::explain::hook::Hook;
use crate::failure::{Failure, Result};

/// What to plan, and by which facts.
pub struct Wanted {
    /// The manifests of composites and policies.
    pub manifests: Manifests,
    /// The parents and children, instead of those of a cluster.
    pub objects: Option<Objects>,
    /// The namespaces of Rego policies of the operator.
    pub namespaces: Vec<String>,
    /// True for the parents of all namespaces, and not only of the cluster's.
    pub everywhere: bool,
    /// The instant of the plan.
    pub at: Timestamp,
    /// The address of the server that is called for functions behind HTTP.
    pub hook_address: Option<String>,
}

/// Parents and children from files.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The parents.
    pub parents: Vec<DynamicObject>,
    /// The children, and other objects of their kinds.
    pub children: Vec<DynamicObject>,
}

/// The plan of a composite.
pub struct Planned {
    /// The composite.
    pub composite: Declaration,
    /// The plans for its parents, in the order of their namespaces and names.
    pub parents: Vec<OfParent>,
    /// The reason why a plan is not carried out.
    pub withheld: Option<Withheld>,
}

/// The plan for a parent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfParent {
    /// The kind.
    pub kind: String,
    /// The namespace; `None` for a parent that is cluster-scoped.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The changes now.
    pub changes: Vec<Change>,
    /// The later changes, if only time passes.
    pub later: Vec<Moment>,
    /// The instant after which there may be more changes.
    pub tried_until: Option<Timestamp>,
    /// The reason why the plan is not known, or not carried out completely.
    pub obstacle: Option<String>,
}

impl Planned {
    /// Returns the number of changes of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        let changes = self.parents.iter().flat_map(|parent| &parent.changes);
        changes.filter(|change| change.kind == kind).count()
    }

    /// Checks whether anything changes now.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.parents.iter().any(|parent| !parent.changes.is_empty())
    }

    /// Checks whether the plan of some parent is not known, or not carried out completely.
    #[must_use]
    pub fn has_obstacles(&self) -> bool {
        self.parents.iter().any(|parent| parent.obstacle.is_some())
    }
}

/// Returns the plans of the composites in the manifests; without any, those of the cluster's composites that run a
/// policy in them. Without a cluster, parents and children must be given.
///
/// # Errors
/// A manifest declares no valid composite; or an object cannot be read, which the user may not be permitted to.
pub async fn plan(cluster: Option<&Cluster>, wanted: &Wanted) -> Result<Vec<Planned>> {
    let mut namespaces = wanted.namespaces.clone();
    namespaces.extend(wanted.manifests.namespaces());
    let composites = match (wanted.manifests.composites.is_empty(), cluster) {
        (false, _) => wanted.manifests.composites.clone(),
        (true, None) => Vec::new(),
        (true, Some(cluster)) => {
            let found = super::read(cluster, &[]).await?;
            let runs = |one: &Declaration| wanted.manifests.has_policy_of(one, &namespaces);
            found.composites.into_iter().filter(runs).collect()
        }
    };
    if composites.is_empty() {
        return Err(Failure::new("no file has a composite, and none of the cluster runs a policy in them")
            .next("name a file with a CompositeController, a RegoController, or the ConfigMap of its policy"));
    }
    let mut planned = Vec::new();
    for composite in composites {
        planned.push(one(cluster, wanted, &namespaces, composite).await?);
    }
    Ok(planned)
}

async fn one(
    cluster: Option<&Cluster>,
    wanted: &Wanted,
    namespaces: &[String],
    composite: Declaration,
) -> Result<Planned> {
    let declared = declared(&composite, namespaces).map_err(|violations| {
        let violations = Violation::list(&violations);
        Failure::new(format!(
            "{} is not accepted: {violations}",
            composite.title()
        ))
        .next("`ozctl lint` shows the line of each field")
    })?;
    let (family, parents, mut children) = match (&wanted.objects, cluster) {
        (Some(given), _) => {
            let family = match cluster {
                Some(cluster) => family(cluster, &declared).await?,
                None => kinds::family(&declared, given)?,
            };
            let children = Children::given(&family, &given.children);
            (family, given.parents.iter().map(stored).collect(), children)
        }
        (None, Some(cluster)) => {
            let family = family(cluster, &declared).await?;
            let parents = parents(cluster, wanted, &composite, &family.parent).await?;
            let children = Children::read(cluster, wanted, &family).await?;
            (family, parents, children)
        }
        (None, None) => return Err(Failure::new("without a cluster, --parent is required")),
    };
    let withheld = withheld(&composite, &declared);
    let adopts = !declared.generate_selector;
    let selects = |parent: &DynamicObject| selects(&declared, parent);
    let mut parents: Vec<DynamicObject> = parents.into_iter().filter(selects).collect();
    parents.sort_by_key(|parent| {
        (
            parent.metadata.namespace.clone(),
            parent.metadata.name.clone(),
        )
    });
    let hook = wanted.hook_address.as_deref().map(Hook::at).transpose()?;
    let mut planner = Planner {
        cluster,
        policies: Policies::new(cluster, &wanted.manifests.config_maps),
        hook,
        composite: as_operator(&composite, declared.clone(), family),
        withheld,
        now: wanted.at,
    };
    let mut of_parents = Vec::new();
    for parent in &parents {
        let live = children.of(parent, adopts);
        let outcome = planner.plan(parent, live).await?;
        of_parents.push(of_parent(parent, &planner, outcome));
    }
    Ok(Planned {
        composite,
        parents: of_parents,
        withheld,
    })
}

/// Returns a parent of a file as one that is stored: with a UID.
fn stored(parent: &DynamicObject) -> DynamicObject {
    let mut parent = parent.clone();
    let uid = &mut parent.metadata.uid;
    uid.get_or_insert_with(|| "00000000-0000-4000-8000-000000000000".to_owned());
    parent
}

fn selects(declared: &Declared, parent: &DynamicObject) -> bool {
    let labels = parent.metadata.labels.clone().into_iter().flatten();
    declared.selects(&labels.collect()) || declared.holds(&parent.metadata)
}

fn of_parent(parent: &DynamicObject, planner: &Planner<'_>, outcome: Outcome) -> OfParent {
    let metadata = &parent.metadata;
    let mut planned = OfParent {
        kind: planner.composite.family.parent.resource.kind.clone(),
        namespace: metadata.namespace.clone(),
        name: parent.name_any(),
        changes: Vec::new(),
        later: Vec::new(),
        tried_until: None,
        obstacle: None,
    };
    match outcome {
        Outcome::Untold { why, .. } => planned.obstacle = Some(why),
        Outcome::Told {
            plan,
            live,
            timeline,
            tried_until,
            ..
        } => {
            let parent = Live {
                resource: planner.composite.family.parent.resource.clone(),
                object: parent.clone(),
            };
            planned.changes = change::changes(&plan, &parent, &live);
            planned.later = timeline.unwrap_or_default();
            planned.tried_until = tried_until;
            planned.obstacle = plan.obstacle.map(|obstacle| obstacle.message);
        }
    }
    planned
}

/// Lists the parents of a composite.
async fn parents(
    cluster: &Cluster,
    wanted: &Wanted,
    composite: &Declaration,
    kind: &Placed,
) -> Result<Vec<DynamicObject>> {
    let mut parameters = ListParams::default();
    if let (_, Some(labels)) = parent(composite) {
        let selector = Selector::try_from(labels.clone());
        let selector = selector.map_err(|error| Failure::new(error.to_string()))?;
        if !selector.selects_all() {
            parameters = parameters.labels_from(&selector);
        }
    }
    let api = everywhere(cluster, wanted, kind);
    let (found, _) = cluster.pages(&api, parameters, usize::MAX).await?;
    Ok(found)
}

fn everywhere(cluster: &Cluster, wanted: &Wanted, kind: &Placed) -> Api<DynamicObject> {
    match wanted.everywhere {
        true => Api::all_with(cluster.client.clone(), &kind.resource),
        false => super::objects(cluster, kind),
    }
}

/// The objects of the kinds of children, by the UIDs of their controllers.
#[derive(Default)]
struct Children {
    owned: HashMap<String, Vec<Live>>,
    /// The objects without a controller, which a parent may adopt.
    free: Vec<Live>,
}

impl Children {
    async fn read(cluster: &Cluster, wanted: &Wanted, family: &Family) -> Result<Self> {
        let mut children = Self::default();
        for (kind, _) in &family.children {
            // The children of parents that are cluster-scoped are in any namespace.
            let api = match family.parent.cluster_scoped {
                true => Api::all_with(cluster.client.clone(), &kind.resource),
                false => everywhere(cluster, wanted, kind),
            };
            let (found, _) = cluster
                .pages(&api, ListParams::default(), usize::MAX)
                .await?;
            found.into_iter().for_each(|one| children.add(kind, one));
        }
        Ok(children)
    }

    fn given(family: &Family, objects: &[DynamicObject]) -> Self {
        let mut children = Self::default();
        for object in objects {
            let types = object.types.as_ref();
            let kind = types.and_then(|types| family.child(&types.api_version, &types.kind));
            if let Some((kind, _)) = kind {
                children.add(kind, object.clone());
            }
        }
        children
    }

    fn add(&mut self, kind: &Placed, object: DynamicObject) {
        let owner = oz_api::labels::controller(&object.metadata).map(|owner| owner.uid.clone());
        let live = Live {
            resource: kind.resource.clone(),
            object,
        };
        match owner {
            Some(uid) => self.owned.entry(uid).or_default().push(live),
            None => self.free.push(live),
        }
    }

    /// Returns those of a parent, and those that it may adopt.
    fn of(&mut self, parent: &DynamicObject, adopts: bool) -> Vec<Live> {
        let mut live = Vec::new();
        if let Some(uid) = &parent.metadata.uid {
            live.extend(self.owned.remove(uid).into_iter().flatten());
        }
        let namespace = &parent.metadata.namespace;
        let may_adopt =
            |one: &&Live| namespace.is_none() || one.object.metadata.namespace == *namespace;
        if adopts {
            live.extend(self.free.iter().filter(may_adopt).cloned());
        }
        live
    }
}

/// Returns the namespace and the name of the ConfigMap of a policy; no name for a bundle, `None` for another source.
fn place(policy: &InProcess) -> Option<(&str, Option<&str>)> {
    match &policy.modules {
        Modules::Bundle(namespace) => Some((namespace, None)),
        Modules::Key {
            namespace, name, ..
        } => Some((namespace, Some(name))),
        Modules::Inline(_) => None,
    }
}
