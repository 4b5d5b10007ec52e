//! The body of a notification of the format Custom, which an expression of the route gives. The expression is evaluated
//! on a separate thread, by the task that sends: no decision waits for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use oz_cel::CelError;
use oz_cel::body::{Variables, compile, evaluate};
use oz_outbound::{OutboundError, read};
use serde_json::Value;

/// The timeout for the compilation at the start.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for one evaluation.
const EVALUATE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why there is no body.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The expression has no value for this record, and will have none.
    #[error("body cannot be evaluated: {0}")]
    Never(CelError),
    /// The expression was not evaluated.
    #[error("body was not evaluated: {0}")]
    Later(CelError),
    /// A value of the Secret cannot be read.
    #[error(transparent)]
    Secret(#[from] OutboundError),
}

/// Checks the expression of a route.
///
/// # Errors
/// The reason why it cannot be evaluated.
pub(super) fn check(text: &str) -> Result<(), CelError> {
    let text = text.to_owned();
    let compiled = oz_cel::apart(COMPILE_TIMEOUT, move || compile(&text).map(drop));
    compiled.and_then(|compiled| compiled)
}

/// Returns the values of a Secret for an expression, from the directory of the Secret.
///
/// # Errors
/// A value cannot be read.
pub(super) fn secret(
    values: &BTreeMap<String, String>,
    directory: &Path,
) -> Result<Value, OutboundError> {
    let mut secret = serde_json::Map::new();
    for (name, key) in values {
        let value = read(&directory.join(key))?;
        secret.insert(name.clone(), value.trim().into());
    }
    Ok(secret.into())
}

/// Returns the body that an expression gives.
///
/// # Errors
/// The reason why there is none.
pub(super) async fn evaluated(text: &str, variables: Variables) -> Result<Vec<u8>, BodyError> {
    let text = text.to_owned();
    let work = move || {
        let until = Instant::now() + EVALUATE_TIMEOUT;
        let evaluated = move || evaluate(&text, &variables, until);
        oz_cel::apart(EVALUATE_TIMEOUT, evaluated).and_then(|body| body)
    };
    let evaluated = tokio::task::spawn_blocking(work).await;
    let evaluated = evaluated.unwrap_or(Err(CelError::Failed));
    evaluated.map_err(|why| match why {
        CelError::NoAnswer { .. } | CelError::NoThread { .. } | CelError::TimeIsUp => {
            BodyError::Later(why)
        }
        why => BodyError::Never(why),
    })
}
