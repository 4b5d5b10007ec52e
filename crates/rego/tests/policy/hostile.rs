//! Policies with hostile authors: a limit ends them, and the process continues.

use std::time::Duration;

use jiff::Timestamp;
use oz_rego::bounds::{MAX_BYTES, MAX_DEPTH, MAX_MODULES};
use oz_rego::{Answer, EvaluateError, Limits, Policy, Reason};
use serde_json::{Value, json};

use crate::common::{compile, try_compile};

/// Returns limits that are small enough to end an endless evaluation soon.
fn limits() -> Limits {
    Limits {
        time: Duration::from_millis(500),
        bytes: 1 << 20,
        ..Limits::default()
    }
}

fn ask(policy: &Policy) -> Result<Answer, EvaluateError> {
    policy.evaluate("p.x", &json!({}), Timestamp::UNIX_EPOCH, &limits())
}

fn stopped(text: &str) -> EvaluateError {
    match ask(&compile(text)) {
        Ok(answer) => panic!("it ended: {answer:?}"),
        Err(error) => error,
    }
}

/// Returns policies of which each, without bounds, overflows the parser's stack or keeps it busy for years.
fn nested(levels: usize) -> Vec<String> {
    let around = |open: &str, inner: &str, close: &str| {
        format!(
            "package p\nx := {}{inner}{}",
            open.repeat(levels),
            close.repeat(levels)
        )
    };
    let in_v0 = |body: String| format!("package p\nx {{ {body} }}");
    vec![
        around("[", "1", "]"),
        around("{", "1", "}"),
        around("(", "1", ")"),
        around("{\"a\":", "1", "}"),
        around("{1:[", "1", "]}"),
        around("[x | x := ", "[1]", "]"),
        around("[1 | ", "true", "]"),
        around("{x | y = ", "1", "}"),
        around("{x: 1 | y = ", "1", "}"),
        around("count(", "[]", ")"),
        around("a[", "1", "]"),
        around("- ", "1", ""),
        around("-[", "1", "]"),
        around("", "1", " + 1"),
        around("", "1", " +\n1"),
        around("", "input", ".a"),
        around("", "input", "[1]"),
        around("", "1", " in [1]"),
        around("", "{1}", " | {1}"),
        around("", "1", "\n== 1"),
        around("[", "", ""),
        around("{\"a\":[{", "", ""),
        around("not ", "1", ""),
        in_v0("not [".repeat(levels)),
        in_v0(format!(
            "y := {}1{}",
            "[{".repeat(levels),
            "}]".repeat(levels)
        )),
        in_v0("every x in [".repeat(levels)),
    ]
}

#[test]
fn deep_nesting_is_refused_before_it_is_parsed() {
    for levels in [MAX_DEPTH + 1, 5_000, 20_000] {
        for text in nested(levels) {
            let shown: String = text.chars().take(60).collect();
            match try_compile(&text) {
                Ok(_) => panic!("{levels} levels compiled: {shown}"),
                // Adjacent words are not nested; the parser rejects them.
                Err(errors) if shown.contains("not 1") || shown.contains("not not") => {
                    assert_ne!(errors.errors()[0].line, 0);
                }
                Err(errors) => {
                    assert_eq!(errors.errors()[0].reason, Reason::Size, "{shown}: {errors}")
                }
            }
        }
    }
}

#[test]
fn moderately_nested_policy_is_parsed_in_bounded_time_and_stack() {
    for levels in [4, 11, 40, MAX_DEPTH - 5] {
        for text in nested(levels) {
            // The compilation ends, with any result.
            let _ = try_compile(&text);
        }
    }
}

#[test]
fn a_policy_is_bounded_in_bytes_modules_and_statements() {
    let comment = format!("package p\n#{}", " ".repeat(MAX_BYTES));
    assert_eq!(
        try_compile(&comment).unwrap_err().errors()[0].reason,
        Reason::Size
    );
    let many: Vec<_> = (0..=MAX_MODULES)
        .map(|n| (n.to_string(), "package p".to_owned()))
        .collect();
    assert_eq!(
        Policy::compile(&many).unwrap_err().errors()[0].reason,
        Reason::Size
    );
    assert_eq!(
        Policy::compile(&[]).unwrap_err().errors()[0].reason,
        Reason::Size
    );
    let rules: String = (0..20_000).map(|n| format!("\na{n} := [{n}]")).collect();
    assert_eq!(
        try_compile(&format!("package p{rules}"))
            .unwrap_err()
            .errors()[0]
            .reason,
        Reason::Size
    );
    assert_eq!(
        try_compile("package p\nx := 1e999999999")
            .unwrap_err()
            .errors()[0]
            .reason,
        Reason::Size
    );
    assert_eq!(
        try_compile("package p\nx := 1e+99999")
            .unwrap_err()
            .errors()[0]
            .reason,
        Reason::Size
    );
}

#[test]
fn rules_that_stand_on_each_other_do_not_overflow_the_stack() {
    let mut text = "package p\nr0 := [1]\nf0(v) := [v]\n".to_owned();
    for n in 1..500 {
        let before = n - 1;
        text +=
            &format!("r{n} := [[[[r{before}]]]][0][0][0] if {{ count([1 | r{before}]) > 0 }}\n");
        text += &format!("f{n}(v) := w if {{ w := {{\"a\": [f{before}(v)]}}.a[0] }}\n");
    }
    text += "x := [count(r499), count(f499(1))]\n";
    let policy = compile(&text);
    let long = Limits {
        time: Duration::from_secs(60),
        ..limits()
    };
    let answer = policy
        .evaluate("p.x", &json!({}), Timestamp::UNIX_EPOCH, &long)
        .unwrap();
    assert_eq!(answer, Answer::Document(json!([1, 1])));
}

#[test]
fn functions_that_double_the_depth_of_a_value_are_refused() {
    let mut text = "package p\nf0(v) := [v]\n".to_owned();
    for n in 1..40 {
        let before = n - 1;
        text += &format!("f{n}(v) := f{before}(f{before}(v))\n");
    }
    let errors = try_compile(&format!("{text}x := f39(1)")).unwrap_err();
    assert!(
        errors.to_string().contains("nests its values too deeply"),
        "{errors}"
    );
}

#[test]
fn loops_that_never_end_are_stopped() {
    let text = "package p\nn := numbers.range(1, 1000)\nx := count([1 | n[a]; n[b]; n[c]; n[d]])";
    assert_eq!(stopped(text), EvaluateError::Time(limits().time));
    // The limit is also not an error that a `not` turns into an answer.
    let text = "package p\nn := numbers.range(1, 1000)\nf(y) if { n[a]; n[b]; n[c]; n[d] == y }\nx if not f(0)";
    assert_eq!(stopped(text), EvaluateError::Time(limits().time));
}

#[test]
fn builtin_call_is_stopped_at_work_limit() {
    for call in [
        "numbers.range(1, 1000000000000)",
        "numbers.range(-9223372036854775808, 9223372036854775807)",
        "numbers.range(1, 100000000000000000000000000)",
        "numbers.range_step(1, 1000000000000, 2)",
        "net.cidr_expand(\"::/0\")",
        "net.cidr_expand(\"10.0.0.0/8\")",
        "bits.lsh(1, 4000000000)",
        "to_number(\"1e999999999\")",
        "units.parse(\"1e999999999\")",
        "sprintf(\"%1000000000d\", [1])",
        "sprintf(\"%01000000000d\", [-1])",
    ] {
        let error = stopped(&format!("package p\nx := {call}"));
        assert!(matches!(error, EvaluateError::Work(_)), "{call}: {error}");
        assert!(
            error.to_string().starts_with("the policy was stopped: "),
            "{error}"
        );
    }
}

/// Returns a policy that applies a step forty times, each time to the result of the previous step.
fn doubling(first: &str, step: &str) -> String {
    let mut text = format!("package p\nr0 := {first}\n");
    for n in 1..=40 {
        text += &format!("r{n} := {}\n", step.replace('@', &format!("r{}", n - 1)));
    }
    text
}

#[test]
fn doubling_value_is_stopped() {
    for (first, step) in [
        ("\"a\"", "concat(\"\", [@, @])"),
        ("\"aa\"", "replace(@, \"a\", \"aa\")"),
        ("\"aa\"", "strings.replace_n({\"a\": \"aa\"}, @)"),
        ("\"aa\"", "regex.replace(@, \"a\", \"aa\")"),
        ("\"aa\"", "sprintf(\"%v%v\", [@, @])"),
        ("[1]", "array.concat(@, @)"),
    ] {
        let error = stopped(&format!("{}x := count(r40)", doubling(first, step)));
        let ended = matches!(error, EvaluateError::Work(_) | EvaluateError::Time(_));
        assert!(ended, "{step}: {error}");
    }
}

#[test]
fn values_that_share_their_parts_are_not_written_out() {
    let shared = doubling("[1]", "[@, @]");
    for use_of in [
        "json.marshal(r40)",
        "[p | walk(r40, [p, v])]",
        "sprintf(\"%v\", [r40])",
    ] {
        let error = stopped(&format!("{shared}x := {use_of}"));
        assert!(matches!(error, EvaluateError::Work(_)), "{use_of}: {error}");
    }
    let error = stopped(&format!("{shared}x := r40"));
    assert_eq!(error, EvaluateError::Bytes(limits().bytes));
}

#[test]
fn an_answer_is_bounded_in_bytes_and_levels() {
    let text =
        "package p\nx := [s | numbers.range(1, 2000)[_]; s := concat(\"\", [input.s, input.s])]";
    let input = json!({"s": "a".repeat(1000)});
    let error = compile(text).evaluate(
        "p.x",
        &input,
        Timestamp::UNIX_EPOCH,
        &crate::common::limits(),
    );
    // The value is a list; as a set it would have one element.
    assert!(
        matches!(error, Ok(Answer::Document(Value::Array(_)))),
        "{error:?}"
    );
    let long = Limits {
        bytes: 1 << 20,
        ..crate::common::limits()
    };
    let error = compile(text)
        .evaluate("p.x", &input, Timestamp::UNIX_EPOCH, &long)
        .unwrap_err();
    assert_eq!(error, EvaluateError::Bytes(1 << 20));
    let mut deep = "package p\nr0 := [1]\n".to_owned();
    for n in 1..200 {
        deep += &format!("r{n} := [r{}]\n", n - 1);
    }
    assert_eq!(
        stopped(&format!("{deep}x := r199")),
        EvaluateError::Depth(100)
    );
}

#[test]
fn an_input_is_bounded_in_levels() {
    let mut input = json!(1);
    for _ in 0..1000 {
        input = json!([input]);
    }
    let error =
        compile("package p\nx := 1").evaluate("p.x", &input, Timestamp::UNIX_EPOCH, &limits());
    assert!(matches!(error, Err(EvaluateError::Input(_))), "{error:?}");
}

#[test]
fn bodies_that_repeat_a_long_head_are_refused() {
    // The interpreter reads a rule for each body: 40 times the head, 20 MiB.
    let head = format!("p[\"{}\"]", "x".repeat(MAX_BYTES / 2));
    let text = format!("package p\n{head} {}", "{ true } ".repeat(40));
    let errors = try_compile(&text).unwrap_err();
    assert_eq!(errors.errors()[0].reason, Reason::Size, "{errors:.300}");
}
