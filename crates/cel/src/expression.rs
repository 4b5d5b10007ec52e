//! An expression: compiled if it is bounded, and evaluated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kube_cel::cel::{Context, Program, Value};
use oz_core::access::policy::situation::Variable;
use oz_core::connect::policy::{MAX_BYTES, bounded_within};
use parking_lot::Mutex;

use crate::bounds::affordable;
use crate::patterns::Patterns;
use crate::{CelError, UnknownName, names};

/// The maximum number of compiled expressions in the cache.
const KEPT: usize = 512;

/// A compiled expression with a bounded evaluation.
pub struct Expression(Program);

impl Expression {
    /// Compiles a text. `large` names the variables with content that other users wrote: the cost of an expression is
    /// the number of copies that it makes of them.
    ///
    /// # Errors
    /// The bound that the expression exceeds, or the reason why it cannot be parsed, in one line.
    pub fn compile(text: &str, large: &[&str]) -> Result<Self, CelError> {
        Self::compile_within(text, MAX_BYTES, large)
    }

    /// Does the same as [`compile`](Self::compile), for a text of at most `most` bytes.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub(crate) fn compile_within(
        text: &str,
        most: usize,
        large: &[&str],
    ) -> Result<Self, CelError> {
        bounded_within(text, most)?;
        let program = Program::compile(text).map_err(|errors| CelError::Syntax {
            line: first_line(&errors.to_string()),
        })?;
        affordable(program.expression(), large)?;
        Ok(Self(program))
    }

    /// Checks that every variable, field and function exists.
    ///
    /// # Errors
    /// The first one that does not exist.
    pub fn check_names(&self, variables: &[Variable]) -> Result<(), UnknownName> {
        self.check_names_with(variables, &[])
    }

    /// Does the same as [`check_names`](Self::check_names), with functions in addition to those of every expression.
    pub(crate) fn check_names_with(
        &self,
        variables: &[Variable],
        functions: &[&str],
    ) -> Result<(), UnknownName> {
        names::check(self.0.expression(), variables, functions)
    }

    /// Returns the value for these variables. No regular expression is matched after `until`.
    ///
    /// # Errors
    /// The reason why there is no value, in one line.
    pub fn evaluate<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, Value)>,
        until: Instant,
    ) -> Result<Value, CelError> {
        self.evaluate_with(variables, until, |_| {})
    }

    /// Does the same as [`evaluate`](Self::evaluate), with functions that `add` adds.
    pub(crate) fn evaluate_with<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, Value)>,
        until: Instant,
        add: impl FnOnce(&mut Context<'_>),
    ) -> Result<Value, CelError> {
        let mut context = Context::default();
        add(&mut context);
        context.add_function("matches", Patterns::new(until).matching());
        for (name, value) in variables {
            context.add_variable_from_value(name, value);
        }
        let value = self.0.execute(&context);
        value.map_err(|error| CelError::Evaluation {
            line: first_line(&error.to_string()),
        })
    }
}

/// A cache of compiled expressions by their texts. Each is compiled once.
#[derive(Clone, Default)]
pub struct Expressions(Arc<Mutex<HashMap<String, Arc<Compiled>>>>);

type Compiled = Result<Expression, CelError>;

impl Expressions {
    /// Returns the expression of a text. The same text has the same large variables wherever it is compiled.
    #[must_use]
    pub fn get_or_compile(
        &self,
        text: &str,
        compile: impl FnOnce(&str) -> Compiled,
    ) -> Arc<Compiled> {
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

/// Returns the first line of an error, shortened. Errors of the library can be pages long, and contain the input.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.into_iter().flat_map(str::chars).take(200).collect()
}
