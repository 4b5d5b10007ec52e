//! The audit records that are stored before a run begins: its start, its emergency, and the credentials of its agent.
//! Those of a run without a decision.

use jiff::Timestamp;
use oz_api::harness::HarnessRun;
use oz_core::access::{emergency, ticket};
use oz_core::controller::{Failure, Step};
use oz_trail::{Action, Decision, Record};

use super::Runs;
use super::decided::Decided;
use crate::objects::KIND;
use crate::stored::StoredObject;
use crate::terms;

impl Runs {
    /// Returns the audit records of the start of a run, and of its emergency, from which its review is created.
    pub(super) fn start_records(&self, decided: &Decided) -> Result<Vec<Step>, Failure> {
        let mut records = vec![started(decided)];
        if let Some(emergency) = &decided.emergency {
            let message = format!(
                "EMERGENCY: {} begins by {}, without an approval; to be reviewed until {}",
                decided.run.name, decided.template, emergency.due_at
            );
            let (at, action, allow) = (
                decided.decided_at,
                Action::EmergencyGranted,
                Decision::Allow,
            );
            let record = decided.record(at, action, allow, "Admitted", message);
            let proven = emergency::proven(&self.keys, record, Some(emergency));
            records.push(proven.map_err(|error| error.into_failure("record of an emergency"))?);
        }
        Ok(records.into_iter().map(Step::Record).collect())
    }
}

fn started(decided: &Decided) -> Record {
    let message = format!("{} begins by {}", decided.run.name, decided.template);
    let (at, action, allow) = (decided.decided_at, Action::RunStarted, Decision::Allow);
    let record = decided.record(at, action, allow, "Admitted", message);
    match &decided.ticket {
        Some(ticket) => ticket::detailed(record, ticket),
        None => record,
    }
}

/// Returns the audit record of a run without a decision, with its reason and its message.
pub(super) fn undecided_record(
    now: Timestamp,
    run: &StoredObject<'_, HarnessRun>,
    (action, decision): (Action, Decision),
    (reason, message): (&str, &str),
) -> Record {
    Record {
        request: run.reference(KIND),
        template: run.spec.template_ref.name.clone(),
        details: terms::details(&run.spec).collect(),
        ..Record::about(now, action, decision, run.uid(), reason, message)
    }
}

/// Returns the audit records of the credentials that the kubelet delivers to the agent, each written once, before the
/// Job.
pub(super) fn lent_records(decided: &Decided) -> impl Iterator<Item = Step> {
    let in_container = decided.credentials.iter().filter(|it| !it.is_injected());
    in_container.map(|credential| {
        let (at, action, allow) = (decided.decided_at, Action::CredentialLent, Decision::Allow);
        let message = format!(
            "credential {} of BrokerPolicy {} is delivered to the agent of {}",
            credential.name, credential.policy, decided.run.name
        );
        let mut record = decided.record(at, action, allow, "InContainer", message);
        record.id = Record::id(action, &format!("{}/{}", decided.run.uid, credential.name));
        let record = record
            .detail("credential", credential.name.as_str())
            .detail("policy", credential.policy.as_str())
            .detail("secret", credential.secret.name.as_str());
        Step::Record(record)
    })
}
