//! The reports of connections: an audit record for auditors, an event on the pod for its owner.
//! Arguments may contain secrets, so the report has their digest unless the template records
//! arguments.

use k8s_openapi::api::core::v1::ObjectReference;
use oz_admission::{Cx, Rejection, Review};
use oz_api::encode;
use oz_audit::TOO_MANY_CONNECTIONS;
use oz_core::access::emergency::break_glass;
use oz_core::access::grant::Grant;
use oz_core::connect::cut::Cut;
use oz_core::connect::ephemeral::{self, AddedContainer};
use oz_core::connect::{Attempt, ConnectionKind, Refusal, image};
use oz_core::controller::Failure;
use oz_runtime::{Event, EventType};
use oz_trail::{Action, Decision, Mode, PodRef, Record, RequestRef};
use serde_json::Value;

use super::{Allowed, Connect, PodNow, answer};
use crate::attributed::log_unwritten;

/// Returns the images that a change of a running pod would replace.
pub(super) fn images(review: &Review<Value>) -> Vec<String> {
    let (old, new) = (review.old.as_ref(), review.object.as_ref());
    image::changed(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null))
}

/// Returns the containers that a change would add to a running pod.
pub(super) fn added(review: &Review<Value>) -> Vec<AddedContainer> {
    let (old, new) = (review.old.as_ref(), review.object.as_ref());
    ephemeral::added(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null))
}

/// The report of one connection, with the contents of its audit record and its event.
pub(super) struct ConnectionReport<'a> {
    pub(super) connect: &'a Connect,
    pub(super) cx: &'a Cx,
    pub(super) review: &'a Review<Value>,
    pub(super) attempt: &'a Attempt<'a>,
    pub(super) pod: &'a PodNow,
}

impl ConnectionReport<'_> {
    /// Records a connection that is allowed. In enforcing namespaces, a connection without an audit
    /// record is denied, unless `webhook.auditRequired: false` is set.
    pub(super) async fn opened(&self, allowed: &Allowed) -> Result<(), Rejection> {
        if self.cx.dry_run {
            return Ok(());
        }
        let grant = allowed.grant.as_deref();
        let (action, reason, why) = match (grant, self.connect.mode) {
            (Some(grant), _) => {
                let why = format!(" by request {}", grant.request.name);
                (Action::SessionOpened, "Granted", why)
            }
            (None, Mode::BreakGlass) => {
                let why = " as break-glass".to_owned();
                (Action::BreakGlassOpened, "BreakGlass", why)
            }
            (None, _) => (Action::SessionOpened, "Observed", String::new()),
        };
        let message = format!("{}{why}", self.sentence("may"));
        let mut record = self.record(action, Decision::Allow, reason, message, grant);
        let cut = match &allowed.cut {
            Cut::ByItself(_) => "by itself",
            Cut::WithPod => "with its pod",
            Cut::Marked(_, why) | Cut::Not(why) => why,
        };
        record.details.insert("ends".to_owned(), cut.to_owned());
        let connections = &self.connect.connections;
        // A claim of an unproven caller is no fact to review.
        if action == Action::BreakGlassOpened && self.cx.caller.is_proven() {
            record = self.reviewable(record);
        }
        let is_enforced = self.connect.mode == Mode::Enforcing;
        match connections.records.record(&record).await {
            Ok(()) => {}
            // A quota bounds the records, and so the admitted connections, also where the audit
            // record is optional.
            Err(failure)
                if is_enforced
                    && (connections.audit_required || failure.reason == TOO_MANY_CONNECTIONS) =>
            {
                return Err(self.not_recorded(&failure).await);
            }
            Err(failure) => {
                connections.unrecorded.inc();
                log_unwritten(&failure.to_string(), &record);
            }
        }
        self.publish("SessionOpened", EventType::Normal, record.message);
        Ok(())
    }

    /// Returns the denial of a connection that is not recorded. A connection beyond a quota is
    /// recorded as denied.
    async fn not_recorded(&self, failure: &Failure) -> Rejection {
        if failure.reason != TOO_MANY_CONNECTIONS {
            return answer::not_on_record(&failure.to_string());
        }
        let refusal = Refusal {
            reason: failure.reason,
            message: format!("{}: {}", self.sentence("may not"), failure.message),
        };
        self.refused(&refusal).await;
        answer::too_many(refusal)
    }

    /// Returns the audit record with the data of its review. A missing key does not deny the
    /// connection.
    fn reviewable(&self, record: Record) -> Record {
        let connections = &self.connect.connections;
        let (keys, window) = (&connections.keys, connections.review_window);
        break_glass::proven(keys, record.clone(), window).unwrap_or_else(|error| {
            tracing::error!(%error, "a use of break-glass gets no review: its audit record is not \
                sealed");
            record
        })
    }

    /// Records a denied connection, except for the second try of one kubectl.
    pub(super) async fn refused(&self, refusal: &Refusal) {
        if self.cx.dry_run || self.is_again(refusal) {
            return;
        }
        let (action, decision) = (Action::SessionRefused, Decision::Deny);
        let message = refusal.message.clone();
        let record = self.record(action, decision, refusal.reason, message, None);
        // The connection is denied in either case.
        if let Err(failure) = self.connect.connections.records.record(&record).await {
            log_unwritten(&failure.to_string(), &record);
        }
        let (limit, attempt) = (&self.connect.connections.event_limit, self.attempt);
        if limit.is_due(&attempt.person().user, attempt.now) {
            let sentence = self.sentence("may not");
            let note = format!("{sentence}: {}", refusal.reason);
            self.publish("SessionRefused", EventType::Warning, note);
        }
    }

    fn is_again(&self, refusal: &Refusal) -> bool {
        let attempt = self.attempt;
        // A digest: a command may be as large as a request.
        let key = encode::digest(&(
            &attempt.person().user,
            attempt.namespace,
            attempt.pod,
            attempt.way.title(),
            attempt.container,
            refusal.reason,
            attempt.argv,
        ));
        self.connect.connections.recent.is_second(key, attempt.now)
    }

    fn record(
        &self,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
        grant: Option<&Grant>,
    ) -> Record {
        let attempt = self.attempt;
        let mut record = match grant {
            Some(grant) => grant.record(attempt.now, action, decision, reason, message),
            None => Record {
                request: RequestRef {
                    namespace: attempt.namespace.to_owned(),
                    ..RequestRef::default()
                },
                ..Record::about(
                    attempt.now,
                    action,
                    decision,
                    &self.review.uid,
                    reason,
                    message,
                )
            },
        };
        // Each call is a separate fact.
        record.id = Record::id(action, &self.review.uid);
        record.user = Some(match grant {
            Some(grant) => attempt.person_of(grant),
            None => attempt.person(),
        });
        record.pod = (attempt.way != ConnectionKind::ServiceProxy).then(|| {
            let mut pod = PodRef {
                name: attempt.pod.to_owned(),
                container: attempt.container.map(ToOwned::to_owned),
                ..PodRef::default()
            };
            if let Some(uid) = self.pod.as_named().uid() {
                uid.clone_into(&mut pod.uid);
            }
            pod
        });
        let keeps = grant.is_some_and(|grant| grant.sessions.record_arguments);
        let details = &mut record.details;
        let mut detail = |key: &str, value: String| details.insert(key.to_owned(), value);
        detail("way", attempt.way.title().to_owned());
        detail(Mode::DETAIL, self.connect.mode.title().to_owned());
        if attempt.ticket.is_some() {
            detail("gate", attempt.user.user.clone());
        }
        match attempt.way {
            ConnectionKind::ServiceProxy => drop(detail("service", attempt.pod.to_owned())),
            ConnectionKind::EphemeralContainer => {
                // A grant allows one; break-glass may add several at once, and the record names
                // each.
                let added = added(self.review);
                let all = |field: fn(&AddedContainer) -> &str| {
                    added.iter().map(field).collect::<Vec<_>>().join(", ")
                };
                if !added.is_empty() {
                    detail("added", all(|it| &it.name));
                    detail("image", all(|it| &it.image));
                    detail("target", all(|it| &it.target));
                }
                if added.len() > 1 {
                    let argv: Vec<_> = added.iter().map(|it| &it.argv).collect();
                    let commands = argv
                        .iter()
                        .map(|argv| oz_trail::arguments(argv, keeps).join(" "));
                    detail("command", commands.collect::<Vec<_>>().join("; "));
                    detail("commandDigest", encode::digest(&argv));
                }
            }
            ConnectionKind::Image => drop(detail("images", image::summary(&images(self.review)))),
            _ => {}
        }
        if !attempt.argv.is_empty() {
            detail(
                "command",
                oz_trail::arguments(attempt.argv, keeps).join(" "),
            );
            detail("commandDigest", encode::digest(&attempt.argv));
            detail("tty", attempt.tty.to_string());
        }
        record
    }

    /// Returns the sentence about the connection: `alice may connect to pod web-0 (exec, container
    /// app): sh (2 arguments)`.
    fn sentence(&self, does: &str) -> String {
        let attempt = self.attempt;
        let way = attempt.way.title();
        let way = match attempt.container {
            Some(container) => format!("{way}, container {container}"),
            None => way.to_owned(),
        };
        let command = match attempt.argv {
            [] => String::new(),
            argv => format!(": {}", oz_trail::arguments(argv, false).join(" ")),
        };
        format!(
            "{} {does} {} {} {} ({way}){command}",
            attempt.person().user,
            attempt.way.verb(),
            attempt.way.target(),
            attempt.pod
        )
    }

    fn publish(&self, reason: &str, type_: EventType, note: String) {
        // An event requires the UID of a pod.
        let Some(uid) = self.pod.as_named().uid() else {
            return;
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.attempt.namespace.to_owned()),
            name: Some(self.attempt.pod.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Connect".to_owned(),
            secondary: None,
        };
        self.cx.publish(event, regarding);
    }
}
