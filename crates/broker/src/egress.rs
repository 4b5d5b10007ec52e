//! The reports of proxies: the destinations of a run's connections, for the audit trail and for the status of the run.

use oz_api::harness::wire::EgressCount;
use oz_runs::caller::Caller;
use oz_runs::lending::{Terms, cleaned};
use oz_trail::{Action, Decision, Record, Repeated};

use crate::answer::Refused;
use crate::lend::about;
use crate::routes::Broker;
use crate::runs::Run;

/// The reason of a connection to a host that a policy grants.
const GRANTED: &str = "HostGranted";

impl Broker {
    /// Accepts the destinations of a report. The status is written soon, and the response does not wait for it.
    pub(crate) fn egress(
        &self,
        caller: &Caller,
        run: &Run,
        counts: Vec<EgressCount>,
    ) -> Result<(), Refused> {
        let counts = cleaned(counts);
        if counts.is_empty() {
            return Ok(());
        }
        self.egress.put(&run.name, counts.clone())?;
        let terms = self.runs.terms(run).ok();
        for count in &counts {
            if count.granted > 0 || count.uses > 0 {
                self.metrics.egress("granted", GRANTED, count.granted);
                self.note(caller, run, terms.as_ref(), count, None);
            }
            if count.refused > 0 {
                let reason = count.reason.map_or("Unknown", Into::into);
                self.metrics.egress("refused", reason, count.refused);
                self.note(caller, run, terms.as_ref(), count, Some(reason));
            }
        }
        Ok(())
    }

    /// Records the connections of a report to one destination: `refused` with this reason, or granted. The trail writes
    /// the first record of a run, destination and reason at once, and counts the repeated ones for a minute.
    fn note(
        &self,
        caller: &Caller,
        run: &Run,
        terms: Option<&Terms>,
        count: &EgressCount,
        refused: Option<&'static str>,
    ) {
        let now = self.clock.now();
        let host = match count.host.as_str() {
            "" => "a host without a name",
            host => host,
        };
        let destination = match count.port {
            0 => host.to_owned(),
            port => format!("{host}:{port}"),
        };
        let (action, decision, number, verb) = match refused {
            None => (
                Action::EgressAllowed,
                Decision::Allow,
                count.granted,
                "connected to",
            ),
            Some(_) => (
                Action::EgressRefused,
                Decision::Deny,
                count.refused,
                "was refused",
            ),
        };
        let reason = refused.unwrap_or(GRANTED);
        let name = &run.name;
        let message = format!(
            "harness run {}/{} {verb} {destination}",
            name.namespace, name.name
        );
        let subject = format!("{} {destination} {reason} {now}", name.uid);
        let record = Record::about(now, action, decision, &subject, reason, message);
        let mut record = about(record, caller, terms).detail("destination", destination);
        record.request = name.reference();
        if let Some(credential) = &count.credential {
            record = record.detail("credential", credential.as_str());
        }
        if count.uses > 0 && refused.is_none() {
            record = record.detail("uses", count.uses.to_string());
        }
        if number > 1 {
            record.repeated = Some(Repeated {
                count: number,
                first: now,
                last: now,
                samples: Vec::new(),
            });
        }
        self.trail.note(record);
    }
}
