//! Controllers as values: what each is called, as whom it writes, and the handle by which it is stopped.
//! They may be started before their engine runs, and started and stopped while it does; one that has
//! stopped leaves nothing behind but what it wrote.

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

/// A controller with its edge, what it is called, and as whom it writes.
pub struct Setup<C, O> {
    pub(crate) controller: C,
    pub(crate) observe: O,
    pub(crate) field_manager: String,
    pub(crate) metric_label: String,
    pub(crate) client: Option<Client>,
}

impl<C: Controller, O: Observe<C>> Setup<C, O> {
    /// Called by [`Controller::name`] everywhere, and writing as its engine does.
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

    /// Whose the fields are that it writes; `oz/NAME` if not set.
    #[must_use]
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = manager.into();
        self
    }

    /// What metrics carry as the label `controller`; its name if not set. Several controllers may count
    /// under one label: where users choose names, labels must not be made of them.
    #[must_use]
    pub fn metric_label(mut self, label: impl Into<String>) -> Self {
        self.metric_label = label.into();
        self
    }

    /// Reads and writes with this client, such as one that impersonates. Watches and the Lease stay the
    /// engine's.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }
}

/// Why a controller was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is one of this name already; it must have stopped first.
    #[error("failed to start the controller {0}: there is one of this name already")]
    NameTaken(String),
    /// Nothing runs any more.
    #[error("failed to start the controller {0}: its engine has stopped")]
    EngineStopped(String),
}

/// Starts controllers of one engine, before it runs and while it does. Cheap to clone.
#[derive(Clone)]
pub struct Controllers {
    feeds: Feeds,
    names: Arc<Mutex<BTreeSet<String>>>,
    starts: mpsc::UnboundedSender<Start>,
}

/// Starts a controller once everything that it shares with others is known.
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

    /// What is watched: where stores come from.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Starts a controller, or leaves it to be started when the engine runs. It goes on until it is
    /// stopped or the engine is, also when the answer is dropped.
    ///
    /// # Errors
    /// When one of its name has not stopped yet, or the engine has.
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

    /// The store of a kind of children, or of what is beside them.
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
            // What may be adopted is looked through for each parent.
            compact: watches.belonging.is_ours_alone().then_some(Packed::AS_TEXT),
            ..Keep::default()
        };
        self.feeds
            .store_as(watches.identity.as_ref(), kind, selection, &keep)
    }

    /// What is watched of the kinds of children beside these.
    fn beside<K: Resource>(&self, watches: &Watches<K>) -> Vec<Beside> {
        let Belonging::Marked(own) = &watches.belonging else {
            return Vec::new();
        };
        let kinds = watches.beside.iter().map(|beside| {
            let store = |labels: &str, lean| {
                let selection = Selection::default().labels(labels);
                self.packed(watches, &beside.kind, selection, lean)
            };
            // In the same order for all: who asks for the same shares it.
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

/// What is watched for a controller but for its objects.
pub(crate) struct Stores {
    /// In the order of [`Watches::children`].
    pub(crate) children: Vec<Store<Packed>>,
    pub(crate) beside: Vec<Beside>,
}

/// A controller that was started.
#[must_use = "it goes on without this, and can be stopped by it alone"]
pub struct Running {
    name: String,
    stop: CancellationToken,
    stopped: CancellationToken,
}

impl Running {
    /// The controller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops it: no new pass begins, those under way finish, and its watches, what is said about them
    /// and its metrics go, unless others share them. What it wrote stays. If the engine does not run yet,
    /// this waits until it does.
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

/// What goes when a controller has ended, in this order: its name may be used again, and then it is said
/// to have stopped.
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
