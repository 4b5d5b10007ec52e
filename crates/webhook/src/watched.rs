//! The objects on which a decision depends, such as templates, locks and policies, from a store
//! that a watch feeds: no decision waits for the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use oz_admission::Rejection;
use oz_runtime::Store;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The time that a decision waits for the first list. Before it is complete, an existing object
/// cannot be distinguished from a missing one.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that a decision waits for an object that the watch has not shown: it may have been
/// created just before.
const UNSEEN_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of decisions that wait in this way. Further ones do not wait, so that a flood
/// of requests with names of nonexistent objects delays no other request.
static WAITING: Semaphore = Semaphore::const_new(16);

/// The objects of one kind.
pub(crate) struct Watched<T>(pub(crate) Store<T>);

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Resource> Watched<T> {
    /// Returns the object with this name, if the watch has shown it.
    pub(crate) async fn find(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<T>>, Rejection> {
        self.ready().await?;
        Ok(self.0.get(namespace, name))
    }

    /// Returns the object with this name. If it was created just before, as by the same command,
    /// the call waits for it.
    pub(crate) async fn find_new(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<T>>, Rejection>
    where
        T: Send + Sync + 'static,
    {
        if let Some(found) = self.find(namespace, name).await? {
            return Ok(Some(found));
        }
        let Ok(_permit) = WAITING.try_acquire() else {
            return Ok(None);
        };
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let _subscription = self.0.subscribe(move |_| notify.notify_one());
        let deadline = Instant::now() + UNSEEN_TIMEOUT;
        loop {
            let found = self.find(namespace, name).await?;
            if found.is_some() || timeout_at(deadline, changed.notified()).await.is_err() {
                return Ok(found);
            }
        }
    }

    /// Returns the objects that satisfy `wanted`, as the watch has shown them.
    pub(crate) async fn select(
        &self,
        wanted: impl Fn(&T) -> bool,
    ) -> Result<Vec<Arc<T>>, Rejection> {
        self.ready().await?;
        Ok(self.0.select(wanted))
    }

    /// Returns all objects, as the watch has shown them.
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
            format!("oz-webhook has not listed every {kind} yet; try again in a few seconds"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn config_map(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("shop".to_owned());
        object.metadata.uid = Some(format!("uid-{name}"));
        object
    }

    #[tokio::test(start_paused = true)]
    async fn new_object_is_awaited_for_limited_time() {
        let store = Store::fixed([config_map("here")]);
        let watched = Watched(store.clone());
        let began = Instant::now();
        assert!(matches!(
            watched.find_new(Some("shop"), "here").await,
            Ok(Some(_))
        ));
        assert_eq!(began.elapsed(), Duration::ZERO);

        let later = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.wrote(config_map("another"), None);
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.wrote(config_map("new"), None);
        };
        let (found, ()) = tokio::join!(watched.find_new(Some("shop"), "new"), later);
        assert!(matches!(found, Ok(Some(_))));
        assert_eq!(began.elapsed(), Duration::from_millis(200));

        let began = Instant::now();
        let none = watched.find_new(Some("shop"), "none");
        assert!(matches!(none.await, Ok(None)));
        assert_eq!(began.elapsed(), UNSEEN_TIMEOUT);

        let _all: Vec<_> = std::iter::from_fn(|| WAITING.try_acquire().ok()).collect();
        let none = watched.find_new(Some("shop"), "none");
        assert!(matches!(none.await, Ok(None)));
        assert_eq!(began.elapsed(), UNSEEN_TIMEOUT);
    }
}
