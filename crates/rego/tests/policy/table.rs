//! The answers of policies: at the edges of a window, in both languages, for missing or malformed input.

use crate::common::{self, answer, compile, evaluate, timestamp, undefined, window, window_input};
use oz_rego::{Answer, Dialect, Language, Limits, Policy};
use serde_json::json;

const FROM: &str = "2024-05-01T08:00:00.5Z";
const UNTIL: &str = "2024-05-01T09:00:00+00:00";

fn children(policy: &Policy, input: &serde_json::Value, nanoseconds_after: (&str, i64)) -> usize {
    let (instant, after) = nanoseconds_after;
    let document = answer(policy, "controller", input, timestamp(instant, after));
    document["children"].as_array().unwrap().len()
}

#[test]
fn a_window_is_exact_to_the_nanosecond_at_both_ends() {
    let policy = window();
    let input = window_input(FROM, UNTIL);
    for (instant, after, count) in [
        (FROM, -1, 0),
        (FROM, 0, 0),
        (FROM, 1, 1),
        (UNTIL, -1, 1),
        (UNTIL, 0, 0),
        (UNTIL, 1, 0),
    ] {
        let children = children(&policy, &input, (instant, after));
        assert_eq!(children, count, "{after} ns after {instant}");
    }
}

#[test]
fn a_child_is_what_the_policy_says() {
    let input = window_input(FROM, UNTIL);
    let document = answer(&window(), "controller", &input, timestamp(FROM, 1));
    assert_eq!(
        document["children"],
        json!([{
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "night-shift"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "default", "namespace": "a"},
                {"kind": "ServiceAccount", "name": "default", "namespace": "b"},
            ],
        }])
    );
    assert_eq!(
        document["status"]["conditions"],
        json!([
            {"type": "effective", "status": "True", "lastTransitionTime": "2024-05-01T08:00:00Z"},
            {"type": "effective", "status": "False", "lastTransitionTime": "2024-04-30T00:00:00Z"},
        ])
    );
}

#[test]
fn a_time_that_is_missing_or_none_makes_no_child_and_no_error() {
    let policy = window();
    for (field, value) in [
        ("validFrom", json!(null)),
        ("validFrom", json!("yesterday")),
        ("validUntil", json!(7)),
        ("validUntil", json!("2024-13-01T00:00:00Z")),
    ] {
        let mut input = window_input(FROM, UNTIL);
        input["parent"][field] = value;
        assert_eq!(children(&policy, &input, (FROM, 1)), 0, "{field}");
        input["parent"].as_object_mut().unwrap().remove(field);
        assert_eq!(children(&policy, &input, (FROM, 1)), 0, "without {field}");
    }
}

#[test]
fn an_offset_is_honoured() {
    let input = window_input(
        "2024-05-01T10:00:00+02:00",
        "2024-05-01T04:30:00.000000001-05:00",
    );
    let policy = window();
    assert_eq!(children(&policy, &input, ("2024-05-01T08:00:00Z", 0)), 0);
    assert_eq!(children(&policy, &input, ("2024-05-01T08:00:00Z", 1)), 1);
    assert_eq!(children(&policy, &input, ("2024-05-01T09:30:00Z", 0)), 1);
    assert_eq!(children(&policy, &input, ("2024-05-01T09:30:00Z", 1)), 0);
}

#[test]
fn language_of_policy_is_detected() {
    assert_eq!(window().language(), Language::V0);
    let v1 = "package p\nallow contains x if some x in input.names";
    assert_eq!(compile(v1).language(), Language::V1);
    let imports = "package p\nimport rego.v1\nallow contains x if some x in input.names";
    assert_eq!(compile(imports).language(), Language::V1);
    let by_keyword = "package p\nimport future.keywords.in\nallow[x] { some x in input.names }";
    assert_eq!(compile(by_keyword).language(), Language::V0);
    for text in [v1, imports, by_keyword] {
        let names = json!({"names": ["b", "a"]});
        let document = answer(&compile(text), "p", &names, timestamp(FROM, 0));
        assert_eq!(document["allow"], json!(["a", "b"]), "{text}");
    }
}

#[test]
fn document_without_value_is_undefined_and_empty_package_is_not() {
    let policy = compile("package p\nx := 1 if input.yes\ny := false");
    let input = json!({});
    assert!(undefined(&policy, "p.x", &input));
    assert!(undefined(&policy, "p.nothing", &input));
    assert!(undefined(&policy, "q", &input));
    assert_eq!(
        answer(&policy, "p.y", &input, timestamp(FROM, 0)),
        json!(false)
    );
    let empty = compile("package p\nx := 1 if input.yes");
    assert_eq!(answer(&empty, "p", &input, timestamp(FROM, 0)), json!({}));
}

#[test]
fn modules_reference_each_other_in_any_order() {
    let main = (
        "b.rego",
        "package p\nimport data.lib.names as n\nx := n.first(input.names)\ny := data.lib.names.first([3])",
    );
    let library = ("a.rego", "package lib.names\nfirst(list) := list[0]");
    for modules in [[main, library], [library, main]] {
        let modules = modules.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let policy = Policy::compile(&modules).unwrap();
        let document = answer(&policy, "p", &json!({"names": [1, 2]}), timestamp(FROM, 0));
        assert_eq!(document, json!({"x": 1, "y": 3}));
    }
}

#[test]
fn two_rules_see_one_now() {
    let policy = compile("package p\na := time.now_ns()\nb := time.now_ns()\nsame if a == b");
    let document = answer(
        &policy,
        "p",
        &json!({}),
        timestamp("2024-05-01T08:00:00.123456789Z", 0),
    );
    let now = json!(1_714_550_400_123_456_789_i64);
    assert_eq!(document, json!({"a": now, "b": now, "same": true}));
}

#[test]
fn evaluation_uses_instant_of_its_call() {
    let policy = compile("package p\nnow := time.now_ns()");
    for seconds in [3, 1, 2] {
        let document = answer(
            &policy,
            "p.now",
            &json!({}),
            timestamp("1970-01-01T00:00:00Z", seconds),
        );
        assert_eq!(document, json!(seconds));
    }
}

#[test]
fn the_clock_of_the_system_is_nowhere() {
    // Inside a function that replaces another, a `with` elsewhere has no effect.
    let policy = compile(
        "package p\ng(x) := time.now_ns()\nf(x) := x\n\
         a := y if y := f(1) with f as g\n\
         c := y if y := g(1) with time.now_ns as 7\n\
         d := [time.now_ns() | some x in [1, 2]; x]\n",
    );
    let document = answer(
        &policy,
        "p",
        &json!({}),
        timestamp("1970-01-01T00:00:00Z", 5),
    );
    assert_eq!(document["a"], json!(5));
    assert_eq!(document["c"], json!(7));
    assert_eq!(document["d"], json!([5, 5]));
}

#[test]
fn whole_numbers_stay_exact() {
    let policy = compile(
        "package p\nplus := input.n + 1\nns := time.parse_rfc3339_ns(input.t) - 1\n\
         compare := input.n < input.n + 1\ntext := sprintf(\"%d\", [input.n])\nsame := input.n\n\
         product := (input.n * 1000000000) / 1000000000\n",
    );
    for n in [(1_i64 << 53) + 1, i64::MAX - 1, -(1_i64 << 60) - 1] {
        let input = json!({"n": n, "t": "2262-04-11T23:47:16.854775807Z"});
        let document = answer(&policy, "p", &input, timestamp(FROM, 0));
        let wanted = json!({
            "plus": n + 1, "ns": i64::MAX - 1, "compare": true, "text": n.to_string(), "same": n,
            "product": n,
        });
        assert_eq!(document, wanted);
    }
    let large = json!({"n": u64::MAX - 1, "t": FROM});
    assert_eq!(
        answer(&policy, "p.plus", &large, timestamp(FROM, 0)),
        json!(u64::MAX)
    );
}

#[test]
fn negative_numbers_are_written_as_go_writes_them() {
    let policy = compile("package p\nx := sprintf(input.format, input.values)");
    for (format, values, text) in [
        ("%d", json!([-5]), "-5"),
        ("%05d|%5d|%1d", json!([-5, -5, -5]), "-0005|   -5|-5"),
        (
            "%d%% of %s, %v, %d",
            json!([-1, "a", -2, 3]),
            "-1% of a, -2, 3",
        ),
        (
            "%d",
            json!([-9_007_199_254_740_993_i64]),
            "-9007199254740993",
        ),
        ("%x %d", json!([255, 0]), "ff 0"),
        ("none", json!([]), "none"),
    ] {
        let input = json!({"format": format, "values": values});
        assert_eq!(
            answer(&policy, "p.x", &input, timestamp(FROM, 0)),
            json!(text),
            "{format}"
        );
    }
}

#[test]
fn a_whole_number_that_would_be_rounded_is_an_error() {
    let policy = compile("package p\nx := input.n * input.n\ny := 1.5\nz := 1e300");
    let error = evaluate(&policy, "p.x", &json!({"n": u64::MAX}), timestamp(FROM, 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the result has a number that cannot be written exactly: 340282366920938463426481119284349108225"
    );
    assert_eq!(
        answer(&policy, "p.y", &json!({}), timestamp(FROM, 0)),
        json!(1.5)
    );
}

#[test]
fn keys_that_are_no_text_are_written_as_json() {
    let policy = compile("package p\nx := {1: \"a\", [true]: \"b\"}\ns := {3, 1, 2}");
    let document = answer(&policy, "p", &json!({}), timestamp(FROM, 0));
    assert_eq!(
        document,
        json!({"x": {"1": "a", "[true]": "b"}, "s": [1, 2, 3]})
    );
}

#[test]
fn an_instant_beyond_64_bits_is_refused() {
    let policy = compile("package p\nx := 1");
    let error = policy.evaluate(
        "p",
        &json!({}),
        "2300-01-01T00:00:00Z".parse().unwrap(),
        &Limits::default(),
    );
    assert!(error.unwrap_err().to_string().contains("64 bits"));
}

#[test]
fn a_path_is_a_path() {
    let policy = compile("package p\nx := 1");
    for path in [
        "",
        ".",
        "p.",
        "p..x",
        "p[0]",
        "p.x; true",
        "p with input as 1",
        "p\n",
    ] {
        let error = evaluate(&policy, path, &json!({}), timestamp(FROM, 0)).unwrap_err();
        assert!(
            error.to_string().contains("is not a path"),
            "{path}: {error}"
        );
    }
}

#[test]
fn the_classes_of_unicode_are_known_to_patterns() {
    let policy = compile("package p\nx := regex.match(`^\\p{Lu}\\w+$`, input.s)");
    let document = answer(&policy, "p.x", &json!({"s": "Ärger"}), timestamp(FROM, 0));
    assert_eq!(document, json!(true));
}

#[test]
fn digest_covers_the_text_as_written() {
    // The interpreter reads another text: `0.5`, and a rule for each body.
    let text = "package p\na = .5\nb { a == 1 } { a == 2 }";
    let modules = [("p.rego".to_owned(), text.to_owned())];
    let policy = Policy::compile(&modules).unwrap();
    assert_eq!(policy.digest(), oz_rego::digest(&modules));
}

#[test]
fn digest_covers_module_names_and_texts_in_any_order() {
    let module = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let both = [
        module("a", "package p\nx := 1"),
        module("b", "package q\ny := 2"),
    ];
    let turned = [both[1].clone(), both[0].clone()];
    assert_eq!(oz_rego::digest(&both), oz_rego::digest(&turned));
    assert_eq!(
        oz_rego::digest(&both),
        Policy::compile(&turned).unwrap().digest()
    );
    let moved = [module("ap", "ackage p\nx := 1"), both[1].clone()];
    assert_ne!(oz_rego::digest(&both), oz_rego::digest(&moved));
    assert!(
        Policy::compile(&both)
            .unwrap()
            .digest_text()
            .starts_with("sha256:")
    );
}

#[test]
fn a_preview_finds_both_ends_of_a_window() {
    let policy = window();
    let input = window_input(FROM, UNTIL);
    let children = |answer: &Answer| {
        answer
            .document()
            .map(|document| document["children"].clone())
    };
    let preview = |now| {
        policy
            .preview(
                "controller",
                &input,
                &[timestamp(FROM, 0), timestamp(UNTIL, 0)],
                now,
                &common::limits(),
                children,
            )
            .unwrap()
    };
    let before = preview(timestamp(FROM, -1));
    let counts: Vec<_> = before
        .changes
        .iter()
        .map(|change| (change.at, common::count(&change.answer)))
        .collect();
    assert_eq!(counts, [(timestamp(FROM, 1), 1), (timestamp(UNTIL, 0), 0)]);
    assert_eq!(before.wake(), Some(timestamp(FROM, 1)));
    assert_eq!(preview(timestamp(FROM, 0)).wake(), Some(timestamp(FROM, 1)));
    assert_eq!(
        preview(timestamp(FROM, 1)).wake(),
        Some(timestamp(UNTIL, 0))
    );
    assert_eq!(preview(timestamp(UNTIL, 0)).wake(), None);
}

#[test]
fn a_preview_of_inclusive_bounds_is_exact_too() {
    let policy = compile(
        "package p\nopen if {\n  time.now_ns() >= time.parse_rfc3339_ns(input.from)\n  \
         time.now_ns() <= time.parse_rfc3339_ns(input.until)\n}",
    );
    let input = json!({"from": FROM, "until": UNTIL});
    let whole = Answer::clone;
    let found = policy
        .preview(
            "p.open",
            &input,
            &[timestamp(FROM, 0), timestamp(UNTIL, 0)],
            timestamp(FROM, -5),
            &common::limits(),
            whole,
        )
        .unwrap();
    let instants: Vec<_> = found.changes.iter().map(|change| change.at).collect();
    assert_eq!(instants, [timestamp(FROM, 0), timestamp(UNTIL, 1)]);
}

#[test]
fn a_preview_says_when_there_are_more_instants_than_it_tried() {
    let policy = compile("package p\nx := 1");
    let many: Vec<_> = (0..50)
        .map(|n| timestamp(FROM, n * 1_000_000_000))
        .collect();
    let found = policy.preview(
        "p",
        &json!({}),
        &many,
        timestamp(FROM, -1),
        &common::limits(),
        Answer::clone,
    );
    let found = found.unwrap();
    assert!(found.changes.is_empty());
    assert_eq!(found.wake(), Some(timestamp(FROM, 31 * 1_000_000_000)));
}

#[test]
fn a_dialect_says_which_language_and_whether_errors_are_undefined() {
    let compile_as = |text: &str, dialect: Dialect| {
        Policy::compile_as(&[("p.rego".to_owned(), text.to_owned())], dialect)
    };
    let of = |language: Language| Dialect {
        language: Some(language),
        ..Dialect::default()
    };
    let old = "package p\nx[y] { y := 1 }";
    assert!(compile_as(old, of(Language::V1)).is_err());
    let either = compile_as("package p\nx := 1", of(Language::V0)).unwrap();
    assert_eq!(either.language(), Language::V0);
    let policy = compile_as(old, of(Language::V0)).unwrap();
    assert_eq!(policy.language(), Language::V0);
    let wrong = "package p\nx := time.parse_rfc3339_ns(input.at)";
    let input = json!({"at": "never"});
    let strict = Dialect {
        strict: true,
        ..Dialect::default()
    };
    let strict = compile_as(wrong, strict).unwrap();
    assert!(evaluate(&strict, "p.x", &input, timestamp(FROM, 0)).is_err());
    assert!(undefined(&compile(wrong), "p.x", &input));
}
