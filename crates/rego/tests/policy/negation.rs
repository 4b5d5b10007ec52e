//! What a `not` means: what OPA answers, statement by statement. `policies/negations.txt` has its answers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oz_rego::{Answer, Reason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{compile, evaluate, try_compile, undefined};

const RULES: &str = include_str!("policies/negations.rego");
const ANSWERS: &str = include_str!("policies/negations.txt");

fn input() -> Value {
    json!({
        "a": 1, "b": 9, "false": false, "name": "xyz", "list": [1, 2], "obj": {"k": {"d": 1}}, "key": "k", "nokey": "zz",
        "set": [1], "lists": [[], [1]], "other": [5],
    })
}

/// What a rule with this body is, with `;` or line breaks between its statements.
fn answered(body: &str) -> String {
    let policy = match try_compile(&format!("{RULES}\nq if {{ {body} }}\n")) {
        Ok(policy) => policy,
        Err(errors) if errors.errors()[0].reason == Reason::Semantics => {
            return "refused".to_owned();
        }
        Err(errors) => panic!("{body}: {errors}"),
    };
    match evaluate(&policy, "p.q", &input(), Timestamp::UNIX_EPOCH) {
        Ok(Answer::Undefined) => "undefined".to_owned(),
        Ok(Answer::Document(document)) => document.to_string(),
        Err(error) => panic!("{body}: {error}"),
    }
}

#[test]
fn negated_statement_has_the_answer_of_opa() {
    let lines = ANSWERS.lines().filter(|line| !line.starts_with('#'));
    let mut different = Vec::new();
    for line in lines {
        let (wanted, body) = line.split_once(' ').unwrap();
        let body = body.trim();
        let found = answered(body);
        if found != wanted {
            different.push(format!("{body}: {found}, and OPA says {wanted}"));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// One statement for each way in which a body is written.
#[test]
fn negation_is_the_same_in_every_kind_of_body() {
    let v1 = [
        "q if not f(input.missing)",
        "q if not f(input.missing) with input.y as 1",
        "q := 1 if not f(input.missing)",
        "q := 2 if { false } else := 1 if not f(input.missing)",
        "q contains 1 if not f(input.missing)\nr := q[1]",
        "q := [x | x := 1; not f(input.missing)][0]",
        "q := {x | x := 1; not f(input.missing)}[1]",
        "q := {x: 1 | x := 1; not f(input.missing)}[1]",
        "q := x if { x := [y | y := 1; not f(input.missing)][0] }",
        "q if every x in [1] { not f(input.missing) == x }",
        "g(x) if not f(input.missing) == x\nq if g(1)",
        "q if { not f(\n  input.missing, # as it is\n) }",
        "q if { not f(input.missing) ; true }",
        "q if { not \"x\" in input.missing }",
        "q if { not `x` != input.missing }",
        "q if { not input.missing != \"x\" }",
    ];
    let v0 = [
        "q { not f(input.missing) }",
        "q = 1 { not f(input.missing) }",
        "q { false } { not f(input.missing) }",
        "q = 2 { false } else = 1 { not f(input.missing) }",
        "q[1] { not f(input.missing) }\nr = q[1]",
        "q { not input.missing > 3; true }",
    ];
    for (rules, head) in v1
        .map(|rules| (rules, "f(x) := x"))
        .into_iter()
        .chain(v0.map(|rules| (rules, "f(x) = x { true }")))
    {
        let text = format!("package p\n{head}\n{rules}\n");
        let policy = compile(&text);
        let path = if rules.contains("\nr ") { "p.r" } else { "p.q" };
        assert!(undefined(&policy, path, &input()), "{rules}");
        if rules.contains("not f(") {
            let input = json!({"missing": false});
            assert!(!undefined(&policy, path, &input), "{rules}");
        }
    }
}

#[test]
fn line_of_an_error_is_where_it_was_written() {
    let text = "package p\nf(x) := x\nq if {\n  not f(\n    input.obj[\n      input.missing\n    ],\n  )\n}\nr := 1\nr := 2\n";
    let policy = compile(text);
    let error = evaluate(&policy, "p.r", &input(), Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(error.to_string().starts_with("p.rego:11: "), "{error}");
    let rules = policy.rules().iter();
    let lines: Vec<(&str, u32)> = rules.map(|rule| (rule.path.as_str(), rule.line)).collect();
    assert_eq!(lines, [("p.f", 2), ("p.q", 3), ("p.r", 10)]);
}

#[test]
fn variable_with_a_value_in_a_not_only_is_refused_with_its_line() {
    for (text, name) in [
        ("package p\n\nq if not input.list[_] == 5", "_"),
        ("package p\n\nq if { true; not input.list[i] == 5 }", "i"),
        ("package p\n\nq { not input.list[i] }", "i"),
        ("package p\n\nq if not y = input.a", "y"),
        ("package p\n\nq if not split(\"a\", \",\", y)", "y"),
        ("package p\n\nq := [1 | not input.list[i]]", "i"),
    ] {
        let errors = try_compile(text).unwrap_err();
        let error = &errors.errors()[0];
        assert_eq!((error.reason, error.line), (Reason::Semantics, 3), "{text}");
        let wanted = format!("nothing gives variable {name} a value outside of `not`: ");
        assert!(error.message.starts_with(&wanted), "{error}");
    }
    let errors = try_compile("package p\n\nq if not x := input.a").unwrap_err();
    assert!(errors.to_string().contains("`==` in place of `:=`"));
}

/// An expression, and the fields of the input that it reads where an undefined value makes it undefined.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    reads: BTreeSet<&'static str>,
}

impl Part {
    fn of(text: String, parts: &[&Self]) -> Self {
        let reads = parts.iter().flat_map(|part| part.reads.iter().copied());
        Self {
            text,
            reads: reads.collect(),
        }
    }
}

/// A number.
fn number() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        (0..9_i32).prop_map(|number| Part::of(number.to_string(), &[])),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|field| Part {
            text: format!("input.{field}"),
            reads: [field].into(),
        }),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|field| Part {
            text: format!("input[\n\"{field}\"]"),
            reads: [field].into(),
        }),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|x| Part::of(format!("f({})", x.text), &[&x])),
            (
                inner.clone(),
                prop::sample::select(vec!["+", "-", "*"]),
                inner.clone()
            )
                .prop_map(|(x, sign, y)| Part::of(
                    format!("({} {sign} {})", x.text, y.text),
                    &[&x, &y]
                )),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| Part::of(
                format!("count([{}, {{\"k\": {}}}])", x.text, y.text),
                &[&x, &y]
            )),
            inner
                .clone()
                .prop_map(|x| Part::of(format!("[7, 8, 9][abs({}) % 3]", x.text), &[&x])),
            // What is in a comprehension leaves it empty.
            inner.prop_map(|x| Part::of(
                format!("count([y | y := {}; not y > input.d])", x.text),
                &[]
            )),
        ]
    })
}

/// An expression that is true or false, and is no equation, of which a `not` evaluates the sides.
fn condition() -> impl Strategy<Value = Part> {
    let compared = (
        number(),
        prop::sample::select(vec!["<", "<=", ">", ">=", "!="]),
        number(),
    );
    prop_oneof![
        compared
            .prop_map(|(x, sign, y)| Part::of(format!("{} {sign} {}", x.text, y.text), &[&x, &y])),
        (number(), number())
            .prop_map(|(x, y)| Part::of(format!("{} in [{}, \"x\"]", x.text, y.text), &[&x, &y])),
        number().prop_map(|x| Part::of(format!("is_number({})", x.text), &[&x])),
        number().prop_map(|x| Part::of(
            format!("startswith(sprintf(\"%d\", [{}]), \"1\")", x.text),
            &[&x]
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// A statement and its negation: one of them holds where everything has a value, and none where something has not.
    #[test]
    fn negated_statement_holds_if_all_has_values_and_it_does_not(
        condition in condition(), missing in prop::option::of(prop::sample::select(vec!["a", "b", "c"])),
    ) {
        let text = format!(
            "package p\nf(x) := x\nyes if {{ {0} }}\nno if {{ not {0} }}\nbare if not {0}\n", condition.text,
        );
        let policy = compile(&text);
        let mut input = json!({"a": 1, "b": -2, "c": 30, "d": 4});
        if let Some(missing) = missing {
            input.as_object_mut().unwrap().remove(missing);
        }
        let [yes, no, bare] = ["p.yes", "p.no", "p.bare"].map(|path| !undefined(&policy, path, &input));
        let has_values = missing.is_none_or(|missing| !condition.reads.contains(missing));
        prop_assert_eq!(no, has_values && !yes, "{}", condition.text);
        prop_assert_eq!(bare, no);
        prop_assert!(has_values || !yes);
    }
}
