//! The data about a parent in one pass, and the questions for missing data.

use jiff::Timestamp;
use oz_core::controller::{Failure, Live};
use serde_json::Value;

use crate::function::{Called, Function};
use crate::owner::Owner;
use crate::related::{Related, Rule};
use crate::rights::{Found, Want};
use crate::settling::Change;
use crate::stored::Doubt;

/// The data about one parent.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the parent exists at the API server and is not being deleted.
    pub alive: Option<Result<bool, Failure>>,
    /// The rules of the related objects that the function requests.
    pub rules: Option<Result<Vec<Rule>, Refused>>,
    /// The related objects.
    pub related: Option<Result<Vec<Related>, Failure>>,
    /// The response of the function.
    pub called: Option<Result<Called, Refused>>,
    /// The rights of the parent's authors.
    pub rights: Vec<(Want, Found)>,
    /// The instant until which changes are delayed; `None` if they are permitted now.
    pub slowed: Option<Option<Timestamp>>,
    /// The children that look otherwise than they were applied, and whether an application would not change them; `None`
    /// if all of them are applied again.
    pub stored: Option<Vec<(Doubt, bool)>>,
    /// The expired children that the function has not been called with; `None` if they are not recorded.
    pub expired: Option<Vec<Live>>,
}

/// The failure of a call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The failure that is reported.
    pub failure: Failure,
    /// The instant of the next call, if the server states one.
    pub again: Option<Timestamp>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let again = None;
        Self { failure, again }
    }
}

/// The data that a decision about one parent requires.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Whether the parent exists and is not being deleted.
    Alive,
    /// The related objects that a function requests for this request.
    Customize(Value),
    /// The objects that these rules select.
    Related(Vec<Rule>),
    /// The response of a function to this request.
    Call(Function, Value),
    /// Whether the authors of the parent have these rights.
    Rights(Vec<Want>),
    /// The instant until which this change is delayed.
    Slowed(Change),
    /// Whether the API server stores these children as they were applied.
    Stored(Vec<Doubt>),
    /// That these expired children are recorded, before they are deleted.
    Expired(Vec<Live>),
}

/// The reason for which a stage ends a pass.
pub(super) enum Stop {
    /// The decision requires this data.
    Need(Question),
    /// There is no valid response of the function.
    Unanswered(Refused),
    /// The pass at this instant decides; the failure is reported until then.
    Wait(Timestamp, Option<Failure>),
}

impl From<Question> for Stop {
    fn from(question: Question) -> Self {
        Self::Need(question)
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Unanswered(refused)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Unanswered(failure.into())
    }
}

/// A parent in one pass.
pub(super) struct Parent<'a> {
    pub(super) now: Timestamp,
    pub(super) owner: Owner<'a>,
    pub(super) facts: &'a Facts,
    /// The existing objects of the kinds of children.
    pub(super) live: &'a [Live],
    /// The children that have an expiry.
    pub(super) expiring: Vec<(&'a Live, Timestamp)>,
}
