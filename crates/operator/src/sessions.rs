//! The port that ends sessions: its actions at the end of grants, its audit records, and the later
//! checks for processes that begin after the end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use oz_audit::{Sink as _, Trail};
use oz_core::connect::ConnectionKind;
use oz_core::controller::{Effect, Failure};
use oz_core::sessions::{Opened, Sessions, SessionsEnded};
use oz_engine::Port;
use oz_runtime::{Clock as _, ServerClock};
use oz_trail::{Action, Record};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::session_openings::Openings;
use crate::session_queue::ScriptQueue;
use crate::session_script::InPod;

/// The times after an end at which it checks for new processes. Not sooner: where many grants end
/// together, their nodes are still busy with that.
const LATER: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(35),
];

/// The port that ends sessions by scripts, in their turn.
#[derive(Clone)]
pub(crate) struct Scripts {
    queue: ScriptQueue<InPod>,
    openings: Openings,
    clock: ServerClock,
    trail: Trail,
    /// The grants with pending later checks, see [`Scripts::look_again`].
    again: Arc<Mutex<HashSet<String>>>,
}

impl Scripts {
    pub(crate) fn new(client: Client, clock: ServerClock, trail: Trail) -> Self {
        let in_pod = InPod {
            client: client.clone(),
            clock: clock.clone(),
        };
        Self {
            queue: ScriptQueue::new(in_pod),
            openings: Openings::new(client),
            clock,
            trail,
            again: Arc::default(),
        }
    }

    async fn end_all(&self, sessions: &Sessions) -> Result<SessionsEnded, Failure> {
        let mut ended = SessionsEnded::default();
        if !sessions.with_pod {
            if let Some(found) = self.queue.end(sessions.clone()).await? {
                ended = found;
            }
            self.look_again(sessions);
        }
        let records = self.openings.list_for_grant(&sessions.mark).await;
        ended.opened = opened(records.into_iter(), sessions.with_pod);
        Ok(ended)
    }

    /// Ends processes that were allowed before the end and start only now: the API server waits
    /// half a minute for a client to open its streams. This runs in the background, as no other
    /// step waits for it; only processes that it finds are recorded.
    fn look_again(&self, sessions: &Sessions) {
        let (this, sessions) = (self.clone(), sessions.clone());
        if !self.looked_after().insert(sessions.mark.clone()) {
            return;
        }
        tokio::spawn(async move {
            let ended = tokio::time::Instant::now();
            for later in LATER {
                tokio::time::sleep_until(ended + later).await;
                match this.queue.end(sessions.clone()).await {
                    Ok(Some(came)) if came.ended > 0 => this.late(&sessions, &came, later).await,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(failure) => tracing::info!(%failure, "failed to check again"),
                }
            }
            this.looked_after().remove(&sessions.mark);
        });
    }

    fn looked_after(&self) -> MutexGuard<'_, HashSet<String>> {
        self.again.lock()
    }

    /// Records that processes began after the end, and were ended.
    async fn late(&self, sessions: &Sessions, came: &SessionsEnded, later: Duration) {
        let Some(mut record) = sessions.ended(came) else {
            return;
        };
        record.time = self.clock.now();
        // A separate fact.
        let what = format!("{} {}s later", sessions.mark, later.as_secs());
        record.id = Record::id(record.action, &what);
        "Processes that began after the expiry were ended".clone_into(&mut record.message);
        self.put_on_record(&record).await;
    }

    async fn put_on_record(&self, record: &Record) {
        if let Err(failure) = self.trail.record(record).await {
            let line = record.line();
            tracing::error!(%failure, record = line, "the end of sessions is not recorded");
        }
    }
}

/// Returns the sessions that end now; `None` if their end is recorded already. A forwarded port, or
/// an attached stream, is no process in the container: it ends only with its pod. Of equal sessions
/// within a minute, the first has its own record, and the others share one.
fn opened(records: impl Iterator<Item = Record>, with_pod: bool) -> Option<Opened> {
    let (opened, ended): (Vec<_>, Vec<_>) =
        records.partition(|record| record.action == Action::SessionOpened);
    if !ended.is_empty() {
        return None;
    }
    let exec = |record: &Record| {
        let way = record.details.get("way");
        way.is_some_and(|way| way == ConnectionKind::Exec.title())
    };
    // A claim of an unproven caller of the webhook is no basis for another fact.
    let opened = opened
        .into_iter()
        .filter(|record| record.unproven_peer().is_none());
    let ending = opened.filter(|record| with_pod || exec(record));
    let ending = ending.map(|record| match record.repeated {
        Some(repeated) => (repeated.first, repeated.count),
        None => (record.time, 1),
    });
    ending.fold(None, |known, (first, count)| {
        Some(match known {
            Some(Opened {
                first: before,
                count: others,
            }) => Opened {
                first: before.min(first),
                count: others + count,
            },
            None => Opened { first, count },
        })
    })
}

impl Port for Scripts {
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        async move {
            let sessions = Sessions::try_from(effect)?;
            let ended = self.end_all(&sessions).await?;
            if let Some(record) = sessions.ended(&ended) {
                // The sessions are ended; a second try would find none to count.
                self.put_on_record(&record).await;
            }
            // Sessions that end with their pod need no action: there is nothing to report.
            let ended = (!sessions.with_pod).then_some(&ended);
            Ok(SessionsEnded::to_answer(ended))
        }
        .boxed()
    }
}

/// The port that ends no session: each lasts until its own end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaveSessions;

impl Port for LeaveSessions {
    fn carry_out<'a>(&'a self, _: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        futures::future::ready(Ok(SessionsEnded::to_answer(None))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use oz_trail::{Decision, Repeated};

    use super::*;

    #[test]
    fn a_forwarded_port_hides_no_session_that_ends() {
        let at = |second| Timestamp::constant(1_790_000_000 + second, 0);
        let record = |action, second: i64, way: ConnectionKind| {
            let id = second.to_string();
            let record = Record::about(at(second), action, Decision::Allow, &id, "", "");
            record.detail("way", way.title())
        };
        let all = [
            record(Action::SessionOpened, 1, ConnectionKind::Exec),
            record(Action::SessionOpened, 2, ConnectionKind::PortForward),
            record(Action::SessionOpened, 3, ConnectionKind::Exec),
        ];
        let since = |second, count| {
            Some(Opened {
                first: at(second),
                count,
            })
        };
        assert_eq!(opened(all.iter().cloned(), false), since(1, 2));
        assert_eq!(opened(all.iter().cloned(), true), since(1, 3));
        let mut several = record(Action::SessionOpened, 60, ConnectionKind::Exec);
        several.repeated = Some(Repeated {
            count: 40,
            first: at(4),
            last: at(60),
            samples: Vec::new(),
        });
        let all_and_several = all.iter().cloned().chain([several.clone()]);
        assert_eq!(opened(all_and_several, false), since(1, 42));
        assert_eq!(opened([several].into_iter(), false), since(4, 40));
        for action in [Action::SessionTerminated, Action::SessionEnded] {
            let told = all
                .iter()
                .cloned()
                .chain([record(action, 4, ConnectionKind::Exec)]);
            assert_eq!(opened(told, false), None);
        }
    }
}
