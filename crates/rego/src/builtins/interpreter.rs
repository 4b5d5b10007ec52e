//! Calls of the interpreter's own functions. A panic in one of them is an error of its evaluation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use regorus::unstable::{BUILTINS, Expr, Ref, Span};
use regorus::{Source, Value};

use super::operand::{Answer, Failure};

/// Calls a function; its errors are failures.
pub(super) fn call(name: &str, values: &[Value]) -> Answer {
    let Some((function, _)) = BUILTINS.get(name) else {
        return Err(Failure::Undefined);
    };
    let (span, arguments) = &*NOWHERE;
    let arguments = &arguments[..values.len().min(arguments.len())];
    let called = catch_unwind(AssertUnwindSafe(|| function(span, arguments, values, true)));
    match called {
        Ok(Ok(Value::Undefined)) => Err(Failure::Undefined),
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let text = error.to_string();
            let message = crate::error::Location::parse(&text).message;
            Err(Failure::Failed(message))
        }
        Err(_) => Err(Failure::Panic),
    }
}

/// A placeholder for the position of a call; the interpreter adds the real position to errors.
static NOWHERE: LazyLock<(Span, Vec<Ref<Expr>>)> = LazyLock::new(|| {
    let source = Source::from_contents("built-in".to_owned(), "_".to_owned());
    let source = source.unwrap_or_else(|error| unreachable!("one character is a source: {error}"));
    let span = Span {
        source,
        line: 1,
        col: 1,
        start: 0,
        end: 1,
    };
    let argument = || {
        Ref::new(Expr::Null {
            span: span.clone(),
            value: Value::Null,
            eidx: 0,
        })
    };
    let arguments = (0..8).map(|_| argument()).collect();
    (span, arguments)
});
