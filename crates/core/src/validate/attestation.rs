//! Validation of attestations about the list of users who could get access.

use oz_api::{AccessReviewSpec, Attestation, MOST_REMOVALS, encode};

use super::text::{plain, readable};
use super::{Found, Violation};

const FIELD: &str = "spec.attestation";

/// Returns the violations of the rationale for keeping or removing a line.
#[must_use]
pub fn rationale(field: &str, text: &str) -> Vec<Violation> {
    let mut found = Found::default();
    plain(field, text, &mut found);
    found.0
}

/// Adds the violations of an attestation: its counts must add up, its texts must be readable, and the spec
/// must have no other field.
pub(super) fn check(spec: &AccessReviewSpec, found: &mut Found) {
    let Some(attestation) = &spec.attestation else {
        return;
    };
    let alone = AccessReviewSpec {
        attestation: spec.attestation.clone(),
        ..AccessReviewSpec::default()
    };
    if *spec != alone {
        found.add(
            FIELD,
            "must be the only field of the spec of an attestation",
        );
    }
    for (name, digest) in [
        ("entitlements", &attestation.entitlements),
        ("file", &attestation.file),
    ] {
        if !encode::is_digest(digest) {
            let message = "must be a digest: sha256: and 64 hexadecimal digits";
            found.add(&format!("{FIELD}.{name}"), message);
        }
    }
    counts(attestation, found);
    for (at, removal) in attestation.removals.iter().enumerate() {
        let field = format!("{FIELD}.removals[{at}]");
        let entitlement = format!("{field}.entitlement");
        if removal.entitlement.trim().is_empty() {
            found.add(&entitlement, "must name the rights to be removed");
        }
        found.0.extend(readable(&entitlement, &removal.entitlement));
        plain(&format!("{field}.rationale"), &removal.rationale, found);
    }
}

fn counts(attestation: &Attestation, found: &mut Found) {
    let Attestation {
        kept,
        removed,
        gaps,
        removals,
        ..
    } = attestation;
    for (name, count) in [("kept", kept), ("removed", removed), ("gaps", gaps)] {
        if *count < 0 {
            found.add(&format!("{FIELD}.{name}"), "must not be negative");
        }
    }
    if kept.saturating_add(*removed) < 1 {
        found.add(FIELD, "must decide about at least one line");
    }
    let named = usize::try_from(*removed).map_or(0, |removed| removed.min(MOST_REMOVALS));
    if removals.len() != named {
        let message = format!("must name {named} lines: the removed ones, up to {MOST_REMOVALS}");
        found.add(&format!("{FIELD}.removals"), message);
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{Finding, Removal};

    use super::*;

    fn attestation() -> Attestation {
        let removal = Removal {
            entitlement: "Standing: Group devs".into(),
            rationale: "left".into(),
        };
        Attestation {
            entitlements: encode::digest(&1),
            file: encode::digest(&2),
            kept: 3,
            removed: 1,
            gaps: 0,
            removals: vec![removal],
        }
    }

    fn fields(change: impl Fn(&mut Attestation)) -> Vec<String> {
        let mut attestation = attestation();
        change(&mut attestation);
        let spec = AccessReviewSpec {
            attestation: Some(attestation),
            ..AccessReviewSpec::default()
        };
        let mut found = Found::default();
        check(&spec, &mut found);
        found.0.into_iter().map(|one| one.field).collect()
    }

    #[test]
    fn an_attestation_adds_up_and_is_readable() {
        type Change = fn(&mut Attestation);
        let rows: [(Change, Option<&str>); 11] = [
            (|_| {}, None),
            (|it| it.kept = 0, None),
            (|it| it.gaps = 4, None),
            (
                |it| it.entitlements = "sha256:1".into(),
                Some("spec.attestation.entitlements"),
            ),
            (|it| it.file.push('0'), Some("spec.attestation.file")),
            (|it| it.gaps = -1, Some("spec.attestation.gaps")),
            (|it| it.removals.clear(), Some("spec.attestation.removals")),
            (|it| it.removed = 0, Some("spec.attestation.removals")),
            (
                |it| it.removals[0].rationale = " \n".into(),
                Some("spec.attestation.removals[0].rationale"),
            ),
            (
                |it| it.removals[0].rationale = "\u{202e}tfel".into(),
                Some("spec.attestation.removals[0].rationale"),
            ),
            (
                |it| it.removals[0].entitlement = "\u{1b}[2J".into(),
                Some("spec.attestation.removals[0].entitlement"),
            ),
        ];
        for (number, (change, field)) in rows.into_iter().enumerate() {
            let found = fields(change);
            assert_eq!(found, field.into_iter().collect::<Vec<_>>(), "{number}");
        }
        let nothing = fields(|it| (it.kept, it.removed, it.removals) = (0, 0, Vec::new()));
        assert_eq!(nothing, ["spec.attestation"]);
    }

    #[test]
    fn more_are_removed_than_are_named() {
        let many = |named: usize| {
            fields(|it| {
                it.removed = 1000;
                it.removals = vec![it.removals[0].clone(); named];
            })
        };
        assert!(many(MOST_REMOVALS).is_empty());
        assert_eq!(many(MOST_REMOVALS - 1), ["spec.attestation.removals"]);
        assert_eq!(many(MOST_REMOVALS + 1), ["spec.attestation.removals"]);
    }

    #[test]
    fn an_attestation_is_no_finding() {
        let spec = AccessReviewSpec {
            attestation: Some(attestation()),
            finding: Some(Finding::Justified),
            reason: Some("seen".into()),
            ..AccessReviewSpec::default()
        };
        let mut found = Found::default();
        check(&spec, &mut found);
        assert_eq!(found.0.len(), 1);
        assert_eq!(found.0[0].field, "spec.attestation");
    }
}
