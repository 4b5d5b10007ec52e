//! The rules of every kind, for an object in a file: those of access, of harness runs and of composites, from three
//! crates. Rules that depend on other objects are not among them, such as the existence of a template's base.

use jiff::Timestamp;
use oz_api::harness::{ClusterHarnessTemplate, HarnessTemplate, TemplateKind};
use oz_composites::Source as _;
use oz_core::for_each_kind;
use oz_core::kinds::{Entry, Kind, Rules as _};
use oz_core::validate::Violation;
use oz_runs::admission;
use serde_json::{Error, Value};

type Check = fn(Value, Timestamp) -> Result<Vec<Violation>, Error>;

/// Returns the violations of an object of a kind that is created `now`, as far as they are detectable from the object
/// alone.
///
/// # Errors
/// If the value is not an object of this kind.
pub fn check(kind: &Entry, object: Value, now: Timestamp) -> Result<Vec<Violation>, Error> {
    let all = checks();
    let own = all.into_iter().find(|(name, _)| *name == kind.name);
    own.map_or_else(|| Ok(Vec::new()), |(_, check)| check(object, now))
}

/// Returns the check of each kind, with the kind's [`Kind::NAME`].
fn checks() -> Vec<(&'static str, Check)> {
    let mut all: Vec<(&'static str, Check)> = Vec::new();
    for_each_kind!(of_access K => {
        all.push((K::NAME, |object, now| Ok(read::<K>(object)?.violations(now))));
    });
    for_each_kind!(runs K => {
        all.push((K::NAME, |object, _| Ok(admission::run(&read::<K>(object)?))));
    });
    for_each_kind!(workspaces K => {
        all.push((K::NAME, |object, _| Ok(admission::workspace(&read::<K>(object)?))));
    });
    for_each_kind!(run_policies K => {
        all.push((K::NAME, |object, now| {
            Ok(admission::policy(&read::<K>(object)?, None, now))
        }));
    });
    all.push((HarnessTemplate::NAME, |object, _| {
        let template = read::<HarnessTemplate>(object)?;
        Ok(admission::template(
            TemplateKind::HarnessTemplate,
            &template.spec,
        ))
    }));
    all.push((ClusterHarnessTemplate::NAME, |object, _| {
        let template = read::<ClusterHarnessTemplate>(object)?;
        Ok(admission::template(
            TemplateKind::ClusterHarnessTemplate,
            &template.spec.0,
        ))
    }));
    for_each_kind!(composites K => {
        all.push((K::NAME, |object, _| {
            let violations = read::<K>(object)?.declared().err();
            Ok(violations.into_iter().flatten().collect())
        }));
    });
    all
}

fn read<K: Kind>(object: Value) -> Result<K, Error> {
    serde_json::from_value(object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oz_core::kinds;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_the_registry_has_one_check() {
        let checks = checks();
        let checked: BTreeSet<&str> = checks.iter().map(|(name, _)| *name).collect();
        let registered: BTreeSet<&str> = kinds::all().iter().map(|kind| kind.name).collect();
        assert_eq!(checked, registered);
        assert_eq!(checks.len(), registered.len());
    }

    #[test]
    fn value_that_is_no_object_of_its_kind_is_an_error() {
        for kind in kinds::all() {
            let value = json!({"metadata": 1});
            assert!(
                check(&kind, value, Timestamp::UNIX_EPOCH).is_err(),
                "{}",
                kind.name
            );
        }
    }
}
