//! Compares arrays and objects with the rules for them.

use std::collections::BTreeMap;
use std::rc::Rc;

use regorus::Value;

use super::fault::{Fault, Path};
use super::object::{fields, get};
use super::outcome::{Best, Outcome};
use super::rules::{Additional, Arrays, Id, Items, Objects};
use super::validate::{Step, Validator, below, length};

impl<'s> Validator<'s> {
    pub(super) fn arrays(
        &mut self,
        rules: &'s Arrays,
        items: &[&'s Value],
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        self.items(rules, items, path, outcome)?;
        let count = length(items.len());
        if let Some(min) = rules.min.filter(|min| count < *min) {
            outcome.add(path, Fault::MinItems(min));
        }
        if let Some(max) = rules.max.filter(|max| count > *max) {
            outcome.add(path, Fault::MaxItems(max));
        }
        if rules.unique {
            let mut seen = BTreeMap::new();
            for (at, item) in items.iter().enumerate() {
                if let Some(before) = seen.insert(item, at) {
                    outcome.add(path, Fault::Unique(before, at));
                }
            }
        }
        if let Some(contains) = rules.contains {
            self.contains(contains, items, path, outcome)?;
        }
        outcome.score += 1;
        Ok(())
    }

    fn items(
        &mut self,
        rules: &'s Arrays,
        items: &[&'s Value],
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let first: &[Id] = match &rules.items {
            Items::First(first) => first,
            Items::Any | Items::Each(_) => &[],
        };
        for (at, item) in items.iter().enumerate() {
            let id = match (&rules.items, first.get(at), &rules.additional) {
                (Items::Each(id), ..) | (_, Some(id), _) => *id,
                (_, None, Additional::Schema(id)) if !first.is_empty() => *id,
                _ => continue,
            };
            let one = self.separate(id, item, &below(path, &at.to_string()))?;
            outcome.merge(one);
        }
        let has_more = !first.is_empty() && first.len() < items.len();
        if has_more && matches!(rules.additional, Additional::None) {
            outcome.add(path, Fault::AdditionalItems);
        }
        Ok(())
    }

    fn contains(
        &mut self,
        id: Id,
        items: &[&'s Value],
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let mut best = Best::default();
        for (at, item) in items.iter().enumerate() {
            let one = self.separate(id, item, &below(path, &at.to_string()))?;
            if one.is_valid() {
                return Ok(());
            }
            best.offer(one);
        }
        outcome.add(path, Fault::Contains);
        if let Some(best) = best.0 {
            outcome.merge(best);
        }
        Ok(())
    }

    pub(super) fn objects(
        &mut self,
        rules: &'s Objects,
        object: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let count = length(object.as_object().map_or(0, |fields| fields.len()));
        if let Some(min) = rules.min.filter(|min| count < *min) {
            outcome.add(path, Fault::MinProperties(min));
        }
        if let Some(max) = rules.max.filter(|max| count > *max) {
            outcome.add(path, Fault::MaxProperties(max));
        }
        self.spend(rules.required.len())?;
        for key in &rules.required {
            match get(object, key) {
                Some(_) => outcome.score += 1,
                None => outcome.add(path, Fault::Required(key)),
            }
        }
        for (key, value) in fields(object) {
            self.property(rules, (key, value), path, outcome)?;
        }
        if let Some(names) = rules.names {
            self.names(names, object, path, outcome)?;
        }
        outcome.score += 1;
        Ok(())
    }

    /// Compares a field with the rules for fields that `properties` does not describe.
    fn property(
        &mut self,
        rules: &'s Objects,
        (key, value): (&'s str, &'s Value),
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        self.spend(rules.patterns.len())?;
        let mut is_described = false;
        for (regex, id) in &rules.patterns {
            if regex.is_match(key) {
                is_described = true;
                let one = self.separate(*id, value, &below(path, key))?;
                outcome.merge(one);
            }
        }
        outcome.score += i64::from(is_described);
        // The properties are sorted.
        let properties = &rules.properties;
        let found = properties.binary_search_by(|(name, _)| name.as_str().cmp(key));
        if is_described || found.is_ok() {
            return Ok(());
        }
        match rules.additional {
            Additional::Any => {}
            Additional::None => outcome.add(path, Fault::AdditionalProperty(key)),
            Additional::Schema(id) => {
                let one = self.separate(id, value, &below(path, key))?;
                outcome.merge(one);
            }
        }
        Ok(())
    }

    fn names(
        &mut self,
        id: Id,
        object: &'s Value,
        path: &Rc<Path>,
        outcome: &mut Outcome<'s>,
    ) -> Step {
        let all = object.as_object().into_iter();
        for (name, _) in all.flat_map(|fields| fields.iter_sorted()) {
            let one = self.separate(id, name, path)?;
            if let (false, Value::String(key)) = (one.is_valid(), name) {
                outcome.add(path, Fault::PropertyName(key));
                outcome.merge(one);
            }
        }
        Ok(())
    }
}
