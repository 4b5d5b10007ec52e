//! The settings of a CompositeController in annotations, since its kind is MetaController's and has no fields for them.

use std::collections::BTreeMap;

use oz_api::composite::CompositeController;
use oz_core::validate::Violation;

use super::account::Account;
use super::declared::Declared;
use super::guard::MOST_DELETIONS;
use super::window;

/// The account with which the composite reads and writes, as NAMESPACE/NAME.
pub(super) const RUN_AS: &str = "oz.wizardofoz.co/run-as";
/// The field of a parent with the first instant at which the parent has children.
pub(super) const WINDOW_FROM: &str = "oz.wizardofoz.co/window-from";
/// The field of a parent with the instant until which the parent has children.
pub(super) const WINDOW_UNTIL: &str = "oz.wizardofoz.co/window-until";
/// The maximum number of children that a changed policy may delete.
pub(super) const MAX_DELETIONS: &str = "oz.wizardofoz.co/max-deletions";
/// The mode of writes to children: Enforce or DryRun.
pub(super) const MODE: &str = "oz.wizardofoz.co/mode";

/// Returns the declaration of a CompositeController, with its annotations.
///
/// # Errors
/// All fields that are invalid or not supported yet.
pub(super) fn declared(composite: &CompositeController) -> Result<Declared, Vec<Violation>> {
    let declared = Declared::from_composite(composite)?;
    match &composite.metadata.annotations {
        Some(annotations) => heed(declared, annotations),
        None => Ok(declared),
    }
}

/// Adds the settings of the annotations to the declaration.
fn heed(
    mut declared: Declared,
    annotations: &BTreeMap<String, String>,
) -> Result<Declared, Vec<Violation>> {
    let mut violations = Vec::new();
    let text = |name: &str| annotations.get(name).map(String::as_str);
    let field = |name: &str| format!("metadata.annotations[{name}]");
    let mut wrong = |name: &str, message: String| {
        violations.push(Violation::new(field(name), message));
    };
    if let Some(account) = text(RUN_AS) {
        match account.parse::<Account>() {
            Ok(account) => declared.run_as = Some(account),
            Err(error) => wrong(RUN_AS, error.to_string()),
        }
    }
    if let Some(count) = text(MAX_DELETIONS) {
        match count.parse::<u32>() {
            Ok(count) if count <= MOST_DELETIONS => {
                declared.most_deletions = usize::try_from(count).ok();
            }
            _ => wrong(
                MAX_DELETIONS,
                format!("{count:?} is not from 0 to {MOST_DELETIONS}"),
            ),
        }
    }
    match text(MODE) {
        None | Some("Enforce") => {}
        Some("DryRun") => declared.dry_run = true,
        Some(other) => wrong(MODE, format!("{other:?} is neither Enforce nor DryRun")),
    }
    match (text(WINDOW_FROM), text(WINDOW_UNTIL)) {
        (None, None) => {}
        (Some(_), None) => wrong(
            WINDOW_UNTIL,
            "is missing: a window requires an expiry".to_owned(),
        ),
        (from, Some(until)) => {
            let (first, last) = (field(WINDOW_FROM), field(WINDOW_UNTIL));
            let from = from.map(|from| (first.as_str(), from));
            let until = (last.as_str(), until);
            declared.window = Some(window::checked(from, until, &mut violations));
        }
    }
    if violations.is_empty() {
        Ok(declared)
    } else {
        Err(violations)
    }
}

/// Returns the account that the annotations name, if they name one.
pub(super) fn account(annotations: Option<&BTreeMap<String, String>>) -> Option<Account> {
    annotations?.get(RUN_AS)?.parse().ok()
}
