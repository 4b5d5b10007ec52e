//! The templates that exist, from a store that a watch feeds: no decision waits for the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource};
use oz_admission::{Gate, Rejection};
use oz_core::kinds::AccessTemplate;
use oz_runtime::{Ages, Selection, Store, guarded_store};
use tokio::task::JoinSet;

/// How long a decision waits for the first list. Before it is complete, a template that exists
/// could not be told from one that does not.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The templates of one kind.
pub(crate) struct Templates<T>(Store<T>);

impl<T> Clone for Templates<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: AccessTemplate> Templates<T> {
    /// Begins to watch all templates of the kind. The gate opens when they are known; the task
    /// lasts as long as the process.
    pub(crate) fn watch(client: &Client, ages: &Ages, tasks: &mut JoinSet<()>) -> (Self, Gate) {
        let (store, health, feed) = guarded_store::<T>(client, &(), None, Selection::default());
        ages.add(&health);
        let gate = Gate::new(&format!("{} list", T::title()));
        let (listed, open) = (store.clone(), gate.clone());
        tasks.spawn(async move {
            let tell = async {
                listed.ready().await;
                open.open();
            };
            futures::join!(feed, tell);
        });
        (Self(store), gate)
    }
}

impl<T: Resource> Templates<T> {
    /// The template of this name, if there is one as far as the watch has come.
    pub(crate) async fn find(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<T>>, Rejection> {
        if tokio::time::timeout(FIRST_LIST_TIMEOUT, self.0.ready())
            .await
            .is_err()
        {
            let kind = &self.0.resource().kind;
            return Err(Rejection::new(
                503,
                "NotReady",
                format!("oz-webhook has not read every {kind} yet; try again in a few seconds"),
            ));
        }
        Ok(self.0.get(namespace, name))
    }
}
