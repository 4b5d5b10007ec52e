//! Puts together what runs one controller, and lets its watches fill its queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kube::Resource;
use oz_core::controller::Controller;
use oz_runtime::{Change, Store};

use crate::controllers::Setup;
use crate::engine::Parts;
use crate::observe::{ChildKind, Cx, Observe, Watches};
use crate::run::{Applied, ChildStore, Children, Departed, Lane, Packed, Runner, Shared, Writer};

/// Puts a runner together and lets its watches fill its queue.
pub(crate) fn assemble<C, O>(
    parts: &Parts,
    setup: Setup<C, O>,
    watches: Watches<C::Object>,
    stores: Vec<Store<Packed>>,
) -> Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    let Setup {
        controller,
        observe,
        field_manager,
        metric_label,
        client,
    } = setup;
    let client = client.unwrap_or_else(|| parts.client.clone());
    let counts = parts.metrics.of(&metric_label);
    let shared = Shared::new(parts.concurrency);
    let objects = watches.objects;
    let queue = Arc::clone(&shared);
    let departed = Departed::default();
    let (gone, tenure) = (departed.clone(), parts.tenure.clone());
    let subscription = objects.subscribe(move |change: &Change<C::Object>| {
        let lane = match change {
            // One that a finalizer keeps is ended as one that is gone.
            Change::Applied(object) if object.meta().deletion_timestamp.is_none() => Lane::Ordinary,
            Change::Applied(_) => Lane::Urgent,
            Change::Deleted(object) => {
                // Whoever leads next begins with a look at what belongs to nothing.
                if tenure.holds() {
                    gone.note(object);
                }
                Lane::Urgent
            }
        };
        queue.push_object(change.object().as_ref(), lane);
    });
    let kinds = children(&shared, &objects, watches.children, stores);
    let related = watches.related.into_iter().map(|relate| {
        let queue = Arc::clone(&shared);
        relate(Arc::new(move |object: &C::Object| {
            queue.push_object(object, Lane::Ordinary);
        }))
    });
    let awaited = related.collect();
    Runner {
        kind: controller.dynamic_type(),
        cx: Cx {
            client: client.clone(),
            clock: Arc::clone(&parts.clock),
        },
        objects,
        subscription,
        children: Children {
            kinds,
            mark: watches.mark,
        },
        departed,
        awaited,
        complete: AtomicBool::new(false),
        writer: Writer {
            client,
            write_slots: parts.write_slots.clone(),
            tenure: parts.tenure.clone(),
            counts: Arc::clone(&counts),
            manager: field_manager,
        },
        sink: Arc::clone(&parts.sink),
        ports: parts.ports.clone(),
        events: parts.events.clone(),
        counts,
        shared,
        ordinary: parts.ordinary.clone(),
        controller,
        observe,
    }
}

/// Lets the watches of children fill the queue.
fn children<K>(
    shared: &Arc<Shared>,
    objects: &Store<K>,
    kinds: Vec<ChildKind>,
    stores: Vec<Store<Packed>>,
) -> Vec<ChildStore>
where
    K: Resource + Send + Sync + 'static,
{
    let kinds = kinds.into_iter().zip(stores);
    let kinds = kinds.map(|(child, store)| {
        let applied = Applied::default();
        let (queue, owners, forget) = (Arc::clone(shared), objects.clone(), applied.clone());
        let subscription = store.subscribe(move |change: &Change<Packed>| {
            if let Change::Deleted(child) = change {
                forget.forget(child.meta().uid.as_deref().unwrap_or_default());
            }
            if let Some(owner) = change.object().owner() {
                let orphaned = owners.by_uid(owner).is_none();
                let lane = if orphaned {
                    Lane::Urgent
                } else {
                    Lane::Ordinary
                };
                queue.push(owner, lane);
            }
        });
        ChildStore {
            kind: child.kind,
            grace_seconds: child.grace_seconds,
            store,
            subscription,
            applied,
        }
    });
    kinds.collect()
}
