//! Composites of both kinds, read from the cluster. If one kind does not exist, or may not be listed, the other
//! remains.

use futures::future::try_join_all;
use kube::Api;
use kube::api::ListParams;
use oz_api::composite::CompositeController;
use oz_api::rego::RegoController;
use oz_composites::{Declaration, Source};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::names;

/// Composites that were read.
pub struct Found<T> {
    /// The composites that could be read, CompositeControllers before RegoControllers.
    pub composites: Vec<T>,
    /// The reason why the other kind could not be read, if the cluster does not have it or the user may not list it.
    pub unread: Option<Failure>,
}

/// Reads the composites with these names, of either kind, or all.
///
/// # Errors
/// Neither kind can be read, or no composite has one of the names.
pub async fn read(cluster: &Cluster, named: &[String]) -> Result<Found<Declaration>> {
    if named.is_empty() {
        let (composites, regos) = futures::join!(composites(cluster, &[]), regos(cluster));
        return either(composites, regos);
    }
    let mut found = Found {
        composites: Vec::new(),
        unread: None,
    };
    for name in named {
        let one = [name.clone()];
        let (composite, rego) = futures::join!(composites(cluster, &one), rego(cluster, name));
        // A kind without an object of this name is not reported, if the other kind has one.
        let is_absent = |failure: &Failure| failure.is_not_found();
        let both = match (composite, rego) {
            (Err(absent), Ok(rego)) if is_absent(&absent) => either(Ok(Vec::new()), Ok(rego))?,
            (Ok(composite), Err(absent)) if is_absent(&absent) => {
                either(Ok(composite), Ok(Vec::new()))?
            }
            (composite, rego) => either(composite, rego)?,
        };
        found.composites.extend(both.composites);
        found.unread = found.unread.or(both.unread);
    }
    Ok(found)
}

/// Combines the results of two kinds. If one kind does not exist, or may not be listed, the other remains.
fn either(
    composites: Result<Vec<CompositeController>>,
    regos: Result<Vec<RegoController>>,
) -> Result<Found<Declaration>> {
    let leaves_other = |failure: &Failure| failure.is_not_found() || failure.is_forbidden();
    let (composites, regos, unread) = match (composites, regos) {
        (Ok(composites), Ok(regos)) => (composites, regos, None),
        (Err(failure), Ok(regos)) if leaves_other(&failure) => (Vec::new(), regos, Some(failure)),
        (Ok(composites), Err(failure)) if leaves_other(&failure) => {
            (composites, Vec::new(), Some(failure))
        }
        (Err(failure), _) | (_, Err(failure)) => return Err(failure),
    };
    let composites = composites.into_iter().map(Source::declaration);
    let regos = regos.into_iter().map(Source::declaration);
    Ok(Found {
        composites: composites.chain(regos).collect(),
        unread,
    })
}

async fn regos(cluster: &Cluster) -> Result<Vec<RegoController>> {
    let api = Api::<RegoController>::all(cluster.client.clone());
    let list = cluster.answer(api.list(&ListParams::default())).await;
    list.map(|list| list.items).map_err(without_regos)
}

async fn rego(cluster: &Cluster, name: &str) -> Result<Vec<RegoController>> {
    let api = Api::<RegoController>::all(cluster.client.clone());
    let found = cluster.answer(api.get(names::checked(name)?)).await;
    found.map(|one| vec![one]).map_err(without_regos)
}

fn without_regos(failure: Failure) -> Failure {
    match failure.is_unknown_kind() {
        true => Failure::new("the cluster has no RegoControllers (crds.wizardofoz.co/v1alpha1)")
            .next("install the definitions of this version of oz")
            .not_found(),
        false => failure,
    }
}

/// Reads the CompositeControllers with these names, or all.
async fn composites(cluster: &Cluster, named: &[String]) -> Result<Vec<CompositeController>> {
    let api = Api::<CompositeController>::all(cluster.client.clone());
    let found = if named.is_empty() {
        let list = cluster.answer(api.list(&ListParams::default())).await;
        list.map(|list| list.items)
    } else {
        let each = named.iter().map(async |name| {
            let found = cluster.answer(api.get(names::checked(name)?)).await;
            found.map_err(|failure| match failure.is_not_found() {
                true => failure.next("`ozctl composites` lists the existing composites"),
                false => failure,
            })
        });
        try_join_all(each).await
    };
    found.map_err(|failure| match failure.is_unknown_kind() {
        true => {
            Failure::new("the cluster has no CompositeControllers (metacontroller.k8s.io/v1alpha1)")
                .next("switch composites on in the values of oz's chart: composites.enabled")
                .not_found()
        }
        false => failure,
    })
}
