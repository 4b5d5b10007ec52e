//! AccessPolicies and the conditions of approval rules, compiled and evaluated.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use chrono_tz::Tz;
use jiff::Timestamp;
use kube_cel::cel::{Value, to_value};
use oz_api::{AccessPolicy, AccessPolicySpec};
use oz_core::access::policy::situation::{Active, MAX_BYTES, VARIABLES};
use oz_core::access::policy::{Judgement, Opinion, Situation, combine, too_many};

use crate::expression::first_line;
use crate::{CelError, Expression, Expressions, time};

/// The variables with content that other users wrote.
pub const LARGE: [&str; 6] = [
    "requester",
    "request",
    "template",
    "namespaceLabels",
    "operations",
    "active",
];

/// The input of a judgement.
#[derive(Clone, Debug)]
pub struct Case {
    /// All access policies of the cluster.
    pub policies: Vec<Arc<AccessPolicy>>,
    /// The condition of the template's own rules, if it names one.
    pub when: Option<String>,
    /// Digest of the template, see [`oz_core::access::policy::seen`]; `None` if there is none.
    pub template: Option<String>,
    /// The number of further access policies, which cannot be read.
    pub unreadable: usize,
    /// The situation that the access policies evaluate.
    pub situation: Situation,
}

impl Case {
    /// Returns the judgement if no access policy could be evaluated, for this reason.
    #[must_use]
    pub fn failed(&self, when: Option<Result<bool, impl Display>>, why: &str) -> Judgement {
        self.combined(when, |_| Err(why))
    }

    fn combined<E: Display>(
        &self,
        when: Option<Result<bool, impl Display>>,
        matched: impl Fn(&AccessPolicy) -> Result<bool, E>,
    ) -> Judgement {
        let when = when.map(|when| when.map_err(|why| why.to_string()));
        let opinions: Vec<Opinion<'_, _>> = self
            .policies
            .iter()
            .map(|policy| Opinion {
                policy,
                matched: matched(policy).map_err(|why| why.to_string()),
            })
            .collect();
        combine(self.template.clone(), when, &opinions, self.unreadable)
    }

    /// Checks whether the rules of the template apply; `None` if the template names no condition.
    #[must_use]
    pub fn condition(
        &self,
        expressions: &Expressions,
        until: Instant,
    ) -> Option<Result<bool, CelError>> {
        let when = self.when.as_deref()?;
        let asked = EvaluationContext::new(&self.situation, expressions, until);
        Some(asked.and_then(|asked| asked.holds(when, None)))
    }

    /// Returns the judgement of the access policies, together with the condition of the template's own rules. An
    /// access policy that is not evaluated by `until` has failed.
    #[must_use]
    pub fn judge(
        &self,
        when: Option<Result<bool, impl Display>>,
        expressions: &Expressions,
        until: Instant,
    ) -> Judgement {
        if too_many(self.policies.len()).is_some() {
            return self.failed(when, "there are too many");
        }
        match EvaluationContext::new(&self.situation, expressions, until) {
            Err(why) => self.failed(when, &why.to_string()),
            Ok(asked) => self.combined(when, |policy| {
                let zone = policy.spec.time_zone.as_deref();
                asked.holds(&policy.spec.r#match, zone)
            }),
        }
    }
}

/// The situation, as expressions see it.
struct EvaluationContext<'a> {
    now: Timestamp,
    variables: Vec<(&'static str, Value)>,
    expressions: &'a Expressions,
    until: Instant,
}

impl<'a> EvaluationContext<'a> {
    fn new(
        situation: &Situation,
        expressions: &'a Expressions,
        until: Instant,
    ) -> Result<Self, CelError> {
        Ok(Self {
            now: situation.now,
            variables: variables(situation)?,
            expressions,
            until,
        })
    }

    fn holds(&self, text: &str, zone: Option<&str>) -> Result<bool, CelError> {
        if Instant::now() >= self.until {
            return Err(CelError::TimeIsUp);
        }
        let expression = self.expressions.get_or_compile(text, compile);
        let expression = expression.as_ref().as_ref().map_err(Clone::clone)?;
        let now = time::instant(self.now, time::zone(zone)?)?;
        let mine = self.variables.iter();
        let mine = mine.map(|(name, value)| (*name, value.clone()));
        match expression.evaluate(mine.chain([("now", now)]), self.until)? {
            Value::Bool(holds) => Ok(holds),
            _ => Err(CelError::NotBoolean),
        }
    }
}

/// Compiles an expression of an access policy.
fn compile(text: &str) -> Result<Expression, CelError> {
    let expression = Expression::compile(text, &LARGE)?;
    expression.check_names(&VARIABLES)?;
    Ok(expression)
}

/// Checks the access policy that a user writes, as far as that is possible without a request.
///
/// # Errors
/// The field, and the error in it.
pub fn check(spec: &AccessPolicySpec, until: Instant) -> Result<(), (&'static str, CelError)> {
    let zone = time::zone(spec.time_zone.as_deref()).map_err(|why| ("spec.timeZone", why))?;
    tried(&spec.r#match, zone, until).map_err(|why| ("spec.match", why))
}

/// Checks the condition of a template's approval rules.
///
/// # Errors
/// The reason why the condition cannot be evaluated.
pub fn check_condition(text: &str, until: Instant) -> Result<(), CelError> {
    tried(text, Tz::UTC, until)
}

/// Evaluates an expression once, for an example request. A real request may have values that the example lacks.
fn tried(text: &str, zone: Tz, until: Instant) -> Result<(), CelError> {
    let expression = compile(text)?;
    let example = Situation::example(Timestamp::UNIX_EPOCH);
    let now = time::instant(example.now, zone)?;
    let variables = variables(&example)?.into_iter().chain([("now", now)]);
    match expression.evaluate(variables, until) {
        Ok(Value::Bool(_)) => Ok(()),
        Ok(_) => Err(CelError::MustBeBoolean),
        Err(CelError::Evaluation { line }) if LACKS.iter().any(|lack| line.starts_with(lack)) => {
            Ok(())
        }
        Err(why) => Err(why),
    }
}

/// The beginnings of errors about values that another request may have.
const LACKS: [&str; 2] = ["Index out of bounds", "No such key"];

/// Returns all variables except `now`.
fn variables(situation: &Situation) -> Result<Vec<(&'static str, Value)>, CelError> {
    let size = serde_json::to_vec(&situation.variables).map_or(usize::MAX, |text| text.len());
    if size > MAX_BYTES {
        return Err(CelError::TooLarge { size });
    }
    let mut all = Vec::new();
    for name in LARGE {
        let value = match name {
            "active" => active(&situation.active)?,
            "request" => {
                let mut fields = fields(&situation.variables[name])?;
                fields.insert("duration".to_owned(), time::length(situation.duration)?);
                Value::from(fields)
            }
            _ => value(&situation.variables[name])?,
        };
        all.push((name, value));
    }
    Ok(all)
}

fn active(active: &[Active]) -> Result<Value, CelError> {
    let each = active.iter().map(|one| {
        let plain = serde_json::to_value(one).map_err(|error| CelError::Content {
            line: error.to_string(),
        })?;
        let mut fields = fields(&plain)?;
        fields.insert("until".to_owned(), time::instant(one.until, Tz::UTC)?);
        Ok(Value::from(fields))
    });
    let each: Result<Vec<Value>, CelError> = each.collect();
    Ok(Value::from(each?))
}

fn fields(object: &serde_json::Value) -> Result<HashMap<String, Value>, CelError> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .map(|(name, field)| Ok((name.clone(), value(field)?)))
        .collect()
}

fn value(plain: &serde_json::Value) -> Result<Value, CelError> {
    to_value(plain).map_err(|error| CelError::Content {
        line: first_line(&error.to_string()),
    })
}

#[cfg(test)]
mod tests;
