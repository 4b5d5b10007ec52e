//! The composites with a finalizer: their children may end, or their parents wait for them. After their deletion, the
//! operator ends the children that end and releases the parents. This module performs the steps that no operator
//! performed, as the account of composites.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use kube::core::{ApiResource, ObjectMeta};
use oz_composites::declared::{Declared, KindName};
use oz_composites::ends;

use super::objects::{all_of, delete, release};

/// Deletes the children that are marked to end, and releases the parents.
pub(super) async fn end(client: &Client, declared: &Declared) -> Result<()> {
    let parents = resource(&declared.parent);
    let mut held = all_of(client, &parents).await?;
    held.retain(|parent| declared.holds(parent));
    let uids: BTreeSet<&str> = held.iter().filter_map(|one| one.uid.as_deref()).collect();
    for (kind, _) in &declared.children {
        let kind = resource(kind);
        for child in all_of(client, &kind).await? {
            if ends::parent_of(&child).is_some_and(|parent| uids.contains(&*parent)) {
                delete(client, &kind, &child, &only(&child)).await?;
            }
        }
    }
    for parent in &held {
        release(client, &parents, parent, &declared.finalizer).await?;
    }
    Ok(())
}

fn resource(kind: &KindName) -> ApiResource {
    kind.api_resource(&kind.resource)
}

/// Returns the parameters that delete the object that was read, and no later one of its name.
fn only(object: &ObjectMeta) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
