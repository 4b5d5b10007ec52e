//! The engine as its user sees it: which controllers to run, in which process, until when.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;
use kube::{Client, Resource};
use oz_audit::{LogSink, Sink};
use oz_core::controller::Controller;
use oz_core::labels;
use oz_runtime::{Change, Clock, Leadership, Runtime, RuntimeError, Selection, Store};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::observe::{ChildKind, Cx, Observe, Watches};
use crate::ports::{Port, Ports};
use crate::run::{
    Applied, ChildStore, Children, Departed, Lane, Lines, Packed, Runner, Shared, Writer,
};

/// Runs controllers in a process. See the [crate's documentation](crate) for an example.
pub struct Engine {
    runtime: Runtime,
    sink: Arc<dyn Sink>,
    ports: Ports,
    concurrency: usize,
    metrics: Metrics,
    controllers: Vec<Start>,
}

/// Starts a controller once everything that it shares with others is known.
type Start = Box<dyn FnOnce(&Parts, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// What all controllers share.
struct Parts {
    client: Client,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    ports: Ports,
    concurrency: usize,
    metrics: Metrics,
    events: Events,
    tenure: Leadership,
    lines: Lines,
    /// Where ordinary passes run.
    ordinary: Handle,
}

impl Engine {
    /// An engine without controllers, in a process.
    pub fn new(runtime: Runtime) -> Self {
        let metrics = Metrics::register(&mut runtime.registry());
        Self {
            runtime,
            sink: Arc::new(LogSink),
            ports: Ports::default(),
            concurrency: 32,
            metrics,
            controllers: Vec::new(),
        }
    }

    /// The process: its stores, its tasks, what it listens on, who leads.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Where records go; by default to the log.
    pub fn sink(&mut self, sink: impl Sink) -> &mut Self {
        self.sink = Arc::new(sink);
        self
    }

    /// Carries out the effects that are for the port of this name. An effect for a port that nobody
    /// registered is a failure that names it.
    pub fn port(&mut self, name: impl Into<String>, port: impl Port) -> &mut Self {
        self.ports.register(name.into(), Arc::new(port));
        self
    }

    /// How many passes of one controller may run at once, and how many writes of all controllers
    /// together. As many writes again are reserved for what takes something away; passes that are
    /// due run beside the others. By default 32.
    pub fn concurrency(&mut self, passes: usize) -> &mut Self {
        self.concurrency = passes.max(1);
        self
    }

    /// Adds a controller and its edge.
    pub fn controller<C, O>(&mut self, controller: C, observe: O) -> &mut Self
    where
        C: Controller,
        O: Observe<C>,
    {
        let watches = observe.watches();
        let children = self.child_stores(&watches);
        self.controllers.push(Box::new(move |parts: &Parts, stop| {
            let runner = assemble(parts, controller, observe, watches, children);
            Box::pin(Arc::new(runner).run(stop))
        }));
        self
    }

    /// Runs the process with its controllers until `shutdown` is cancelled: no new pass begins then,
    /// those under way finish, and the Lease is given back.
    ///
    /// # Errors
    /// As [`Runtime::run`].
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RuntimeError> {
        let background = Background::start().map_err(|error| RuntimeError::Task {
            name: "controllers".into(),
            error: error.into(),
        })?;
        let mut runtime = self.runtime;
        let parts = Parts {
            client: runtime.client().clone(),
            clock: Arc::clone(runtime.clock()),
            sink: self.sink,
            ports: self.ports,
            concurrency: self.concurrency,
            metrics: self.metrics,
            events: Events(runtime.events().clone()),
            tenure: runtime.leadership().clone(),
            lines: Lines::new(self.concurrency),
            ordinary: background.handle(),
        };
        for start in self.controllers {
            runtime.part("a controller", |stop| start(&parts, stop));
        }
        // Events are published until nobody can leave one any more.
        drop(parts);
        runtime.run(shutdown).await
    }

    fn child_stores<K: Resource>(&mut self, watches: &Watches<K>) -> Vec<Store<Packed>> {
        let selection = Selection::default().labels(&labels::children_of(&watches.mark));
        watches
            .children
            .iter()
            .map(|child| {
                self.runtime.feeds().store(
                    child.resource.clone(),
                    child.cluster_scoped,
                    selection.clone(),
                    Some(Packed::owner),
                    Some(Packed::unread),
                )
            })
            .collect()
    }
}

/// Puts a runner together and lets its watches fill its queue.
fn assemble<C, O>(
    parts: &Parts,
    controller: C,
    observe: O,
    watches: Watches<C::Object>,
    stores: Vec<Store<Packed>>,
) -> Runner<C, O>
where
    C: Controller,
    O: Observe<C>,
{
    let shared = Shared::new(parts.concurrency);
    let objects = watches.objects;
    let queue = Arc::clone(&shared);
    let departed = Departed::default();
    let (gone, tenure) = (departed.clone(), parts.tenure.clone());
    let subscriber = objects.subscribe(move |change: &Change<C::Object>| {
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
            client: parts.client.clone(),
            clock: Arc::clone(&parts.clock),
        },
        objects,
        subscriber,
        children: Children {
            kinds,
            mark: watches.mark,
        },
        departed,
        awaited,
        complete: AtomicBool::new(false),
        writer: Writer {
            client: parts.client.clone(),
            lines: parts.lines.clone(),
            tenure: parts.tenure.clone(),
            metrics: parts.metrics.clone(),
            controller: controller.name(),
            manager: format!("oz/{}", controller.name()),
        },
        sink: Arc::clone(&parts.sink),
        ports: parts.ports.clone(),
        events: parts.events.clone(),
        metrics: parts.metrics.clone(),
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
    let kinds = kinds.map(|(kind, store)| {
        let applied = Applied::default();
        let (queue, owners, forget) = (Arc::clone(shared), objects.clone(), applied.clone());
        let subscriber = store.subscribe(move |change: &Change<Packed>| {
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
            kind,
            store,
            subscriber,
            applied,
        }
    });
    kinds.collect()
}
