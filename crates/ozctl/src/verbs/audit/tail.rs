//! `ozctl audit tail`: prints audit records as they are written.

use clap::Args;
use futures::{Stream, TryStreamExt};
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use oz_client::request::Retry;
use oz_trail::{Entry, Query};

use super::read::{Filter, cells, table};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::trail::events;

/// Show records as they come, until Ctrl-C
#[derive(Args)]
pub(super) struct Tail {
    #[command(flatten)]
    filter: Filter,
}

impl Tail {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let query = self.filter.query(context);
        let cluster = context.cluster().await?;
        let events = events(&cluster);
        let now = async || -> Result<String> {
            let one = ListParams::default().limit(1);
            let list = cluster.answer(events.list(&one)).await?;
            Ok(list.metadata.resource_version.unwrap_or_default())
        };
        let mut seen = now().await?;
        // After this line, readers may rely on each record that follows.
        if !context.pass_on(table(&[], true).to_string().as_bytes())? {
            return Ok(Exit::SUCCESS);
        }
        let parameters = WatchParams::default().labels(&query.selector());
        let mut retry = Retry::default();
        loop {
            let stream = cluster.answer(events.watch(&parameters, &seen)).await;
            let followed = match stream {
                Ok(stream) => {
                    if retry.has_failed() {
                        context.say("the API server answers again");
                    }
                    retry.over();
                    follow(context, &query, stream, &mut seen).await
                }
                Err(failure) => Err(failure),
            };
            match followed {
                Ok(Followed::Broken) => {}
                Ok(Followed::Unread) => return Ok(Exit::SUCCESS),
                // The API server no longer has the changes since then, such as after a restart.
                Err(failure) if failure.is_gone() => {
                    match missed(context, &cluster, &events, &query, &mut seen).await {
                        Ok(Followed::Broken) => {}
                        Ok(Followed::Unread) => return Ok(Exit::SUCCESS),
                        Err(failure) => retry.with(failure).await?,
                    }
                }
                Err(failure) => {
                    if failure.passes() && !retry.has_failed() {
                        context.say_plain(&format!("{}: trying again", failure.message()));
                    }
                    retry.with(failure).await?;
                }
            }
        }
    }
}

/// The reason for the end of a watch.
enum Followed {
    /// The API server ended it, as it does every few minutes, or the connection broke.
    Broken,
    /// The output has no reader.
    Unread,
}

/// Writes the audit records of one watch; `seen` is the version from which the next watch
/// continues.
async fn follow(
    context: &Context,
    query: &Query,
    stream: impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>>,
    seen: &mut String,
) -> Result<Followed> {
    let mut stream = std::pin::pin!(stream);
    // After a broken connection, the next watch returns the missing events, or the error.
    while let Ok(Some(event)) = stream.try_next().await {
        match event {
            WatchEvent::Added(event) => {
                if !show(context, query, &event)? {
                    return Ok(Followed::Unread);
                }
                if let Some(version) = event.metadata.resource_version {
                    *seen = version;
                }
            }
            WatchEvent::Bookmark(mark) => *seen = mark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {}
        }
    }
    Ok(Followed::Broken)
}

/// Writes the audit records after `seen`, which a watch no longer returns. Records never change, so
/// the version of each is that of its creation.
async fn missed(
    context: &Context,
    cluster: &Cluster,
    events: &Api<DynamicObject>,
    query: &Query,
    seen: &mut String,
) -> Result<Followed> {
    let parameters = ListParams::default().labels(&query.selector());
    let list = cluster.answer(events.list(&parameters)).await?;
    let version = |event: &DynamicObject| {
        let version = event.metadata.resource_version.as_deref();
        version.and_then(|version| version.parse::<u64>().ok())
    };
    let last = seen.parse::<u64>().ok();
    let mut since: Vec<_> = list
        .items
        .into_iter()
        .filter(|one| version(one) > last)
        .collect();
    since.sort_by_key(version);
    for event in since {
        if !show(context, query, &event)? {
            return Ok(Followed::Unread);
        }
    }
    *seen = list.metadata.resource_version.unwrap_or_default();
    Ok(Followed::Broken)
}

/// Writes an audit record, if it matches the query. Returns whether the output has a reader.
fn show(context: &Context, query: &Query, event: &DynamicObject) -> Result<bool> {
    match serde_json::from_value::<Entry>(event.data["spec"].clone()) {
        Ok(entry) if query.matches(&entry) => {
            let line = format!("{}\n", cells(&entry, true).join("   "));
            context.pass_on(line.as_bytes())
        }
        _ => Ok(true),
    }
}
