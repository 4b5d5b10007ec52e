//! Compares a document with a compiled schema. The score of an alternative decides which one of several explains best
//! why none of them fits, as in OPA.

use std::rc::Rc;

use regorus::Value;

use super::super::bounds::{Excess, MAX_ITEMS};
use super::super::operand::Failure;
use super::fault::{Fault, Found, Path};
use super::object::get;
use super::outcome::{Best, Outcome};
use super::rules::{
    Combined, Common, Dependency, Id, MAX_DEPTH, Node, Nodes, Numbers, Rules, Texts,
};
use super::{formats, number};

/// The maximum number of steps of one call.
const MAX_STEPS: usize = 10 * MAX_ITEMS;

/// The result of one step; a failure ends the call.
pub(super) type Step = Result<(), Failure>;

/// The comparison of one document.
pub(super) struct Validator<'s> {
    nodes: &'s Nodes,
    steps: usize,
    depth: usize,
}

impl<'s> Validator<'s> {
    /// Returns the violations of a document.
    pub(super) fn run(nodes: &'s Nodes, document: &'s Value) -> Result<Vec<Found<'s>>, Failure> {
        let mut validator = Self {
            nodes,
            steps: 0,
            depth: 0,
        };
        let outcome = validator.separate(0, document, &Path::root())?;
        Ok(outcome.found)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Step {
        self.steps += steps;
        if self.steps > MAX_STEPS {
            return Err(Excess::Steps.into());
        }
        Ok(())
    }

    /// Compares a value, with a separate outcome.
    pub(super) fn separate(
        &mut self,
        id: Id,
        value: &'s Value,
        path: &Rc<Path>,
    ) -> Result<Outcome<'s>, Failure> {
        let mut outcome = Outcome::default();
        self.value(id, value, path, &mut outcome)?;
        Ok(outcome)
    }

    fn value(
        &mut self,
        id: Id,
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        self.spend(1)?;
        if self.depth > MAX_DEPTH {
            return Err(Excess::Depth.into());
        }
        self.depth += 1;
        match &self.nodes[id] {
            Node::Pass(true) => {}
            Node::Pass(false) => outcome.add(path, Fault::False),
            Node::Reference(id) => self.value(*id, value, path, outcome)?,
            Node::Rules(rules) => self.rules(rules, value, path, outcome)?,
        }
        self.depth -= 1;
        Ok(())
    }

    fn rules(
        &mut self,
        rules: &'s Rules,
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let (given, wider) = type_of(value);
        let types = &rules.types;
        if !types.is_empty() && !types.contains(&given) && !types.contains(&wider) {
            outcome.add(path, Fault::Type(types, given));
            return Ok(());
        }
        self.combined(&rules.combined, value, path, outcome)?;
        match value {
            Value::Number(_) => numbers(&rules.numbers, value, path, outcome),
            Value::Array(items) => {
                let items: Vec<&Value> = items.iter().collect();
                self.arrays(&rules.arrays, &items, path, outcome)?;
            }
            Value::Object(_) => self.objects(&rules.objects, value, path, outcome)?,
            _ => {}
        }
        self.common(&rules.common, value, path, outcome)?;
        if let Value::String(text) = value {
            texts(&rules.texts, text, path, outcome);
        }
        for (key, id) in &rules.objects.properties {
            if let Some(value) = get(value, key) {
                self.value(*id, value, &below(path, key), outcome)?;
            }
        }
        outcome.score += 1;
        Ok(())
    }

    fn combined(
        &mut self,
        rules: &'s Combined,
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        self.any_of(&rules.any_of, value, path, outcome)?;
        self.one_of(&rules.one_of, value, path, outcome)?;
        let mut all_fit = true;
        for id in &rules.all_of {
            let one = self.separate(*id, value, path)?;
            all_fit &= one.is_valid();
            outcome.merge(one);
        }
        if !all_fit {
            outcome.add(path, Fault::AllOf);
        }
        if let Some(not) = rules.not
            && self.separate(not, value, path)?.is_valid()
        {
            outcome.add(path, Fault::Not);
        }
        self.dependencies(&rules.dependencies, value, path, outcome)?;
        self.condition(rules, value, path, outcome)?;
        outcome.score += 1;
        Ok(())
    }

    fn any_of(
        &mut self,
        alternatives: &[Id],
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let mut best = Best::default();
        for id in alternatives {
            let one = self.separate(*id, value, path)?;
            if one.is_valid() {
                return Ok(());
            }
            best.offer(one);
        }
        if let Some(best) = best.0 {
            outcome.add(path, Fault::AnyOf);
            outcome.merge(best);
        }
        Ok(())
    }

    fn one_of(
        &mut self,
        alternatives: &[Id],
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let (mut best, mut valid) = (Best::default(), 0);
        for id in alternatives {
            let one = self.separate(*id, value, path)?;
            if one.is_valid() {
                valid += 1;
            } else if valid == 0 {
                best.offer(one);
            }
        }
        if !alternatives.is_empty() && valid != 1 {
            outcome.add(path, Fault::OneOf);
            if let Some(best) = best.0.filter(|_| valid == 0) {
                outcome.merge(best);
            }
        }
        Ok(())
    }

    fn dependencies(
        &mut self,
        dependencies: &'s [(String, Dependency)],
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        for (key, dependency) in dependencies {
            if get(value, key).is_none() {
                continue;
            }
            match dependency {
                Dependency::Schema(id) => self.value(*id, value, path, outcome)?,
                Dependency::Keys(keys) => {
                    self.spend(keys.len())?;
                    for key in keys.iter().filter(|key| get(value, key).is_none()) {
                        outcome.add(path, Fault::Dependency(key));
                    }
                }
            }
        }
        Ok(())
    }

    fn condition(
        &mut self,
        rules: &'s Combined,
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let Some(condition) = rules.condition else {
            return Ok(());
        };
        let holds = self.separate(condition, value, path)?.is_valid();
        let (next, fault) = match holds {
            true => (rules.then, Fault::Then),
            false => (rules.otherwise, Fault::Else),
        };
        if let Some(next) = next {
            let next = self.separate(next, value, path)?;
            if !next.is_valid() {
                outcome.add(path, fault);
                outcome.merge(next);
            }
        }
        Ok(())
    }

    fn common(
        &mut self,
        rules: &'s Common,
        value: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        if let Some(constant) = &rules.constant
            && constant != value
        {
            outcome.add(path, Fault::Const(constant));
        }
        if let Some(allowed) = &rules.allowed {
            self.spend(allowed.len())?;
            if !allowed.contains(value) {
                outcome.add(path, Fault::Enum(allowed));
            }
        }
        if let (Some(format), Value::String(text)) = (&rules.format, value)
            && !formats::is_format(format, text)
        {
            outcome.add(path, Fault::Format(format));
        }
        outcome.score += 1;
        Ok(())
    }
}

/// Returns the type of a value, and the type to which it belongs, too.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Number(_) if number::is_whole(value) => ("integer", "number"),
        other => {
            let kind = super::super::operand::kind(other);
            (kind, kind)
        }
    }
}

pub(super) fn below(path: &Rc<Path>, name: &str) -> Rc<Path> {
    Rc::new(Path {
        name: name.to_owned(),
        parent: Some(Rc::clone(path)),
    })
}

pub(super) fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn numbers<'s>(rules: &'s Numbers, value: &Value, path: &Rc<Path>, outcome: &mut Outcome<'s>) {
    if let Some(of) = &rules.multiple_of
        && !number::is_multiple(value, of)
    {
        outcome.add(path, Fault::MultipleOf(of));
    }
    if let Some(max) = rules.maximum.as_ref().filter(|max| value > *max) {
        outcome.add(path, Fault::Maximum(max));
    }
    if let Some(max) = rules.below.as_ref().filter(|max| value >= *max) {
        outcome.add(path, Fault::Below(max));
    }
    if let Some(min) = rules.minimum.as_ref().filter(|min| value < *min) {
        outcome.add(path, Fault::Minimum(min));
    }
    if let Some(min) = rules.above.as_ref().filter(|min| value <= *min) {
        outcome.add(path, Fault::Above(min));
    }
    outcome.score += 1;
}

fn texts<'s>(rules: &'s Texts, text: &str, path: &Rc<Path>, outcome: &mut Outcome<'s>) {
    let count = length(text.chars().count());
    if let Some(min) = rules.min.filter(|min| count < *min) {
        outcome.add(path, Fault::MinLength(min));
    }
    if let Some(max) = rules.max.filter(|max| count > *max) {
        outcome.add(path, Fault::MaxLength(max));
    }
    if let Some((pattern, regex)) = &rules.pattern
        && !regex.is_match(text)
    {
        outcome.add(path, Fault::Pattern(pattern));
    }
    outcome.score += 1;
}
