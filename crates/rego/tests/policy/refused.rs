//! Policies that do not compile, and their errors.

use jiff::Timestamp;
use oz_rego::{CompileErrors, Policy, Reason};
use serde_json::json;

use crate::common::{answer, try_compile};

fn refused(text: &str) -> CompileErrors {
    match try_compile(text) {
        Ok(policy) => panic!("{policy:?} compiled: {text}"),
        Err(errors) => errors,
    }
}

#[test]
fn impure_builtin_is_rejected_with_name_and_line() {
    for (name, call) in [
        (
            "http.send",
            "http.send({\"url\": \"http://a\", \"method\": \"get\"})",
        ),
        ("rand.intn", "rand.intn(\"a\", 5)"),
        ("uuid.rfc4122", "uuid.rfc4122(\"a\")"),
        ("opa.runtime", "opa.runtime()"),
        ("net.lookup_ip_addr", "net.lookup_ip_addr(\"a\")"),
    ] {
        for text in [
            format!("package p\n\nx := {call}"),
            format!("package p\n\nx := [y | y := {call}]"),
            format!("package p\n\nx[y] {{ y := {call} }}"),
        ] {
            let errors = refused(&text);
            let error = &errors.errors()[0];
            assert_eq!(error.reason, Reason::NotAFunctionOfInput, "{errors}");
            assert_eq!((error.file.as_str(), error.line), ("p.rego", 3), "{errors}");
            assert!(error.message.contains(name), "{errors}");
        }
    }
}

#[test]
fn none_of_them_gets_in_by_a_with() {
    for text in [
        "package p\nf(x) := x\nx := y if y := f(1) with f as rand.intn",
        "package p\nx if true with rand.intn as 5",
        "package p\nx := y if { y := rand[\"intn\"](\"a\", 5) }",
        "package p\nimport data.rand\nx := rand.intn(\"a\", 5)",
    ] {
        let errors = refused(text);
        assert_eq!(
            errors.errors()[0].reason,
            Reason::NotAFunctionOfInput,
            "{errors}"
        );
    }
}

#[test]
fn a_function_that_does_not_exist_is_named_with_its_line() {
    let errors = refused("package p\n\nx := 1\n\ny := conct(\",\", [\"a\"])\nz := data.lib.f(1)\n");
    let found: Vec<String> = errors.errors().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "p.rego:5:6: unknown function conct",
            "p.rego:6:6: unknown function data.lib.f"
        ]
    );
}

/// The compiler rejects such text as OPA does: otherwise text that is not a policy would be a policy that returns no
/// children.
#[test]
fn words_that_are_no_rules_are_refused() {
    for text in [
        "package p\n\nthis is no policy",
        "package p\n\nbroken",
        "package p\nimport rego.v1\n\nbroken",
        "package p\n\nx { true } broken",
    ] {
        let errors = refused(text);
        let error = &errors.errors()[0];
        assert_eq!(error.reason, Reason::Syntax, "{errors}");
    }
}

/// The interpreter would report the variable only when it reaches it.
#[test]
fn a_variable_that_nothing_gives_a_value_is_named() {
    for text in [
        "package p\n\nx := y + 1",
        "package p\n\nx[y] { true }",
        "package p\n\nx = y { true }",
        "package p\n\nf(x) = y { true }",
        "package p\n\nx[z] { false; z := y }",
        "package p\n\nx { false; y }",
        "package p\n\nx[z] { false; z := [a | a := y.b] }",
        "package p\n\nx { false; not y == 1 }",
        "package p\n\nx { false; count(y) == 1 }",
        "package p\n\nx if { false; y in input.a }",
        "package p\n\nx if { false; y, 1 in input.a }",
    ] {
        let errors = refused(text);
        let found = &errors.errors()[0];
        assert_eq!(
            (found.reason, found.line),
            (Reason::Semantics, 3),
            "{errors}"
        );
        assert!(found.message.contains(" y"), "{errors}");
    }
}

#[test]
fn a_variable_may_be_given_its_value_anywhere() {
    for text in [
        "package p\nx[y] { y := 1 }",
        "package p\nx[y] { input.a[y] }",
        "package p\nx { [y, {\"a\": z}] = input.a; y == z }",
        "package p\nx { input.a = y; y > 1 }",
        "package p\nx { split(\"a,b\", \",\", y); y == [\"a\", \"b\"] }",
        "package p\nx { walk(input, [y, z]); y == z }",
        "package p\nf([y, z]) = y + z { true }",
        "package p\ny := 1\nx[y] { true }",
        "package p\nimport data.p.w as y\nimport input.a as z\nw := 1\nx { y == z }",
        "package p\nx contains y if some y in input.a",
        "package p\nx contains y if some y, z in input.a",
        "package p\nx if every y, z in input.a { y == z }",
        "package p\nx := {y: z | some y; z := input.a[y]}",
        "package p\nx := input[_][_]",
    ] {
        try_compile(text).unwrap();
    }
}

#[test]
fn a_call_with_too_few_or_too_many_parameters_is_refused() {
    for call in [
        "count()",
        "time.now_ns(1, 2)",
        "split(\"a\")",
        "count(1, 2, 3)",
    ] {
        let errors = refused(&format!("package p\n\nx := 1 {{ false; {call} }}"));
        let found = &errors.errors()[0];
        assert!(found.message.contains("parameters"), "{errors}");
    }
}

/// Before OPA 1.0 a name with a member, and nothing else, was a set.
#[test]
fn a_member_alone_is_a_set_as_it_was_before_1_0() {
    for text in ["package p\n\nx[\"a\"]", "package p\n\nx.a"] {
        let policy = try_compile(text).unwrap();
        assert_eq!(policy.language(), oz_rego::Language::V0, "{text}");
        assert_eq!(
            answer(&policy, "p", &json!({}), Timestamp::UNIX_EPOCH),
            json!({"x": ["a"]}),
            "{text}"
        );
    }
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    for text in [
        "package p\nf(x) := f(x)",
        "package p\nf(x) := g(x)\ng(x) := h(x)\nh(x) := data.p.f(x)",
        "package p\ng(x) := x\nf(x) := y if y := g(x) with g as f",
    ] {
        let errors = refused(text);
        assert!(
            errors.errors()[0].message.contains("is recursive: "),
            "{errors}"
        );
        assert!(errors.errors()[0].line > 0);
    }
}

#[test]
fn syntax_error_is_reported_in_best_matching_language() {
    let v0 = refused("package p\n\na[x] { x := input.a }\n\nb[x] { x := }\n");
    assert_eq!(
        (v0.errors()[0].line, v0.errors()[0].reason),
        (5, Reason::Syntax),
        "{v0}"
    );
    let v1 = refused("package p\n\na contains x if x := input.a\n\nb contains x if x :=\n");
    assert!(v1.errors()[0].line >= 5, "{v1}");
    assert!(!v1.to_string().contains('\n'), "{v1}");
}

#[test]
fn all_invalid_modules_are_reported() {
    let modules = [
        ("a.rego", "package a\nx := }"),
        ("b.rego", "package b\nx := 1"),
        ("c.rego", "packge c"),
    ];
    let modules = modules.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let errors = Policy::compile(&modules).unwrap_err();
    let files: Vec<&str> = errors
        .errors()
        .iter()
        .map(|error| error.file.as_str())
        .collect();
    assert_eq!(files, ["a.rego", "c.rego"]);
}

#[test]
fn rules_that_need_each_other_fail_when_they_are_asked() {
    let policy = try_compile("package p\n\nx := y\ny := x").unwrap();
    let error = crate::common::evaluate(
        &policy,
        "p.x",
        &serde_json::json!({}),
        jiff::Timestamp::UNIX_EPOCH,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("p.rego:3: recursion detected"), "{error}");
}
