//! Table tests for `rotation`: the errors of a Secret, and the step that follows.

use std::{sync::Arc, time::Duration};

use k8s_openapi::ByteString;

use super::*;
use crate::certificate::{
    authority::Authority,
    secret::{ROTATE_ANNOTATION, SecretAddress},
};
use crate::server::paths::{PathKey, PathKeys};

const LIFE: Duration = Duration::from_secs(3000);

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn policy() -> CertPolicy {
    CertPolicy {
        ca_life: LIFE,
        ..CertPolicy::default()
    }
}

fn home() -> SecretAddress {
    SecretAddress {
        name: "ca".into(),
        namespace: "acme".into(),
        fingerprint: "acme".into(),
    }
}

fn authority(made: i64) -> Arc<Authority> {
    Arc::new(Authority::generate("acme", timestamp(made), LIFE).unwrap())
}

fn stored(active: Arc<Authority>) -> Stored {
    let key = PathKey::new(&[7; 32]).unwrap();
    Stored::new(active, Some(PathKeys::new(key)))
}

fn good() -> Secret {
    stored(authority(0)).write(None, &home())
}

fn with(mut secret: Secret, key: &str, value: &str) -> Secret {
    let data = secret.data.get_or_insert_default();
    data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    secret
}

fn requested(mut secret: Secret) -> Secret {
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(ROTATE_ANNOTATION.to_owned(), "please".to_owned());
    secret
}

/// Returns a Secret with a serving certificate for another host, as if from another product.
fn foreign_leaf() -> Secret {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["other.example.com".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    with(
        with(good(), "ca.crt", &certificate),
        "ca.key",
        &key.serialize_pem(),
    )
}

#[test]
fn every_way_a_secret_can_be_wrong_has_its_reason() {
    let empty = Secret {
        data: None,
        ..good()
    };
    let other_key = authority(0).key.clone();
    let cases = [
        ("absent", None, 0, Some(Reason::Missing)),
        ("emptied", Some(empty), 0, Some(Reason::Incomplete)),
        (
            "garbled",
            Some(with(good(), "ca.crt", "garbage")),
            0,
            Some(Reason::Unreadable),
        ),
        (
            "key garbled",
            Some(with(good(), "ca.key", "garbage")),
            0,
            Some(Reason::Unreadable),
        ),
        (
            "a leaf",
            Some(foreign_leaf()),
            0,
            Some(Reason::NotAuthority),
        ),
        (
            "another key",
            Some(with(good(), "ca.key", &other_key)),
            0,
            Some(Reason::KeyMismatch),
        ),
        ("made just now", Some(good()), 0, None),
        ("made by a clock a little ahead", Some(good()), -299, None),
        (
            "made in the far future",
            Some(good()),
            -301,
            Some(Reason::NotYetValid),
        ),
        ("before renewal", Some(good()), 1999, None),
        ("at renewal", Some(good()), 2000, Some(Reason::Due)),
        ("before its end", Some(good()), 2999, Some(Reason::Due)),
        ("at its end", Some(good()), 3000, Some(Reason::Expired)),
        (
            "asked for",
            Some(requested(good())),
            0,
            Some(Reason::Requested),
        ),
    ];
    for (what, secret, now, reason) in cases {
        assert_eq!(
            needs_rotation(secret.as_ref(), &policy(), timestamp(now)),
            reason,
            "{what}"
        );
    }
}

fn step(stored: &Stored, now: i64, published: &[(&Arc<Authority>, i64)]) -> Step {
    let secret = stored.write(None, &home());
    next_step(Some(&secret), &policy(), timestamp(now), None, |pem| {
        let found = published
            .iter()
            .find(|(authority, _)| authority.certificate == pem);
        found.map(|(_, since)| timestamp(*since))
    })
}

#[test]
fn damage_is_replaced_at_once() {
    let step = next_step(Some(&foreign_leaf()), &policy(), timestamp(0), None, |_| {
        None
    });
    assert_eq!(step, Step::Replace(Reason::NotAuthority));
    assert_eq!(
        next_step(None, &policy(), timestamp(0), None, |_| None),
        Step::Replace(Reason::Missing)
    );
}

#[test]
fn a_due_authority_is_staged_published_promoted_and_forgotten_in_this_order() {
    let (old, new) = (authority(0), authority(2000));
    let mut stored = stored(old.clone());
    assert_eq!(
        step(&stored, 0, &[(&old, 0)]),
        Step::Wait(Some(timestamp(2000)))
    );
    assert_eq!(step(&stored, 2000, &[(&old, 0)]), Step::Stage(Reason::Due));

    stored.next = Some(new.clone());
    assert_eq!(
        step(&stored, 2001, &[(&old, 0)]),
        Step::Wait(None),
        "not published yet"
    );
    let published = [(&old, 0), (&new, 2002)];
    assert_eq!(
        step(&stored, 2011, &published),
        Step::Wait(Some(timestamp(2012))),
        "not for long enough"
    );
    assert_eq!(step(&stored, 2012, &published), Step::Promote);

    stored.next = None;
    stored.active = new;
    stored.previous = vec![old.certificate.clone()];
    stored.promoted_at = Some(timestamp(2012));
    assert_eq!(step(&stored, 2013, &[]), Step::Wait(Some(timestamp(2612))));
    assert_eq!(step(&stored, 2612, &[]), Step::Forget);
}

#[test]
fn a_rotation_that_was_asked_for_is_carried_out_once() {
    let mut stored = stored(authority(0));
    stored.rotated = Some("please".to_owned());
    let secret = requested(stored.write(None, &home()));
    assert_eq!(needs_rotation(Some(&secret), &policy(), timestamp(1)), None);
}

#[test]
fn an_authority_still_served_with_is_remembered_before_anything_else() {
    let (serving, active) = (authority(0), authority(1));
    let secret = stored(active).write(None, &home());
    let step = next_step(
        Some(&secret),
        &policy(),
        timestamp(2),
        Some(&serving.certificate),
        |_| None,
    );
    assert_eq!(step, Step::Remember);
}

#[test]
fn a_damaged_successor_is_staged_again() {
    let mut stored = stored(authority(0));
    stored.next = Some(authority(2000));
    let secret = with(stored.write(None, &home()), "next.crt", "garbage");
    let step = next_step(Some(&secret), &policy(), timestamp(2500), None, |_| None);
    assert_eq!(step, Step::Stage(Reason::Due));
}

#[test]
fn stored_authorities_are_read_as_written() {
    let mut stored = stored(authority(0));
    stored.next = Some(authority(1));
    stored.previous = vec![
        authority(2).certificate.clone(),
        authority(3).certificate.clone(),
    ];
    stored.promoted_at = Some(timestamp(5));
    stored.rotated = Some("r".to_owned());
    assert_eq!(Stored::read(&stored.write(None, &home())).unwrap(), stored);
}

#[test]
fn stored_authority_keeps_foreign_fields_of_secret() {
    let mut base = requested(good());
    base.metadata.resource_version = Some("41".to_owned());
    base.metadata
        .labels
        .get_or_insert_default()
        .insert("team".into(), "theirs".into());
    let written = Stored::read(&base).unwrap().write(Some(&base), &home());
    assert_eq!(written.metadata.resource_version.as_deref(), Some("41"));
    assert_eq!(written.metadata.labels.unwrap()["team"], "theirs");
    assert_eq!(
        written.metadata.annotations.unwrap()[ROTATE_ANNOTATION],
        "please"
    );
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let leaf = authority(0)
        .sign(&["a.b.svc".to_owned()], timestamp(2990), LIFE)
        .unwrap();
    assert_eq!(leaf.until, timestamp(3000));
}

#[test]
fn a_secret_without_the_key_of_the_paths_gets_one() {
    for damaged in [
        Stored::new(authority(0), None).write(None, &home()),
        with(good(), "path-key", "short"),
    ] {
        let step = next_step(Some(&damaged), &policy(), timestamp(1), None, |_| None);
        assert_eq!(step, Step::KeyPaths);
    }
}
