//! A new access request, as the rules read it at its creation.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::GoDuration;

use super::continued::{self, Continued};
use super::denial::Denial;
use super::lock::{Access, Locks};
use super::policy::{self, Judgement};
use super::request::Request;
use super::rules::{Creation, CreationStop, NewObject};
use super::stamp::{Stamp, StampError};
use super::{decide, emergency};
use crate::kinds::{AccessRequest, AccessTemplate, Kind as _};
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::{Source, Window};
use crate::validate::Violation;

type Stop = CreationStop<RequestQuestion>;

/// A new access request.
pub struct NewRequest<'a, R: AccessRequest> {
    creation: Creation<'a>,
    object: &'a R,
    request: Request<'a>,
    stamp: Result<Stamp, StampError>,
    /// The facts that were asked for.
    pub facts: RequestFacts<R::Template>,
}

/// The facts about a new request. A fact is `None` until its question was asked.
#[derive(Debug)]
pub struct RequestFacts<T> {
    /// The answer to [`RequestQuestion::Template`]: the template, if it exists.
    pub template: Option<Option<Arc<T>>>,
    /// The answer to [`RequestQuestion::Locks`].
    pub locks: Option<Locks>,
    /// The answer to [`RequestQuestion::Continued`]: the data about that request, if it exists.
    pub continued: Option<Option<Continued>>,
    /// The answer to [`RequestQuestion::Count`].
    pub counted: Option<Result<(), Denial>>,
    /// The answer to [`RequestQuestion::Reviews`].
    pub unreviewed: Option<Vec<String>>,
}

impl<T> Default for RequestFacts<T> {
    fn default() -> Self {
        Self {
            template: None,
            locks: None,
            continued: None,
            counted: None,
            unreviewed: None,
        }
    }
}

/// A question about a new request. They are asked in this order, and only if the answer matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestQuestion {
    /// The template that the request names.
    Template,
    /// All locks.
    Locks,
    /// The request with this name, which the new one extends. Only this answer costs a request to the API server.
    Continued(String),
    /// Whether the limits allow one more request of the creator. If they do, the new one counts from then on.
    Count,
    /// The unreviewed emergencies of the creator, by the UIDs of their requests.
    Reviews,
}

impl<'a, R: AccessRequest> NewRequest<'a, R> {
    /// Reads a new request, of which no fact is known yet.
    #[must_use]
    pub fn new(keys: &Keys, creation: Creation<'a>, object: &'a R) -> Self {
        let request = object.view();
        Self {
            creation,
            object,
            stamp: request.stamp(keys),
            request,
            facts: RequestFacts::default(),
        }
    }

    /// Returns the template, if it exists.
    fn existing(&self) -> Result<Option<&R::Template>, Stop> {
        let asked = self.facts.template.as_ref();
        let found = asked.ok_or(CreationStop::Need(RequestQuestion::Template))?;
        Ok(found.as_deref())
    }

    /// Returns the request in the form that the common rules read.
    #[must_use]
    pub fn request(&self) -> &Request<'a> {
        &self.request
    }

    /// Returns the template that the rules read, if it exists.
    #[must_use]
    pub fn found_template(&self) -> Option<&R::Template> {
        self.facts.template.as_ref()?.as_deref()
    }
}

impl<R: AccessRequest> NewObject for NewRequest<'_, R> {
    type Question = RequestQuestion;
    const AGAIN: &'static str = "create the request";

    fn ask_locks() -> RequestQuestion {
        RequestQuestion::Locks
    }

    fn ask_reviews() -> RequestQuestion {
        RequestQuestion::Reviews
    }

    fn creation(&self) -> Creation<'_> {
        self.creation
    }

    fn metadata(&self) -> &ObjectMeta {
        self.request.metadata
    }

    fn violations(&self) -> Vec<Violation> {
        self.object.violations(self.creation.now)
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn locks(&self) -> Option<&Locks> {
        self.facts.locks.as_ref()
    }

    fn access(&self) -> Result<Access<'_>, Stop> {
        let (request, creation) = (&self.request, &self.creation);
        let config = self.existing()?.map(AccessTemplate::config);
        Ok(Access::asked(
            request,
            creation.namespace,
            creation.creator,
            config,
        ))
    }

    fn template(&self, warnings: &mut Vec<String>) -> Result<(), Stop> {
        if self.existing()?.is_none() {
            warnings.push(format!(
                "{} {} does not exist; the request stays Pending until it does",
                R::Template::title(),
                self.request.template
            ));
        }
        Ok(())
    }

    fn permits(&self) -> Result<(), Stop> {
        let (request, creator) = (&self.request, self.creation.creator);
        if let Some(template) = self.existing()? {
            decide::may(creator, request.template, template.config(), request.ask)?;
        }
        let Some(name) = request.extends else {
            return Ok(());
        };
        let Some(continued) = &self.facts.continued else {
            return Err(Stop::Need(RequestQuestion::Continued(name.to_owned())));
        };
        continued::may(creator, request, self.creation.now, continued.as_ref())
            .map_err(|denial| Stop::of_field(denial, "spec.extends"))
    }

    fn judged(
        &self,
        judgement: Option<&Judgement>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Stop> {
        let Some(template) = self.existing()? else {
            // The access policies were evaluated without the template, which they require.
            let refused = judgement.and_then(|judgement| judgement.refused.as_ref());
            return match refused {
                None => Ok(()),
                Some(refused) => Err(Denial::new(policy::FAILED, refused.message.clone()).into()),
            };
        };
        policy::holds(judgement, self.request.ask, template)?;
        let approval = policy::approval(judgement, template);
        warnings.extend(policy::note(judgement, approval.as_ref()));
        Ok(())
    }

    fn template_terms(&self, warnings: &mut Vec<String>) -> Result<(), Stop> {
        if let Some(template) = self.existing()?
            && let Some(violation) = unusable(template, self.created())
        {
            warnings.push(format!(
                "template {} cannot be used: {violation}; the request stays Pending until the \
                 template is corrected",
                self.request.template
            ));
        }
        Ok(())
    }

    fn capacity(&self) -> Result<(), Stop> {
        match &self.facts.counted {
            None => Err(Stop::Need(RequestQuestion::Count)),
            Some(counted) => counted.clone().map_err(Stop::from),
        }
    }

    fn window(
        &self,
        judgement: Option<&Judgement>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Stop> {
        if let Some(template) = self.existing()? {
            let created = self.created();
            warnings.extend(clamped(&self.request, created, template, judgement));
        }
        Ok(())
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Stop> {
        let config = self.existing()?.map(AccessTemplate::config);
        let config = config.filter(|_| self.request.ask.emergency);
        let terms = config.and_then(|config| config.emergency.as_ref());
        Ok(emergency::Terms::from_template(
            self.request.template,
            terms,
        ))
    }

    fn unreviewed(&self) -> Option<&[String]> {
        self.facts.unreviewed.as_deref()
    }
}

fn unusable<T: AccessTemplate>(template: &T, created: Timestamp) -> Option<Violation> {
    template.violations(created).into_iter().next()
}

/// Returns the warning about a window that is shorter than the requested one.
fn clamped<T: AccessTemplate>(
    request: &Request<'_>,
    created: Timestamp,
    template: &T,
    judgement: Option<&Judgement>,
) -> Option<String> {
    if unusable(template, created).is_some() {
        return None;
    }
    let config = template.config();
    let asked = request.asked().ok()?;
    let default = config.default_duration.parse().ok()?;
    let max: GoDuration = config.max_duration.parse().ok()?;
    let longest = emergency::longest(config, request.ask.emergency, max);
    let max = policy::longest(judgement, longest);
    let window = Window::new(created, asked, default, max);
    match window.source {
        Source::Clamped(_) => Some(format!(
            "{}; access will last {}",
            window.message(),
            window.length()
        )),
        Source::Default | Source::Requested => None,
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{AccessLock, ExecAccessRequest, ExecAccessTemplate, Requester, labels};
    use serde_json::{Value, json};

    use super::super::rules::{CreationDenial, Served, at_creation};
    use super::super::testing::{keys, timestamp};
    use super::*;

    fn requester(groups: &[&str]) -> Requester {
        Requester {
            user: "alice".into(),
            uid: "u-1".into(),
            groups: groups.iter().map(ToString::to_string).collect(),
        }
    }

    fn template() -> ExecAccessTemplate {
        let review = json!({"deadline": "24h", "groups": ["security"]});
        let emergency = json!({"groups": ["devs"], "openReviews": 1, "review": review});
        serde_json::from_value(json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessTemplate",
            "metadata": {"name": "shell", "namespace": "shop"},
            "spec": {
                "accessConfig": {
                    "allowedGroups": ["devs"], "defaultDuration": "30m", "maxDuration": "2h",
                    "emergency": emergency,
                },
                "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        }))
        .unwrap()
    }

    fn locks(user: &str) -> Locks {
        let lock: AccessLock = serde_json::from_value(json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
            "metadata": {"name": "incident-7"},
            "spec": {"target": {"user": user}, "reason": "stolen laptop"},
        }))
        .unwrap();
        Locks {
            all: vec![Arc::new(lock)],
            unreadable: 0,
        }
    }

    /// Returns a new request, with the stamp of this user.
    fn object(spec: &Value, by: Requester) -> ExecAccessRequest {
        let mut object: ExecAccessRequest = serde_json::from_value(json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
            "metadata": {"name": "next", "namespace": "shop", "creationTimestamp": timestamp(0)},
            "spec": spec,
        }))
        .unwrap();
        let stamp = Stamp {
            requester: by,
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "next".into(),
            spec_digest: object.view().spec.digest(),
            at: timestamp(0),
            nonce: "nonce".into(),
            ..Stamp::default()
        };
        let stamp = stamp.seal(&keys()).unwrap();
        object.metadata.annotations = Some([(labels::REQUESTER.to_owned(), stamp)].into());
        object
    }

    /// Returns the questions of the rules, and the reason of the denial.
    fn decided(
        object: &ExecAccessRequest,
        creator: &Requester,
        (locked, counted): (&str, Result<(), Denial>),
    ) -> (Vec<RequestQuestion>, Option<&'static str>) {
        let creation = Creation {
            now: timestamp(0),
            creator,
            namespace: Some("shop"),
            served: Served {
                own: Some("oz-system"),
                namespaces: &[],
            },
            is_canary: false,
        };
        let mut new = NewRequest::new(&keys(), creation, object);
        let mut asked = Vec::new();
        loop {
            let question = match at_creation(&new) {
                Ok(warnings) => {
                    assert_eq!(warnings, Vec::<String>::new());
                    return (asked, None);
                }
                Err(CreationStop::Deny(CreationDenial::Forbidden(denial, _))) => {
                    return (asked, Some(denial.reason));
                }
                Err(CreationStop::Deny(_)) => return (asked, Some("Invalid")),
                Err(CreationStop::Need(question)) => question,
            };
            assert!(!asked.contains(&question), "{question:?} is asked again");
            match question {
                RequestQuestion::Template => {
                    new.facts.template = Some(Some(Arc::new(template())));
                }
                RequestQuestion::Locks => new.facts.locks = Some(locks(locked)),
                RequestQuestion::Continued(_) => new.facts.continued = Some(None),
                RequestQuestion::Count => new.facts.counted = Some(counted.clone()),
                RequestQuestion::Reviews => new.facts.unreviewed = Some(Vec::new()),
            }
            asked.push(question);
        }
    }

    #[test]
    fn facts_are_asked_for_in_the_order_of_the_rules_until_one_denies() {
        let spec = json!({"templateName": "shell", "reason": "INC-7", "emergency": true});
        let with = |field: &str, value: Value| {
            let mut spec = spec.clone();
            spec[field] = value;
            spec
        };
        let (devs, others) = (requester(&["devs"]), requester(&[]));
        let full = || Err(Denial::new("TooManyRequests", "20 are pending".to_owned()));
        let invalid = with("duration", json!("-5m"));
        let extending = with("extends", json!("first"));
        let first = RequestQuestion::Continued("first".to_owned());
        use RequestQuestion::{Count, Locks, Reviews, Template};
        let known = [Template, Locks];
        let asked = |further: &[RequestQuestion]| [&known[..], further].concat();
        for (spec, (stamped, creator), facts, reason, asked) in [
            (
                &invalid,
                (&devs, &devs),
                ("alice", full()),
                "Invalid",
                Vec::new(),
            ),
            (
                &extending,
                (&others, &devs),
                ("alice", full()),
                "StampOfAnotherRequest",
                Vec::new(),
            ),
            (
                &extending,
                (&others, &others),
                ("alice", full()),
                "Locked",
                asked(&[]),
            ),
            (
                &extending,
                (&others, &others),
                ("bob", full()),
                "EmergencyNotAllowed",
                asked(&[]),
            ),
            (
                &extending,
                (&devs, &devs),
                ("bob", full()),
                "ExtendsNotOwned",
                asked(&[first]),
            ),
            (
                &spec,
                (&devs, &devs),
                ("bob", full()),
                "TooManyRequests",
                asked(&[Count]),
            ),
            (
                &spec,
                (&devs, &devs),
                ("bob", Ok(())),
                "",
                asked(&[Count, Reviews]),
            ),
        ] {
            let object = object(spec, stamped.clone());
            let (questions, denied) = decided(&object, creator, facts);
            assert_eq!(questions, asked, "{reason}");
            assert_eq!(denied.unwrap_or(""), reason);
        }
    }
}
