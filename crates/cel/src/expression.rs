//! One expression: compiled if it is bounded, and evaluated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube_cel::cel::{Context, Program, Value};
use oz_core::access::policy::situation::Variable;
use oz_core::connect::policy::bounded;
use parking_lot::Mutex;

use crate::bounds::affordable;
use crate::names;
use crate::patterns::Patterns;

/// Compiled expressions that are kept.
const KEPT: usize = 512;

/// A compiled expression, whose evaluation is bounded.
pub struct Expression(Program);

impl Expression {
    /// Compiles a text. `large` names the variables that hold what others wrote: how many copies of these
    /// the expression makes is what it costs.
    ///
    /// # Errors
    /// The bound that it exceeds, or why it cannot be parsed, in one line.
    pub fn compile(text: &str, large: &[&str]) -> Result<Self, String> {
        bounded(text).map_err(|excess| excess.to_string())?;
        let program = Program::compile(text).map_err(|errors| first_line(&errors.to_string()))?;
        affordable(program.expression(), large).map_err(|excess| excess.to_string())?;
        Ok(Self(program))
    }

    /// The first variable, field or function that there is not.
    #[must_use]
    pub fn unknown(&self, variables: &[Variable]) -> Option<String> {
        names::unknown(self.0.expression(), variables)
    }

    /// What it gives for these variables. Regular expressions are not looked for after `until`.
    ///
    /// # Errors
    /// Why it gives nothing, in one line.
    pub fn evaluate<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, Value)>,
        until: Instant,
    ) -> Result<Value, String> {
        let mut context = Context::default();
        context.add_function("matches", Patterns::new(until).matching());
        for (name, value) in variables {
            context.add_variable_from_value(name, value);
        }
        let value = self.0.execute(&context);
        value.map_err(|error| first_line(&error.to_string()))
    }
}

/// Expressions by their texts, compiled once.
#[derive(Clone, Default)]
pub struct Expressions(Arc<Mutex<HashMap<String, Arc<Compiled>>>>);

type Compiled = Result<Expression, String>;

impl Expressions {
    /// The expression of a text. The same text has the same large variables wherever it is compiled.
    #[must_use]
    pub fn of(&self, text: &str, compile: impl FnOnce(&str) -> Compiled) -> Arc<Compiled> {
        let known = || self.0.lock();
        let found = known().get(text).cloned();
        found.unwrap_or_else(|| {
            let compiled = Arc::new(compile(text));
            let mut known = known();
            if known.len() >= KEPT {
                known.clear();
            }
            known.insert(text.to_owned(), Arc::clone(&compiled));
            compiled
        })
    }
}

/// Errors of the library can be pages long, and hold what was asked about.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().chars().take(200).collect()
}
