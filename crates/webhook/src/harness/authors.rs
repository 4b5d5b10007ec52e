//! The checks whether an author has the rights for the actions and reads of oz on the author's
//! behalf: the webhook asks the API server's own authorization, for the user that the API server
//! authenticated.

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use oz_admission::{Rejection, UserInfo};
use oz_runs::admission::Named;

use crate::permission;

/// The maximum number of concurrent checks.
const AT_ONCE: usize = 32;

/// Denies an object that names Secrets or ConfigMaps of the namespace that the user may not get;
/// the denial lists all of them.
///
/// # Errors
/// The denial, or the failure of a check.
pub(super) async fn may_get(
    client: &Client,
    user: &UserInfo,
    namespace: &str,
    named: &[Named],
) -> Result<(), Rejection> {
    // Each object is checked once, however often it is named.
    let mut distinct: Vec<&Named> = Vec::new();
    for one in named {
        if !distinct.iter().any(|known| is_same(known, one)) {
            distinct.push(one);
        }
    }
    let mut refused: Vec<&Named> = Vec::new();
    for some in distinct.chunks(AT_ONCE) {
        let answers = some.iter().map(async |one| {
            let allowed = permission::may(client, user, gets(namespace, one)).await?;
            Ok::<_, Rejection>((*one, allowed))
        });
        let answers = try_join_all(answers).await?;
        let denied = answers.into_iter().filter(|(_, allowed)| !allowed);
        refused.extend(denied.map(|(one, _)| one));
    }
    if refused.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = refused
        .iter()
        .map(|one| format!("get {} {} ({})", one.kind, one.name, one.field))
        .collect();
    let message = format!(
        "{} may not {} in namespace {namespace}, and oz would read this for the author; have a \
            user with these rights create or change it",
        user.username,
        all.join(", ")
    );
    let rejection = Rejection::forbidden("MissingPermission", message);
    Err(refused.iter().fold(rejection, |rejection, one| {
        let message = format!("{} may not get {} {}", user.username, one.kind, one.name);
        rejection.cause(one.field.clone(), "FieldValueForbidden", message)
    }))
}

/// Denies an object with which oz would do for the user an action for which the user has no right.
///
/// # Errors
/// The denial, or the failure of the check.
pub(super) async fn may_do(
    client: &Client,
    user: &UserInfo,
    right: ResourceAttributes,
    words: &str,
) -> Result<(), Rejection> {
    if permission::may(client, user, right).await? {
        return Ok(());
    }
    let message = format!(
        "{} may not {words}, and runs of this template would do that; have a user with these \
            rights create or change it",
        user.username
    );
    Err(Rejection::forbidden("MissingPermission", message))
}

fn is_same(one: &Named, other: &Named) -> bool {
    one.kind == other.kind && one.name == other.name
}

fn gets(namespace: &str, one: &Named) -> ResourceAttributes {
    ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some("get".to_owned()),
        resource: Some(one.kind.plural().to_owned()),
        name: Some(one.name.clone()),
        ..ResourceAttributes::default()
    }
}
