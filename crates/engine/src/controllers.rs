//! Controllers as values: their names, their field managers and clients, and the handles that stop them.
//! A controller may be started before its engine runs, and started and stopped while it does; after a
//! stop, only the objects that it wrote remain.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::{Client, Resource};
use oz_api::labels;
use oz_core::controller::Controller;
use oz_runtime::{Feeds, Keep, Kind, Selection, Store};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::assemble::assemble;
use crate::engine::Parts;
use crate::observe::{Belonging, Observe, Watches};
use crate::run::{Beside, Packed};

/// A controller with its edge, its name, its field manager and its client.
pub struct Setup<C, O> {
    pub(crate) controller: C,
    pub(crate) observe: O,
    pub(crate) field_manager: String,
    pub(crate) metric_label: String,
    pub(crate) client: Option<Client>,
}

impl<C: Controller, O: Observe<C>> Setup<C, O> {
    /// Creates the setup of a controller that has the name [`Controller::name`] everywhere, and
    /// that uses the client of its engine.
    pub fn new(controller: C, observe: O) -> Self {
        let name = controller.name();
        Self {
            field_manager: format!("{}/{name}", labels::OZ),
            metric_label: name.to_owned(),
            client: None,
            controller,
            observe,
        }
    }

    /// Sets the manager of the fields that the controller writes; `oz/NAME` if not set.
    #[must_use]
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = manager.into();
        self
    }

    /// Sets the label `controller` of the metrics; the controller's name if not set. Several
    /// controllers may share one label: names that users choose must not be labels.
    #[must_use]
    pub fn metric_label(mut self, label: impl Into<String>) -> Self {
        self.metric_label = label.into();
        self
    }

    /// Reads and writes with this client, such as a client that impersonates. Watches and the Lease use
    /// the client of the engine.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }
}

/// The failure to start a controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A controller of this name exists; it must have stopped first.
    #[error("failed to start the controller {0}: there is one of this name already")]
    NameTaken(String),
    /// The engine has stopped.
    #[error("failed to start the controller {0}: its engine has stopped")]
    EngineStopped(String),
}

/// The handle that starts controllers of one engine, before it runs and while it does. Clones are
/// cheap.
#[derive(Clone)]
pub struct Controllers {
    feeds: Feeds,
    names: Arc<Mutex<BTreeSet<String>>>,
    starts: mpsc::UnboundedSender<Start>,
}

/// A function that starts a controller once the parts that it shares with others exist.
pub(crate) type Start =
    Box<dyn FnOnce(&Parts, &CancellationToken) -> BoxFuture<'static, ()> + Send>;

impl Controllers {
    pub(crate) fn new(feeds: Feeds) -> (Self, mpsc::UnboundedReceiver<Start>) {
        let (starts, receiver) = mpsc::unbounded_channel();
        let names = Arc::default();
        let this = Self {
            feeds,
            names,
            starts,
        };
        (this, receiver)
    }

    /// Returns the watches, which are the source of stores.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Starts a controller, or queues it until the engine runs. The controller runs until it or the
    /// engine is stopped, even if the returned handle is dropped.
    ///
    /// # Errors
    /// When a controller of its name has not stopped yet, or the engine has.
    pub fn start<C, O>(&self, setup: Setup<C, O>) -> Result<Running, StartError>
    where
        C: Controller,
        O: Observe<C>,
    {
        let name = setup.controller.name().to_owned();
        let registered = self.register(&name)?;
        let watches = setup.observe.watches();
        let stores = Stores {
            children: self.child_stores(&watches),
            beside: self.beside(&watches),
        };
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let running = Running {
            name: name.clone(),
            stop: stop.clone(),
            stopped: stopped.clone(),
        };
        let ended = Ended {
            _registered: registered,
            _stopped: stopped.drop_guard(),
        };
        let start: Start = Box::new(move |parts, shutdown| {
            let runner = Arc::new(assemble(parts, setup, watches, stores));
            let shutdown = shutdown.child_token();
            Box::pin(async move {
                let stops = async {
                    stop.cancelled().await;
                    shutdown.cancel();
                    std::future::pending::<()>().await
                };
                tokio::select! {
                    () = runner.run(shutdown.clone()) => {}
                    () = stops => {}
                }
                drop(ended);
            })
        });
        let started = self.starts.send(start);
        started.map_err(|_| StartError::EngineStopped(name))?;
        Ok(running)
    }

    fn register(&self, name: &str) -> Result<Registered, StartError> {
        if !self.names.lock().insert(name.to_owned()) {
            return Err(StartError::NameTaken(name.to_owned()));
        }
        Ok(Registered {
            name: name.to_owned(),
            names: Arc::clone(&self.names),
        })
    }

    fn child_stores<K: Resource>(&self, watches: &Watches<K>) -> Vec<Store<Packed>> {
        let selection = match &watches.belonging {
            Belonging::Marked(mark) => Selection::default().labels(&labels::children_of(mark)),
            Belonging::Controlled => Selection::default(),
        };
        let children = watches.children.iter();
        children
            .map(|child| self.packed(watches, &child.kind, selection.clone(), child.lean))
            .collect()
    }

    /// Returns the store of a kind of children, or of other objects of such a kind.
    fn packed<K: Resource>(
        &self,
        watches: &Watches<K>,
        kind: &Kind,
        selection: Selection,
        lean: Option<fn(Packed) -> Packed>,
    ) -> Store<Packed> {
        let keep = Keep {
            group_of: Some(watches.belonging.group_of()),
            stand_in: Some(Packed::unread),
            lean,
            marks_of: Some(Packed::marks),
            // Objects that may be adopted are searched for each parent.
            compact: watches.belonging.is_ours_alone().then_some(Packed::AS_TEXT),
            ..Keep::default()
        };
        self.feeds
            .store_as(watches.identity.as_ref(), kind, selection, &keep)
    }

    /// Returns the stores of other objects of the kinds of children.
    fn beside<K: Resource>(&self, watches: &Watches<K>) -> Vec<Beside> {
        let Belonging::Marked(own) = &watches.belonging else {
            return Vec::new();
        };
        let kinds = watches.beside.iter().map(|beside| {
            let store = |labels: &str, lean| {
                let selection = Selection::default().labels(labels);
                self.packed(watches, &beside.kind, selection, lean)
            };
            // The same order for all controllers: controllers with the same selection share the
            // store.
            let all: BTreeSet<&str> = beside
                .marks
                .iter()
                .chain([own])
                .map(String::as_str)
                .collect();
            let rest: Vec<&str> = all.iter().copied().collect();
            let rest = store(&labels::others_than_children_of(&rest), Some(beside.lean));
            let others = all.into_iter().filter(|mark| mark != own);
            let marked = others.map(|mark| store(&labels::children_of(mark), None));
            Beside {
                resource: beside.kind.resource.clone(),
                stores: marked.chain([rest]).collect(),
            }
        });
        kinds.collect()
    }
}

/// The stores of a controller except the one of its objects.
pub(crate) struct Stores {
    /// The stores in the order of [`Watches::children`].
    pub(crate) children: Vec<Store<Packed>>,
    pub(crate) beside: Vec<Beside>,
}

/// The handle of a controller that was started.
#[must_use = "the controller runs without this handle, which is the only way to stop it"]
pub struct Running {
    name: String,
    stop: CancellationToken,
    stopped: CancellationToken,
}

impl Running {
    /// Returns the controller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops the controller: no new pass begins, the running passes finish, and its watches, their state
    /// and its metrics are removed, unless others share them. The objects that it wrote remain. If the
    /// engine does not run yet, this waits until it does.
    pub async fn stop(self) {
        self.stop.cancel();
        self.stopped.cancelled().await;
    }
}

impl Debug for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Running({})", self.name)
    }
}

/// The values to drop when a controller has ended, in this order: first its name becomes available
/// again, then it is reported as stopped.
struct Ended {
    _registered: Registered,
    _stopped: DropGuard,
}

struct Registered {
    name: String,
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.names.lock().remove(&self.name);
    }
}
