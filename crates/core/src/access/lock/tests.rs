//! Tests of locks: the affected access, the time, and the users who may remove them.

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::kinds::Rules as _;
use crate::validate::{self, LockWhen, MAX_LOCK};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn lock(name: &str, target: &Value) -> AccessLock {
    let spec = json!({"target": target, "reason": "stolen laptop"});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn alice() -> Requester {
    Requester {
        user: "alice".into(),
        uid: "u-alice".into(),
        groups: vec!["devs".into(), "system:authenticated".into()],
    }
}

fn subject(kind: &str, name: &str) -> rbac::Subject {
    rbac::Subject {
        kind: kind.into(),
        name: name.into(),
        namespace: (kind == "ServiceAccount").then(|| "ci".into()),
        ..rbac::Subject::default()
    }
}

/// Returns the access that alice requests by template shell in shop, with these subjects.
fn asks<'a>(requester: &'a Requester, subjects: &[rbac::Subject]) -> Access<'a> {
    Access {
        template: Some("shell"),
        ..Access::bound(requester, subjects, Some("shop"))
    }
}

#[test]
fn lock_matches_target_exactly() {
    let alice = alice();
    let template = |namespace, name| json!({"template": {"namespace": namespace, "name": name}});
    for (target, about) in [
        (json!({"user": "alice"}), true),
        (json!({"user": "Alice"}), false),
        (json!({"user": "alic\u{435}"}), false),
        (json!({"user": "alic"}), false),
        (json!({"user": "alice "}), false),
        (json!({"user": "*"}), false),
        (json!({"user": "u-alice"}), false),
        (json!({"user": "devs"}), false),
        (json!({"group": "devs"}), true),
        (json!({"group": "system:authenticated"}), true),
        (json!({"group": "dev"}), false),
        (json!({"group": "alice"}), false),
        (json!({"group": "*"}), false),
        (json!({"namespace": "shop"}), true),
        (json!({"namespace": "sho"}), false),
        (json!({"namespace": "shop2"}), false),
        (template("shop", "shell"), true),
        (template("shop", "other"), false),
        (template("mall", "shell"), false),
        (json!({}), false),
        // Stored in spite of every check, each target counts.
        (json!({"user": "bob", "namespace": "shop"}), true),
        (json!({"user": "bob", "namespace": "mall"}), false),
    ] {
        let found = is_about(&lock("one", &target), &asks(&alice, &[]));
        assert_eq!(found, about, "{target}");
    }
}

#[test]
fn lock_matches_bound_subjects() {
    let bob = Requester {
        user: "bob".into(),
        ..Requester::default()
    };
    let bound = [
        subject("User", "alice"),
        subject("Group", "devs"),
        subject("ServiceAccount", "gate"),
    ];
    for (target, about) in [
        (json!({"user": "bob"}), true),
        (json!({"user": "alice"}), true),
        (json!({"user": "devs"}), false),
        (json!({"group": "devs"}), true),
        (json!({"group": "alice"}), false),
        (json!({"user": "system:serviceaccount:ci:gate"}), true),
        (json!({"user": "gate"}), false),
        (json!({"group": "system:serviceaccounts"}), true),
        (json!({"group": "system:serviceaccounts:ci"}), true),
        (json!({"group": "system:serviceaccounts:cd"}), false),
        (json!({"group": "system:serviceaccounts:"}), false),
        (json!({"group": "system:serviceaccountsci"}), false),
    ] {
        let found = is_about(&lock("one", &target), &asks(&bob, &bound));
        assert_eq!(found, about, "{target}");
    }
}

#[test]
fn access_to_the_whole_cluster_is_in_no_namespace_and_by_no_template() {
    let alice = alice();
    let access = Access::bound(&alice, &[], None);
    for (target, about) in [
        (json!({"user": "alice"}), true),
        (json!({"namespace": "shop"}), false),
        (
            json!({"template": {"namespace": "shop", "name": "shell"}}),
            false,
        ),
    ] {
        assert_eq!(is_about(&lock("one", &target), &access), about, "{target}");
    }
}

#[test]
fn lock_holds_until_its_instant_and_forever_if_invalid() {
    let nanosecond = SignedDuration::from_nanos(1);
    let until = |until: &str| {
        let mut lock = lock("one", &json!({"user": "alice"}));
        lock.spec.until = Some(until.to_owned());
        lock
    };
    let one = until("2026-01-01T12:00:00Z");
    assert!(holds(&one, now() - nanosecond));
    assert!(!holds(&one, now()));
    assert!(!holds(&one, now() + nanosecond));
    for text in ["soon", "2026-13-01T00:00:00Z", "2026-01-01", "-1"] {
        assert!(holds(&until(text), Timestamp::MAX), "{text}");
    }
    assert!(holds(
        &lock("one", &json!({"user": "alice"})),
        Timestamp::MAX
    ));
}

fn locks(all: impl IntoIterator<Item = AccessLock>) -> Locks {
    Locks {
        all: all.into_iter().map(Arc::new).collect(),
        unreadable: 0,
    }
}

#[test]
fn longest_of_several_locks_is_reported_in_any_order() {
    let alice = alice();
    let access = asks(&alice, &[]);
    let mut all: Vec<AccessLock> = ["c", "a", "b", "over"]
        .map(|name| lock(name, &json!({"user": "alice"})))
        .into();
    all[0].spec.until = Some("2026-01-01T13:00:00Z".into());
    all[3].spec.until = Some("2026-01-01T11:00:00Z".into());
    let told = |all: Vec<AccessLock>| locks(all).against(&access, now()).unwrap().to_string();
    for _ in 0..all.len() {
        all.rotate_left(1);
        assert_eq!(
            told(all.clone()),
            "user alice is locked by AccessLock a: stolen laptop"
        );
    }
    all.retain(|lock| lock.spec.until.is_some());
    assert_eq!(
        told(all.clone()),
        "user alice is locked by AccessLock c until 2026-01-01T13:00:00Z: stolen laptop"
    );
    all.retain(|lock| lock.metadata.name.as_deref() == Some("over"));
    assert!(locks(all).against(&access, now()).is_none());
}

#[test]
fn an_emergency_is_let_through_where_the_lock_says_so_and_nowhere_else() {
    let alice = alice();
    for (except, emergency, locked) in [
        (false, false, true),
        (false, true, true),
        (true, false, true),
        (true, true, false),
    ] {
        let mut one = lock("one", &json!({"group": "devs"}));
        one.spec.except_emergency = except;
        let access = Access {
            emergency,
            ..asks(&alice, &[])
        };
        let found = locks([one]).against(&access, now()).is_some();
        assert_eq!(found, locked, "{except} {emergency}");
    }
}

#[test]
fn lock_message_contains_no_terminal_control_characters() {
    let mut one = lock("one", &json!({"user": "\u{1b}[2Jalice"}));
    one.spec.reason = "first\nsecond\u{7}".into();
    let said = Locked(Arc::new(one)).to_string();
    assert_eq!(
        said,
        "user  [2Jalice is locked by AccessLock one: first second "
    );
}

#[test]
fn nothing_new_is_given_while_a_lock_cannot_be_read_and_nothing_is_ended() {
    let alice = alice();
    let unread = Locks {
        all: Vec::new(),
        unreadable: 1,
    };
    let access = asks(&alice, &[]);
    assert!(unread.against(&access, now()).is_none());
    let not = unread.admit(&access, now()).unwrap_err();
    assert!(matches!(not, NotAdmitted::Unreadable(_)));
}

#[test]
fn locked_user_may_not_remove_lock_except_break_glass() {
    let glass = ["system:masters".to_owned()];
    let of = |groups: &[&str]| Requester {
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..alice()
    };
    for (target, groups, may) in [
        (json!({"user": "alice"}), &["lockers"][..], false),
        (json!({"user": "alice"}), &["system:masters"], true),
        (json!({"user": "bob"}), &["lockers"], true),
        (json!({"group": "devs"}), &["devs", "lockers"], false),
        (json!({"group": "devs"}), &["lockers"], true),
        (json!({"group": "devs"}), &["devs", "system:masters"], true),
        (json!({"namespace": "shop"}), &["devs"], true),
    ] {
        let changed = may_change(&lock("one", &target), &of(groups), &glass);
        assert_eq!(changed.is_ok(), may, "{target} {groups:?}: {changed:?}");
    }
}

/// Returns the fields with violations.
fn wrong(spec: &Value, when: LockWhen) -> Vec<String> {
    let lock: AccessLock =
        serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec})).unwrap();
    let found = validate::lock(&lock.metadata, &lock.spec, now(), when);
    found.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn a_lock_that_would_not_do_what_it_says_is_refused() {
    let user = |name: &str| json!({"target": {"user": name}, "reason": "x"});
    let until = |text: &str| json!({"target": {"user": "alice"}, "reason": "x", "until": text});
    let template = |namespace: &str, name: &str| json!({"target": {"template": {"namespace": namespace, "name": name}}, "reason": "x"});
    let far = (now() + MAX_LOCK).to_string();
    let farther = (now() + MAX_LOCK + SignedDuration::from_nanos(1)).to_string();
    let rows: Vec<(Value, &[&str])> = vec![
        (user("alice"), &[]),
        (user("j\u{fc}rgen@example.com"), &[]),
        (user("system:serviceaccount:ci:gate"), &[]),
        (user("alice*"), &["spec.target.user"]),
        (user("al?ce"), &["spec.target.user"]),
        (user(" alice"), &["spec.target.user"]),
        (user("ali\u{200b}ce"), &["spec.target.user"]),
        (user("\u{202e}ecila"), &["spec.target.user"]),
        (user("ali\nce"), &["spec.target.user"]),
        (user(&"a".repeat(513)), &["spec.target.user"]),
        (json!({"target": {}, "reason": "x"}), &["spec.target"]),
        (
            json!({"target": {"user": ""}, "reason": "x"}),
            &["spec.target"],
        ),
        (
            json!({"target": {"user": "alice", "group": "devs"}, "reason": "x"}),
            &["spec.target"],
        ),
        (
            json!({"target": {"namespace": "sh\u{43e}p"}, "reason": "x"}),
            &["spec.target.namespace"],
        ),
        (template("shop", "shell"), &[]),
        (template("*", "shell"), &["spec.target.template.namespace"]),
        (
            template("shop", "sh\u{435}ll"),
            &["spec.target.template.name"],
        ),
        (
            json!({"target": {"user": "alice"}, "reason": " "}),
            &["spec.reason"],
        ),
        (
            json!({"target": {"user": "alice"}, "reason": "a".repeat(1 << 20)}),
            &["spec.reason"],
        ),
        (
            json!({"target": {"user": "alice"}, "reason": "\u{202e}x"}),
            &["spec.reason"],
        ),
        (until("2026-01-01T12:00:00.000000001Z"), &[]),
        (until("2026-01-01T12:00:00Z"), &["spec.until"]),
        (until("tomorrow"), &["spec.until"]),
        (until(&far), &[]),
        (until(&farther), &["spec.until"]),
        (until("3026-01-01T12:00:00Z"), &["spec.until"]),
    ];
    for (spec, fields) in rows {
        assert_eq!(wrong(&spec, LockWhen::Made), fields, "{spec}");
    }
    // An immediate expiry is valid.
    assert!(wrong(&until("2026-01-01T11:00:00Z"), LockWhen::Changed).is_empty());
    assert_eq!(wrong(&until(&farther), LockWhen::Changed), ["spec.until"]);
}

#[test]
fn a_lock_has_no_owner_that_it_would_go_with() {
    let mut one = lock("one", &json!({"user": "alice"}));
    assert!(one.violations(now()).is_empty());
    one.metadata.owner_references = Some(vec![Default::default()]);
    let found = one.violations(now());
    assert_eq!(found[0].field, "metadata.ownerReferences");
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-d]{1,2}", "\\PC{0,4}"]
}

proptest! {
    /// A lock on a user affects that user, and no user of another name.
    #[test]
    fn a_lock_on_a_user_is_about_that_name_alone(name in any_name(), user in any_name()) {
        prop_assume!(!name.is_empty());
        let one = lock("one", &json!({"user": name}));
        let requester = Requester { user: user.clone(), ..Requester::default() };
        let access = Access::bound(&requester, &[], None);
        prop_assert_eq!(is_about(&one, &access), name == user);
    }

    /// More locks never grant access.
    #[test]
    fn another_lock_never_lets_anybody_in(users in proptest::collection::vec(any_name(), 0..6), extra in any_name()) {
        let alice = Requester { user: "a".into(), ..Requester::default() };
        let access = Access::bound(&alice, &[], None);
        let of = |users: &[String]| locks(users.iter().map(|user| lock("one", &json!({"user": user}))));
        let before = of(&users).against(&access, now()).is_some();
        let more: Vec<String> = users.iter().cloned().chain([extra]).collect();
        let after = of(&more).against(&access, now()).is_some();
        prop_assert!(!before || after);
    }
}
