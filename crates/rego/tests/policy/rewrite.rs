//! The meaning of `not`, `in` and `with`: the answers of OPA, statement by statement. `policies/*.txt` contain its
//! answers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oz_rego::{Answer, Dialect, Policy, Reason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{compile, evaluate, try_compile, undefined};

const RULES: &str = include_str!("policies/negations.rego");
const NEGATIONS: &str = include_str!("policies/negations.txt");
const MEMBERSHIPS: &str = include_str!("policies/memberships.txt");
const WITHS: &str = include_str!("policies/withs.txt");

fn input() -> Value {
    json!({
        "a": 1, "b": 9, "false": false, "name": "xyz", "list": [1, 2], "obj": {"k": {"d": 1}}, "key": "k", "nokey": "zz",
        "set": [1], "lists": [[], [1]], "other": [5],
    })
}

/// Returns the answer of a rule with this body, with `;` or line breaks between its statements.
fn answered(body: &str) -> String {
    let modules = [("p.rego".to_owned(), format!("{RULES}\nq if {{ {body} }}\n"))];
    // As in OPA, a path below `data` that nothing defines is undefined.
    let compiled = Policy::compile_with_data(&modules, &Value::Null, Dialect::default());
    let policy = match compiled {
        Ok(policy) => policy,
        Err(errors) if errors.errors()[0].reason == Reason::Semantics => {
            return "refused".to_owned();
        }
        Err(errors) => panic!("{body}: {errors}"),
    };
    match evaluate(&policy, "p.q", &input(), Timestamp::UNIX_EPOCH) {
        Ok(Answer::Undefined) => "undefined".to_owned(),
        Ok(Answer::Document(document)) => document.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Checks statements with their answers, one per line.
fn assert_answers(answers: &str) {
    let lines = answers.lines().filter(|line| !line.starts_with('#'));
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

#[test]
fn negated_statement_has_the_answer_of_opa() {
    assert_answers(NEGATIONS);
}

#[test]
fn membership_has_the_answer_of_opa() {
    assert_answers(MEMBERSHIPS);
}

#[test]
fn statement_with_a_with_has_the_answer_of_opa() {
    assert_answers(WITHS);
}

/// Checks one rule for each place where an expression may be.
#[test]
fn membership_without_operand_is_undefined_in_every_place() {
    let v1 = [
        "q := 1 in input.missing",
        "q if 1 in input.missing",
        "q if (1 in input.missing) == false",
        "q if { (1\n in # `in`\n input.missing) == false }",
        "q if { ((1) # in\n in (((input.missing)))) == false }",
        "q := {\"k\": (1 in input.missing)}",
        "q := [[1 in input.missing]]",
        "q := x if x := 1 in input.missing",
        "q := 1 if { false } else := 1 in input.missing",
        "q := 1 if { false } else := 2 if (1 in input.missing) == false",
        "q := no(1 in input.missing)",
        "no2(x) := 1 in x\nq := no2(input.missing)",
        "no2(x) := b if b := 1 in input.missing\nq := no2(1)",
        "deny := 1 in input.missing\nq if deny == false",
        "s contains (1 in input.missing)\nq if count(s) > 0",
        "s contains x if x := 1 in input.missing\nq if count(s) > 0",
        "o[\"k\"] := 1 in input.missing\nq if o.k == false",
        "o[k] := 1 if k := 1 in input.missing\nq if count(o) > 0",
        "q := [x | x := 1 in input.missing][0]",
        "q := {x: (1 in input.missing) | x := 1}[1]",
        "q if every x in [1] { (x in input.missing) == false }",
        "q if { some x in [1 in input.missing]; x == false }",
        "q if { x := 1; (input.missing in [x]) == false }",
        "q if (\"zz\", input.missing in {\"k\": 1})",
        "q if (\"k\", \"v\" in input.missing) == false",
        "q if {false: 1}[(1 in input.missing)]",
        "q if input.y == false with input.y as (1 in input.missing)",
        "q if input.x with input.x as true with input.y as (1 in input.missing) with input.z as 1",
    ];
    let v0 = [
        "q = 1 in input.missing",
        "q { (1 in input.missing) == false }",
        "q { false } { (1 in input.missing) == false }",
        "q = 1 { false } else = 1 in input.missing { true }",
        "s[1 in input.missing] { true }\nq { count(s) > 0 }",
    ];
    let v1 = v1.map(|rules| format!("package p\nno(x) := x == 0\n{rules}\n"));
    let v0 = v0.map(|rules| format!("package p\nimport future.keywords.in\n{rules}\n"));
    let input = json!({"k": 1});
    for text in v1.iter().chain(&v0) {
        let policy = compile(text);
        let found = evaluate(&policy, "p.q", &input, Timestamp::UNIX_EPOCH);
        assert_eq!(found, Ok(Answer::Undefined), "{text}");
        let with_values = text.replace("input.missing", "[7]");
        let policy = compile(&with_values);
        let found = evaluate(&policy, "p.q", &input, Timestamp::UNIX_EPOCH).unwrap();
        let is_condition = ["q if 1 in [7]\n", "q if (\"zz\", [7] in"];
        let holds = !is_condition.iter().any(|one| with_values.contains(one));
        assert_eq!(found != Answer::Undefined, holds, "{with_values}");
    }
}

#[test]
fn membership_in_a_head_is_refused_or_undefined() {
    for rules in [
        "f((1 in input.missing)) := 1\nq := f(false)",
        "o[(1 in input.missing)] := 1\nq if count(o) > 0",
        "default q := (1 in input.missing)",
        "default q := [1 in input.missing]",
        "q if { some (1 in input.missing) in [false] }",
        "q if { some (1 in input.missing), x in {false: 1} }",
        "q if { [(1 in input.missing), x] := [false, 1] }",
        "q if { [(1 in input.missing), x] = [false, 1] }",
    ] {
        let Ok(policy) = try_compile(&format!("package p\n{rules}\n")) else {
            continue;
        };
        let found = evaluate(&policy, "p.q", &input(), Timestamp::UNIX_EPOCH);
        assert!(
            matches!(found, Ok(Answer::Undefined) | Err(_)),
            "{rules}: {found:?}"
        );
    }
}

/// Checks that a policy can use the names that the rewriting would add.
#[test]
fn names_of_the_rewriting_are_free_for_policies() {
    let policy = compile(
        "package p\n__oz_in(x, y) := true\n__oz0 := 7\ninternal := 1\nq := [1 in [2], __oz_in(1, 2), __oz0, x] if { x := __oz0; 1 in [1] }\n",
    );
    let found = evaluate(&policy, "p.q", &input(), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(found, Answer::Document(json!([false, true, 7, 7])));
}

/// Checks one statement for each way in which a body can be written.
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
fn lines_below_a_statement_with_clauses_stay_where_they_are() {
    let text = "package p\nq if {\n  not input.x\n    with input.x as [\n      input.missing\n    ]\n    with input.y as 1\n  1\n    in\n    [1]\n    with input.x as # one\n      input.a\n}\nr := 1\nr := 2\n";
    let policy = compile(text);
    let error = evaluate(&policy, "p.r", &input(), Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(error.to_string().starts_with("p.rego:15: "), "{error}");
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
        let wanted = format!("variable {name} is used in `not` and has no value outside of it: ");
        assert!(error.message.starts_with(&wanted), "{error}");
    }
    let errors = try_compile("package p\n\nq if not x := input.a").unwrap_err();
    assert!(errors.to_string().contains("`==` instead of `:=`"));
}

/// An expression, and the fields of the input that it reads where an undefined value makes it undefined.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    reads: BTreeSet<&'static str>,
}

impl Part {
    fn new(text: String, parts: &[&Self]) -> Self {
        let reads = parts.iter().flat_map(|part| part.reads.iter().copied());
        Self {
            text,
            reads: reads.collect(),
        }
    }
}

/// Returns a number.
fn number() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        (0..9_i32).prop_map(|number| Part::new(number.to_string(), &[])),
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
                .prop_map(|x| Part::new(format!("f({})", x.text), &[&x])),
            (
                inner.clone(),
                prop::sample::select(vec!["+", "-", "*"]),
                inner.clone()
            )
                .prop_map(|(x, sign, y)| Part::new(
                    format!("({} {sign} {})", x.text, y.text),
                    &[&x, &y]
                )),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| Part::new(
                format!("count([{}, {{\"k\": {}}}])", x.text, y.text),
                &[&x, &y]
            )),
            inner
                .clone()
                .prop_map(|x| Part::new(format!("[7, 8, 9][abs({}) % 3]", x.text), &[&x])),
            // An undefined value in a comprehension leaves it empty.
            inner.prop_map(|x| Part::new(
                format!("count([y | y := {}; not y > input.d])", x.text),
                &[]
            )),
        ]
    })
}

/// Returns an expression that is true or false, and is not an equation, because a `not` evaluates the sides of an
/// equation.
fn condition() -> impl Strategy<Value = Part> {
    let compared = (
        number(),
        prop::sample::select(vec!["<", "<=", ">", ">=", "!="]),
        number(),
    );
    prop_oneof![
        compared
            .prop_map(|(x, sign, y)| Part::new(format!("{} {sign} {}", x.text, y.text), &[&x, &y])),
        (number(), number())
            .prop_map(|(x, y)| Part::new(format!("{} in [{}, \"x\"]", x.text, y.text), &[&x, &y])),
        (number(), number(), number()).prop_map(|(x, y, z)| Part::new(
            format!("{}, ({}) in [{}, 7]", x.text, y.text, z.text),
            &[&x, &y, &z]
        )),
        (number(), number()).prop_map(|(x, y)| Part::new(
            format!("({}) in\n[1] # in\n in [{}, true]", x.text, y.text),
            &[&x, &y]
        )),
        number().prop_map(|x| Part::new(format!("is_number({})", x.text), &[&x])),
        number().prop_map(|x| Part::new(
            format!("startswith(sprintf(\"%d\", [{}]), \"1\")", x.text),
            &[&x]
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Checks a statement and its negation: one of them holds if everything has a value, and neither holds if a part
    /// has none.
    #[test]
    fn negated_statement_holds_if_all_has_values_and_it_does_not(
        condition in condition(), missing in prop::option::of(prop::sample::select(vec!["a", "b", "c"])),
    ) {
        let text = format!(
            "package p\nf(x) := x\nyes if {{ {0} }}\nno if {{ not {0} }}\nbare if not {0}\nis_false if ({0}) == false\n", condition.text,
        );
        let policy = match try_compile(&text) {
            Err(errors) if errors.errors()[0].reason == Reason::Size => {
                return Err(TestCaseError::reject("nested too deeply"));
            }
            compiled => compiled.unwrap(),
        };
        let mut input = json!({"a": 1, "b": -2, "c": 30, "d": 4});
        if let Some(missing) = missing {
            input.as_object_mut().unwrap().remove(missing);
        }
        let [yes, no, bare, is_false] = ["p.yes", "p.no", "p.bare", "p.is_false"].map(|path| !undefined(&policy, path, &input));
        let has_values = missing.is_none_or(|missing| !condition.reads.contains(missing));
        prop_assert_eq!(no, has_values && !yes, "{}", condition.text);
        prop_assert_eq!(bare, no);
        prop_assert_eq!(is_false, no);
        prop_assert!(has_values || !yes);
    }
}
