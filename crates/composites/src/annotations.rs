//! What a CompositeController says by annotations, since its kind is MetaController's and has no fields for it.

use std::collections::BTreeMap;

use oz_api::composite::CompositeController;
use oz_core::validate::Violation;

use super::account::Account;
use super::declared::Declared;
use super::guard::MOST_DELETIONS;
use super::window;

/// As whom it reads and writes, as NAMESPACE/NAME.
pub(super) const RUN_AS: &str = "oz.wizardofoz.co/run-as";
/// The field of a parent with the first instant at which it has children.
pub(super) const WINDOW_FROM: &str = "oz.wizardofoz.co/window-from";
/// The field of a parent with the instant until which it has children.
pub(super) const WINDOW_UNTIL: &str = "oz.wizardofoz.co/window-until";
/// How many children a policy that has changed may delete.
pub(super) const MAX_DELETIONS: &str = "oz.wizardofoz.co/max-deletions";
/// Whether children are written: Enforce or DryRun.
pub(super) const MODE: &str = "oz.wizardofoz.co/mode";

/// What a CompositeController declares, with its annotations.
///
/// # Errors
/// All that is wrong with it, or is not done yet.
pub(super) fn declared(composite: &CompositeController) -> Result<Declared, Vec<Violation>> {
    let declared = Declared::of(composite)?;
    match &composite.metadata.annotations {
        Some(annotations) => heed(declared, annotations),
        None => Ok(declared),
    }
}

/// Adds what the annotations say to what is declared.
fn heed(
    mut declared: Declared,
    annotations: &BTreeMap<String, String>,
) -> Result<Declared, Vec<Violation>> {
    let mut violations = Vec::new();
    let text = |name: &str| annotations.get(name).map(String::as_str);
    let field = |name: &str| format!("metadata.annotations[{name}]");
    let mut wrong = |name: &str, message: String| {
        violations.push(Violation::of(field(name), message));
    };
    if let Some(account) = text(RUN_AS) {
        match account.parse::<Account>() {
            Ok(account) => declared.run_as = Some(account),
            Err(error) => wrong(RUN_AS, error),
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
        (Some(_), None) => wrong(WINDOW_UNTIL, "is missing: a window has an end".to_owned()),
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

/// The account that they name, if they name one.
pub(super) fn account(annotations: Option<&BTreeMap<String, String>>) -> Option<Account> {
    annotations?.get(RUN_AS)?.parse().ok()
}
