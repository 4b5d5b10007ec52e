//! The place of emergencies in the decision about a request: they replace the approvals that its template
//! requires, and the requester's unreviewed emergencies are counted last.

use oz_api::{AccessConfig, Phase, Requester, conditions};

use super::super::kind::{FactsOf, Kind, Otherwise, Question, ReviewLimit, State};
use super::super::request::Request;
use super::super::status::Fact;
use super::{Emergency, Terms, has_room, reviewers_named};
use crate::controller::Failure;

/// Returns the terms of a request that is an emergency; `None` if it is not.
///
/// # Errors
/// The state that the request is in instead.
pub(in crate::access) fn settled(
    request: &Request<'_>,
    config: &AccessConfig,
) -> Result<Option<Terms>, State> {
    if !request.ask.emergency {
        return Ok(None);
    }
    Terms::from_config(config).map(Some).ok_or_else(|| {
        let message = format!(
            "spec.accessConfig.emergency of template {} is invalid; have the template's owners \
                correct it",
            request.template
        );
        State::Waiting(Failure::invalid("EmergencyConfigInvalid", message))
    })
}

/// Checks whether the requester may have one more emergency, according to the known ones.
///
/// # Errors
/// The missing data, or the state that the request is in instead.
pub(in crate::access) fn confirmed<K: Kind>(
    terms: Option<&Terms>,
    requester: &Requester,
    request: &Request<'_>,
    known: &FactsOf<K>,
    facts: &mut Vec<Fact>,
) -> Result<(), Otherwise> {
    let Some(terms) = terms else {
        return Ok(());
    };
    match &known.unreviewed {
        None => Err(Otherwise::Need(Question::Emergencies(Box::new(
            ReviewLimit {
                requester: requester.clone(),
                most: terms.most,
            },
        )))),
        Some(Err(failure)) => Err(State::Waiting(failure.clone()).into()),
        Some(Ok(uids)) => {
            has_room(requester, request.template, terms.most, uids).map_err(|denial| {
                let failed =
                    Fact::fails(conditions::EMERGENCY, denial.reason, denial.message.clone());
                facts.push(failed);
                let failure = Failure::invalid(denial.reason, denial.message);
                State::Refused(Phase::Denied, failure).into()
            })
        }
    }
}

/// Returns the condition that a grant is an emergency.
pub(in crate::access) fn fact(emergency: &Emergency) -> Fact {
    let message = format!(
        "EMERGENCY: granted without an approval; to be reviewed until {} by {}",
        emergency.due_at,
        reviewers_named(&emergency.reviewers)
    );
    Fact {
        reason: "GrantedWithoutApproval",
        ..Fact::holds(conditions::EMERGENCY, message)
    }
}
