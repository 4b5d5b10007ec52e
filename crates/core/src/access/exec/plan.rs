//! What a state asks for. Granting: the Role, which gives nobody anything yet and carries the
//! sealed decision, beside the audit record; the RoleBinding only when both are there.

use jiff::Timestamp;

use super::{Assessment, ExecAccess, Observed, State};
use crate::access::grant::Grant;
use crate::access::lifecycle;
use crate::access::objects::Objects;
use crate::access::request::Request;
use crate::api::ExecAccessRequest;
use crate::audit::{Action, Decision};
use crate::build;
use crate::controller::{Child, Failure, Live, Plan, Step};

pub(super) fn plan(
    controller: &ExecAccess,
    now: Timestamp,
    object: &ExecAccessRequest,
    observed: &Observed,
    live: &[Live],
) -> Plan {
    let request = Request::from(object);
    let Assessment {
        state, waits_until, ..
    } = controller.assess(now, object, observed, live);
    match state {
        State::Over => lifecycle::over(now, &request, live, controller.keep_finished),
        State::Ending(end, grant) => lifecycle::ending(now, &request, &end, grant.as_deref(), live),
        State::Granted(grant) if Objects::of(&request, live).binding.is_some() => {
            Plan::default().wake_at(grant.window.until)
        }
        State::Granted(grant) | State::Grantable(grant) => {
            granting(controller, now, object, observed, &grant)
        }
        State::Refused(_, failure) => {
            let record = request.record(
                now,
                Action::RequestDenied,
                Decision::Deny,
                failure.reason,
                &failure.message,
            );
            // Its status says so from now on, and is kept for as long as that of others.
            let kept = now
                .checked_add(controller.keep_finished)
                .unwrap_or(Timestamp::MAX);
            Plan::default().then([Step::Record(record)]).wake_at(kept)
        }
        State::Waiting(failure) => Plan::default().because(failure).wake_at(waits_until),
        State::Wants(target) => Plan::default()
            .because(Failure::transient(
                "NotObserved",
                format!("{} {} was not looked up yet", target.kind, target.name),
            ))
            .wake_at(waits_until),
    }
}

fn granting(
    controller: &ExecAccess,
    now: Timestamp,
    object: &ExecAccessRequest,
    observed: &Observed,
    grant: &Grant,
) -> Plan {
    let sealed = match grant.seal(&controller.keys) {
        Ok(sealed) => sealed,
        Err(error) => {
            let message = format!("failed to seal the grant: {error}");
            return Plan::default().because(Failure::invalid("SealFailed", message));
        }
    };
    let adoption = observed.template.as_deref().and_then(|template| {
        lifecycle::adoption(&object.metadata, "ExecAccessTemplate", &template.metadata)
    });
    Plan::default()
        .then([
            Step::Apply(Child::new(&build::role(grant, sealed))),
            Step::Record(lifecycle::granted(now, grant)),
        ])
        .then([Step::Apply(Child::new(&build::role_binding(grant)))])
        .then(adoption.map(Step::Own))
        .wake_at(grant.window.until)
}
