//! Assembles the parts of one controller, and connects its watches to its queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kube::Resource;
use oz_core::controller::Controller;
use oz_runtime::{Change, Store};

use crate::controllers::{Setup, Stores};
use crate::engine::Parts;
use crate::observe::{Belonging, Callback, ChildKind, Cx, Observe, Ready, Related, Watches};
use crate::run::{
    Adopts, Applied, ChildStore, Children, Departed, Lane, Packed, Runner, Shared, Writer,
};

/// Assembles a runner and connects its watches to its queue.
pub(crate) fn assemble<C, O>(
    parts: &Parts,
    setup: Setup<C, O>,
    watches: Watches<C::Object>,
    stores: Stores,
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
    let controller = Arc::new(controller);
    let counts = parts.metrics.counts(&metric_label);
    let shared = Shared::new(parts.concurrency);
    let objects = watches.objects;
    let queue = Arc::clone(&shared);
    let departed = Departed::default();
    let (gone, tenure) = (departed.clone(), parts.tenure.clone());
    let decides = Arc::clone(&controller);
    let heeded = watches.heeded;
    let subscription = objects.subscribe(move |change: &Change<C::Object>| {
        if heeded.as_ref().is_some_and(|heeded| !heeded.counts(change)) {
            return;
        }
        let lane = match change {
            // An object that a finalizer keeps is ended like a deleted object.
            Change::Applied(object) if object.meta().deletion_timestamp.is_none() => Lane::Ordinary,
            Change::Applied(_) => Lane::Urgent,
            Change::Deleted(object) => {
                // The next leader starts with the children that belong to no object.
                if tenure.holds() {
                    gone.note(object);
                }
                Lane::Urgent
            }
        };
        push(decides.as_ref(), &queue, change.object(), lane);
    });
    let kinds = Kinds {
        controller: &controller,
        shared: &shared,
        objects: &objects,
        belonging: &watches.belonging,
    };
    let kinds = kinds.followed(watches.children, stores.children);
    let awaited = follow(watches.related, &controller, &shared);
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
            beside: stores.beside,
            belonging: watches.belonging,
        },
        departed,
        awaited,
        complete: AtomicBool::new(false),
        waited: AtomicBool::new(false),
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

/// Connects the watches of other kinds to the queue. Returns the stores that a start waits for.
fn follow<C: Controller>(
    related: Vec<Related<C::Object>>,
    controller: &Arc<C>,
    shared: &Arc<Shared>,
) -> Vec<Box<dyn Ready>> {
    let related = related.into_iter().map(|relate| {
        let (queue, decides) = (Arc::clone(shared), Arc::clone(controller));
        let concerned: Callback<C::Object> = Arc::new(move |objects, lane| {
            // A first list causes a call for each of its objects.
            if queue.wants(lane) {
                for object in objects() {
                    push(decides.as_ref(), &queue, &object, lane);
                }
            }
        });
        relate(concerned)
    });
    related.collect()
}

/// Queues an object.
fn push<C: Controller>(controller: &C, queue: &Shared, object: &C::Object, lane: Lane) {
    match (&object.meta().uid, lane) {
        (Some(uid), Lane::Ordinary) => queue.push_of(uid, controller.flow(object)),
        (Some(uid), Lane::Urgent) => queue.push(uid, lane),
        (None, _) => {}
    }
}

/// The parts that connect the watches of children to the queue.
struct Kinds<'a, C: Controller> {
    controller: &'a Arc<C>,
    shared: &'a Arc<Shared>,
    objects: &'a Store<C::Object>,
    belonging: &'a Belonging,
}

impl<C: Controller> Kinds<'_, C> {
    /// Connects the watches of children to the queue.
    fn followed(&self, kinds: Vec<ChildKind>, stores: Vec<Store<Packed>>) -> Vec<ChildStore> {
        let kinds = kinds.into_iter().zip(stores);
        let kinds = kinds.map(|(child, store)| {
            let applied = Applied::default();
            let changed = self.changed(applied.clone());
            let subscription = store.subscribe(changed);
            ChildStore {
                kind: child.kind,
                grace_seconds: child.grace_seconds,
                store,
                subscription,
                tells_itself: !self.belonging.is_ours_alone(),
                applied,
            }
        });
        kinds.collect()
    }

    /// Returns the callback for a change of a child.
    fn changed(&self, applied: Applied) -> impl Fn(&Change<Packed>) + Send + Sync + use<C> {
        let (controller, queue) = (Arc::clone(self.controller), Arc::clone(self.shared));
        let objects = self.objects.clone();
        let (group_of, is_ours_alone) = (self.belonging.group_of(), self.belonging.is_ours_alone());
        move |change| {
            let child = change.object();
            if let Change::Deleted(_) = change
                && let Some(uid) = &child.meta().uid
            {
                applied.forget(uid);
            }
            match group_of(child) {
                None => {}
                Some(Packed::ORPHAN) => {
                    let adopts = |object: &C::Object| {
                        Adopts::from_object(controller.as_ref(), object)
                            .is_some_and(|adopts| adopts.takes(child))
                    };
                    for object in objects.select(adopts) {
                        push(controller.as_ref(), &queue, &object, Lane::Ordinary);
                    }
                }
                Some(owner) => match objects.by_uid(owner) {
                    Some(object) => push(controller.as_ref(), &queue, &object, Lane::Ordinary),
                    None if is_ours_alone => queue.push(owner, Lane::Urgent),
                    None => {}
                },
            }
        }
    }
}
