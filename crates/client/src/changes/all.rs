//! The changes of the objects of all kinds.

use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, try_join_all};
use kube::Api;
use oz_api::AccessLock;
use oz_core::for_each_kind;
use oz_core::kinds::Kind as _;

use super::Watched;
use super::feed::{Feed, OnChange, OnLink, Stop};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The feeds of all kinds that the user may watch.
pub struct Feeds<'a> {
    cluster: &'a Cluster,
    told: OnChange<'a>,
    link: OnLink<'a>,
    follow: Vec<LocalBoxFuture<'a, Result<(), Stop>>>,
    refused: Option<Failure>,
}

impl<'a> Feeds<'a> {
    /// Begins to watch the objects in the chosen namespace, or in every namespace. `refused` gets each kind that the
    /// user may not watch, or that the API server does not serve.
    ///
    /// # Errors
    /// No kind can be watched.
    pub async fn begin(
        cluster: &'a Cluster,
        everywhere: bool,
        told: OnChange<'a>,
        link: OnLink<'a>,
        refused: impl Fn(&str, &Failure),
    ) -> Result<Self> {
        let mut feeds = Self {
            cluster,
            told,
            link,
            follow: Vec::new(),
            refused: None,
        };
        for_each_kind!(requests R => {
            feeds.add(R::title(), cluster.api_in::<R>(everywhere), &refused).await?;
        });
        for_each_kind!(approvals A => {
            feeds.add(A::title(), cluster.api_in::<A>(everywhere), &refused).await?;
        });
        for_each_kind!(reviews V => {
            feeds.add(V::title(), cluster.api_in::<V>(everywhere), &refused).await?;
        });
        let locks = Api::<AccessLock>::all(cluster.client.clone());
        feeds.add(AccessLock::title(), locks, &refused).await?;
        match feeds.refused.take() {
            Some(failure) if feeds.follow.is_empty() => Err(failure),
            _ => Ok(feeds),
        }
    }

    /// Adds the feed of a kind, if the user may watch it.
    async fn add<K: Watched>(
        &mut self,
        title: &str,
        api: Api<K>,
        refused: &impl Fn(&str, &Failure),
    ) -> Result<()> {
        match Feed::begin(self.cluster, api).await {
            Ok(feed) => {
                let following = feed.follow(self.cluster, self.told, self.link);
                self.follow.push(following.boxed_local());
                Ok(())
            }
            Err(failure) if failure.is_forbidden() || failure.is_unknown_kind() => {
                refused(title, &failure);
                self.refused = Some(failure);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reports each change, until the receiver wants no more.
    ///
    /// # Errors
    /// A permanent failure.
    pub async fn follow(self) -> Result<()> {
        match try_join_all(self.follow).await {
            Ok(_) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }
}
