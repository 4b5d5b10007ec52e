//! The built-in functions of policies: the interpreter's, where they answer as OPA's do, and functions of this crate
//! for all others. Their results are bounded.

mod aws;
mod bounds;
mod cidr;
mod collections;
mod crypto;
mod float;
mod globs;
mod interpreter;
mod operand;
mod pattern;
mod plain;
mod regexes;
mod rego_text;
mod rego_tree;
mod schema;
mod semver;
mod sprintf;
mod strings;
mod table;
mod template;
mod time;
mod units;
mod uri;
mod uuid;
mod yaml;
mod yaml_text;

pub(crate) use yaml::document as yaml_document;

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail};
use regorus::unstable::BUILTINS;
use regorus::{Engine, Value};

use self::operand::{Answer, Failure};
use self::table::{CHECKED, OWN};
use crate::language::Language;

pub(crate) use self::bounds::has_large_exponent;

/// The beginning of this crate's errors, within any text of the interpreter.
pub(crate) const STOPPED: &str = "the policy was stopped: ";

const CLOCK: &str = "time.now_ns";

/// Checks whether the interpreter does not have a function, and so does not know the number of its parameters.
pub(crate) fn is_new(name: &str) -> bool {
    !BUILTINS.contains_key(name) && OWN.iter().any(|own| own.name == name)
}

/// Returns the names of all functions of the registry.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let own = OWN.iter().map(|own| own.name);
    BUILTINS.keys().copied().chain(own)
}

/// Returns the number of parameters of a built-in function, if it exists in that language.
pub(crate) fn arity(name: &str, language: Language) -> Option<u8> {
    let own = OWN.iter().find(|own| own.name == name);
    match own {
        Some(own) if own.only_v0 && language == Language::V1 => None,
        Some(own) => Some(own.arity),
        // The interpreter's functions for its operators are no functions of OPA.
        None if name.starts_with("__") => None,
        None => BUILTINS.get(name).map(|(_, arity)| *arity),
    }
}

/// Adds functions to an engine that has none of them yet: those of these names.
pub(crate) fn add(engine: &mut Engine, names: &BTreeSet<String>, strict: bool) -> Result<()> {
    for name in names {
        // The clock is added with its instant. The results of `trace` are lines that nobody reads.
        if name == CLOCK || name == "trace" {
            continue;
        }
        let Some(arity) = arity(name, Language::V0) else {
            continue;
        };
        let Some(function) = Function::find(name) else {
            continue;
        };
        let call = move |values: Vec<Value>| extension(&function, &values, strict);
        engine.add_extension(name.clone(), arity, Box::new(call))?;
    }
    Ok(())
}

/// Sets the instant of an engine, once: nanoseconds since 1970. The interpreter's own function would read the system's
/// clock wherever a `with` does not reach, as in a function that replaces another.
pub(crate) fn set_clock(engine: &mut Engine, now: i64) -> Result<()> {
    let clock = move |_: Vec<Value>| Ok(Value::from(now));
    engine.add_extension(CLOCK.to_owned(), 0, Box::new(clock))
}

/// A built-in function, found once for a policy.
#[derive(Clone, Copy)]
struct Function {
    name: &'static str,
    size: Option<bounds::Judge>,
    check: Option<table::Check>,
    /// The function of this crate; otherwise it is the interpreter's.
    own: Option<fn(&[Value]) -> Answer>,
}

impl Function {
    fn find(name: &str) -> Option<Self> {
        let own = OWN.iter().find(|own| own.name == name);
        let checked = CHECKED.iter().find(|(checked, _)| *checked == name);
        let name = match own {
            Some(own) => own.name,
            None => BUILTINS.get_key_value(name).map(|(name, _)| *name)?,
        };
        Some(Self {
            name,
            size: bounds::find_judge(name),
            check: checked.map(|(_, check)| *check),
            own: own.map(|own| own.call),
        })
    }

    /// Calls the function within its bounds.
    fn call(&self, values: &[Value]) -> Answer {
        if let Some(size) = self.size {
            size(values)?;
        }
        if let Some(check) = self.check {
            check(values)?;
        }
        match self.own {
            Some(own) => own(values),
            None => interpreter::call(self.name, values),
        }
    }
}

fn extension(function: &Function, values: &[Value], strict: bool) -> Result<Value> {
    let name = function.name;
    match function.call(values) {
        Ok(value) => Ok(value),
        Err(Failure::Undefined) => Ok(Value::Undefined),
        // As in OPA, a failure of a function is undefined.
        Err(Failure::Failed(_)) if !strict => Ok(Value::Undefined),
        Err(Failure::Failed(message)) => Err(anyhow!("{name}: {message}")),
        Err(Failure::Excess(excess)) => bail!("{STOPPED}{name} would make {excess}"),
        Err(Failure::Panic) => bail!("{name} panicked (please report)"),
    }
}
