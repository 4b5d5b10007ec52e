//! `ozctl audit tail`: records as they come.

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
        // Whoever reads it may count on what comes after.
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
                // The API server knows no more what came since: one that was restarted does not.
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

/// Why a watch is followed no longer.
enum Followed {
    /// The API server ended it, as it does every few minutes, or the connection broke.
    Broken,
    /// Nobody reads what is written any more.
    Unread,
}

/// Writes the records that one watch brings; `seen` is from where the next one goes on.
async fn follow(
    context: &Context,
    query: &Query,
    stream: impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>>,
    seen: &mut String,
) -> Result<Followed> {
    let mut stream = std::pin::pin!(stream);
    // Where it breaks, the next watch brings what this one did not, or says what is wrong.
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

/// Writes the records that came after `seen`, which no watch brings any more. Records never change, so the version of
/// each is that of its creation.
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

/// Writes a record, if it is one of those that are wanted. Whether somebody reads on.
fn show(context: &Context, query: &Query, event: &DynamicObject) -> Result<bool> {
    match serde_json::from_value::<Entry>(event.data["spec"].clone()) {
        Ok(entry) if query.matches(&entry) => {
            let line = format!("{}\n", cells(&entry, true).join("   "));
            context.pass_on(line.as_bytes())
        }
        _ => Ok(true),
    }
}
