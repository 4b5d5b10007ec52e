//! `ozctl audit tail`: records as they come.

use clap::Args;
use futures::TryStreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use oz_core::audit::Entry;

use super::read::{Filter, cells, table};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
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
        let selector = query.selector();
        let now = async || -> Result<String> {
            let one = ListParams::default().limit(1);
            let list = cluster.answer(events.list(&one)).await?;
            Ok(list.metadata.resource_version.unwrap_or_default())
        };
        let mut version = Some(now().await?);
        // Whoever reads it may count on what comes after.
        if !context.pass_on(table(&[], true).to_string().as_bytes())? {
            return Ok(Exit::SUCCESS);
        }
        loop {
            let from = match version.take() {
                Some(version) => version,
                None => now().await?,
            };
            let watch = WatchParams::default().labels(&selector);
            let stream = cluster.answer(events.watch(&watch, &from)).await?;
            let mut stream = std::pin::pin!(stream);
            let mut seen = from;
            loop {
                match stream.try_next().await {
                    Ok(Some(WatchEvent::Added(event))) => {
                        seen = event.metadata.resource_version.unwrap_or(seen);
                        let entry = serde_json::from_value::<Entry>(event.data["spec"].clone());
                        if let Ok(entry) = entry
                            && query.matches(&entry)
                        {
                            let line = format!("{}\n", cells(&entry, true).join("   "));
                            if !context.pass_on(line.as_bytes())? {
                                return Ok(Exit::SUCCESS);
                            }
                        }
                    }
                    Ok(Some(WatchEvent::Bookmark(mark))) => {
                        seen = mark.metadata.resource_version;
                    }
                    // Too old to go on from there: from now, then.
                    Ok(Some(WatchEvent::Error(status))) if status.code == 410 => break,
                    Ok(Some(WatchEvent::Error(status))) => {
                        return Err(Failure::new(status.message.clone()));
                    }
                    Ok(Some(_)) => {}
                    // The API server ends a watch every few minutes.
                    Ok(None) => {
                        version = Some(seen);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}
