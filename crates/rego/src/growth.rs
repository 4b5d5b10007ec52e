//! The effect of functions that call each other on values: endless recursion, if one calls itself, and deeper values
//! with each call.

use std::collections::BTreeMap;

use regorus::unstable::Rule;

use crate::error::{CompileError, Reason};

/// The maximum depth that functions may add to a value, including all their calls of each other.
const MAX_GROWTH: u64 = 20_000;

/// The values that the rules of one function create, and the functions that they call.
#[derive(Clone, Default)]
pub(crate) struct Uses {
    file: String,
    line: u32,
    column: u32,
    /// The number of objects, arrays and sets that are created: each makes a value one level deeper.
    pub(crate) makes: u64,
    /// The calls of functions of the policy.
    pub(crate) calls: Vec<String>,
}

impl Uses {
    pub(crate) fn from_rule(rule: &Rule) -> Self {
        let span = rule.span();
        Self {
            file: span.source.get_path().clone(),
            line: span.line,
            column: span.col,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.makes += other.makes;
        self.calls.extend(other.calls);
    }
}

/// The analysis of calls, without recursion.
pub(crate) struct Growth<'a> {
    functions: &'a BTreeMap<String, Uses>,
    /// The depth that a function adds to a value; `None` while its calls are followed.
    done: BTreeMap<&'a str, Option<u64>>,
    errors: Vec<CompileError>,
}

impl<'a> Growth<'a> {
    pub(crate) fn check(functions: &'a BTreeMap<String, Uses>) -> Vec<CompileError> {
        let mut growth = Self {
            functions,
            done: BTreeMap::new(),
            errors: Vec::new(),
        };
        for name in functions.keys() {
            growth.follow(name);
        }
        growth.errors
    }

    fn follow(&mut self, name: &'a str) {
        let mut path = vec![name];
        while let Some(&name) = path.last() {
            if matches!(self.done.get(name), Some(Some(_))) {
                path.pop();
                continue;
            }
            self.done.insert(name, None);
            let Some(uses) = self.functions.get(name) else {
                self.done.insert(name, Some(0));
                continue;
            };
            let mut sum = uses.makes;
            let mut next = None;
            for callee in &uses.calls {
                match self.done.get(callee.as_str()) {
                    Some(Some(growth)) => sum = sum.saturating_add(*growth),
                    // The callee is on the current path already, or is new.
                    Some(None) => self.recursive(uses, &path, callee),
                    None => next = Some(callee.as_str()),
                }
            }
            match next {
                Some(callee) => path.push(callee),
                None => {
                    if sum > MAX_GROWTH {
                        let name = base_name(name);
                        let message =
                            format!("{name} nests its values too deeply, by calls in calls");
                        self.error(uses, Reason::Size, message);
                        // A single report is enough: each caller would get the same error.
                        sum = 0;
                    }
                    self.done.insert(name, Some(sum));
                }
            }
        }
    }

    fn recursive(&mut self, uses: &Uses, path: &[&str], callee: &str) {
        let from = path.iter().position(|name| *name == callee).unwrap_or(0);
        let mut names: Vec<&str> = path[from..].iter().map(|name| base_name(name)).collect();
        names.push(base_name(callee));
        let message = format!("{} is recursive: {}", base_name(callee), names.join(" -> "));
        self.error(uses, Reason::Semantics, message);
    }

    fn error(&mut self, uses: &Uses, reason: Reason, message: String) {
        self.errors.push(CompileError {
            file: uses.file.clone(),
            line: uses.line,
            column: uses.column,
            reason,
            message,
        });
    }
}

fn base_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
