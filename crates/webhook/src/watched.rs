//! Objects that a decision goes by, such as templates, locks and policies, from a store that a watch feeds: no decision
//! waits for the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use oz_admission::Rejection;
use oz_runtime::Store;

/// How long a decision waits for the first list. Before it is complete, an object that exists
/// could not be told from one that does not.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The objects of one kind.
pub(crate) struct Watched<T>(pub(crate) Store<T>);

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Resource> Watched<T> {
    /// The one of this name, if there is one as far as the watch has come.
    pub(crate) async fn find(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<T>>, Rejection> {
        self.ready().await?;
        Ok(self.0.get(namespace, name))
    }

    /// Those that are wanted, as far as the watch has come.
    pub(crate) async fn select(
        &self,
        wanted: impl Fn(&T) -> bool,
    ) -> Result<Vec<Arc<T>>, Rejection> {
        self.ready().await?;
        Ok(self.0.select(wanted))
    }

    /// All of them, as far as the watch has come.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<T>>, Rejection> {
        self.ready().await?;
        Ok(self.0.objects())
    }

    async fn ready(&self) -> Result<(), Rejection> {
        if tokio::time::timeout(FIRST_LIST_TIMEOUT, self.0.ready())
            .await
            .is_ok()
        {
            return Ok(());
        }
        let kind = &self.0.resource().kind;
        Err(Rejection::new(
            503,
            "NotReady",
            format!("oz-webhook has not read every {kind} yet; try again in a few seconds"),
        ))
    }
}
