//! Built-in functions with each kind of value, and results that the interpreter's own functions do not have.

use jiff::Timestamp;
use oz_rego::{Dialect, EvaluateError, Language, Policy};
use serde_json::{Value, json};

use crate::common::{answer, evaluate, try_compile};

/// Values of each kind, with texts that functions read and texts beyond ASCII.
const VALUES: &[&str] = &[
    "null",
    "true",
    "0",
    "-1",
    "3",
    "1.5",
    "9223372036854775807",
    "1e300",
    "``",
    "`a`",
    "`1ö`",
    "`2006-01-02ö`",
    "`1.2.3`",
    "`10.0.0.0/33`",
    "`{`",
    "`[`",
    "`%5d%s`",
    "[]",
    "[1]",
    "[``, `ö`]",
    "[1, `Europe/Berlin`, `ö`]",
    "{}",
    "{`a`: 1}",
    "{``: `ö`}",
    "set()",
    "{1}",
    "{`ö`}",
    "[[1], {`a`: [null]}]",
];

/// The same, for functions with many parameters.
const FEWER: &[&str] = &[
    "null",
    "-1",
    "3",
    "`1ö`",
    "`a`",
    "[]",
    "[`ö`]",
    "{`ö`: 1}",
    "{`a`}",
];

/// A function, as a policy calls it.
struct Function {
    name: String,
    /// The operator, if the function is one.
    infix: Option<String>,
    arity: usize,
    language: Language,
}

impl Function {
    /// Reads a function of the capabilities; `None` for those that have no call of their own.
    fn read(builtin: &Value) -> Option<Self> {
        let name = builtin["name"].as_str().unwrap().to_owned();
        let infix = builtin["infix"].as_str().map(ToOwned::to_owned);
        // `:=` defines a name, and `print` calls the other one.
        if matches!(name.as_str(), "assign" | "internal.print") {
            return None;
        }
        let arity = builtin["decl"]["args"].as_array().map_or(0, Vec::len);
        let arity = if name == "print" { 1 } else { arity };
        let language = match builtin.get("deprecated") {
            Some(_) => Language::V0,
            None => Language::V1,
        };
        Some(Self {
            name,
            infix,
            arity,
            language,
        })
    }

    /// Returns the statement that calls the function with these arguments.
    fn statement(&self, arguments: &[String]) -> String {
        let all = arguments.join(", ");
        match (self.name.as_str(), &self.infix, arguments) {
            ("print" | "trace", ..) => format!("{}({all})", self.name),
            ("walk", ..) => format!("walk({all}, [_, _])"),
            ("internal.member_3", _, [key, value, collection]) => {
                format!("{key}, {value} in {collection}")
            }
            (_, Some(infix), [one, other]) => format!("{one} {infix} {other}"),
            _ => format!("_ = {}({all})", self.name),
        }
    }

    /// Calls the function with all values of its parameters behind `first`, in one evaluation if none of them ends it.
    fn call(&self, first: &mut Vec<&'static str>, calls: &mut u32) {
        let Self { name, arity, .. } = self;
        // Most pairs of values end an evaluation of an operator.
        let is_many = *arity > 2 || self.infix.is_some();
        let values = if is_many { FEWER } else { VALUES };
        let names: Vec<String> = (0..*arity).map(|at| format!("a{at}")).collect();
        let given = first.iter().enumerate();
        let given = given.map(|(at, value)| format!("a{at} := {value}; "));
        let open = names[first.len()..]
            .iter()
            .map(|name| format!("{name} := values[_]; "));
        let before: String = given.chain(open).collect();
        let text = format!(
            "package p\nimport future.keywords.in\nvalues := [{}]\nx := count([1 | {before}{}])\n",
            values.join(", "),
            self.statement(&names)
        );
        let dialect = Dialect {
            language: Some(self.language),
            strict: false,
        };
        let policy = Policy::compile_as(&[("p.rego".to_owned(), text.clone())], dialect);
        let policy = policy.unwrap_or_else(|errors| panic!("{name}: {errors}: {text}"));
        *calls += 1;
        let stops = match evaluate(&policy, "p.x", &json!({}), Timestamp::UNIX_EPOCH) {
            Ok(_) => false,
            Err(EvaluateError::Work(_)) => true,
            // The interpreter's operators do not accept all types.
            Err(EvaluateError::Failed { message, .. })
                if self.infix.is_some() && !message.contains("panicked") =>
            {
                true
            }
            Err(error) => panic!("{name}{first:?}: {error}"),
        };
        if stops && first.len() < *arity {
            for value in values {
                first.push(value);
                self.call(first, calls);
                first.pop();
            }
        }
    }
}

#[test]
fn builtin_with_any_kind_of_value_does_not_panic() {
    let capabilities = oz_rego::capabilities();
    let builtins = capabilities["builtins"].as_array().unwrap();
    let (mut functions, mut calls) = (0, 0_u32);
    for function in builtins.iter().filter_map(Function::read) {
        function.call(&mut Vec::new(), &mut calls);
        functions += 1;
    }
    assert_eq!(functions + 2, builtins.len());
    assert!(calls > 100);
}

fn x(expression: &str, input: &Value) -> Value {
    let policy = try_compile(&format!("package p\nx := {expression}")).unwrap();
    answer(&policy, "p.x", input, Timestamp::UNIX_EPOCH)
}

/// The expected values are those of OPA 1.22.4.
#[test]
fn builtin_answers_as_opas_does() {
    for (expression, want) in [
        (r"regex.match(`^\w+$`, `é`)", json!(false)),
        (r"regex.match(`^\Qa.b\E$`, `a.b`)", json!(true)),
        (r"regex.match(`\bfoo\B.`, `xx foobar`)", json!(true)),
        (
            "time.add_date(1769817600000000000, 0, 1, 0)",
            json!(1_772_496_000_000_000_000_i64),
        ),
        ("upper(`ſß`)", json!("Sß")),
        (
            "sprintf(`%5d|%-5d|%+d|%x|%o|%08.3f|%e|%g|%q`, [1, 2, 3, 255, 8, 3.14159, 1234.5678, 1e21, `a`])",
            json!("    1|2    |+3|ff|10|0003.142|1.234568e+03|1e+21|\"a\""),
        ),
        ("sprintf(`%d %s`, [1])", json!("1 %!s(MISSING)")),
        ("sprintf(`%d`, [1, `a`])", json!("1%!(EXTRA string=a)")),
        ("sprintf(`%t`, [true])", json!("%!t(string=true)")),
        ("glob.match(`a**b`, [`/`], `a/x/b`)", json!(true)),
        ("object.subset([1], [])", json!(true)),
        ("strings.count(`äöü`, ``)", json!(4)),
        ("semver.compare(`v1.2.3`, `1.2.4`)", json!(-1)),
        (
            "yaml.marshal({`a`: [1, {`b`: `c`, `d`: []}], `e`: `yes`, `f`: {`g`: null}, `h`: `x: y`})",
            json!("a:\n  - 1\n  - b: c\n    d: []\ne: \"yes\"\nf:\n  g: null\nh: 'x: y'\n"),
        ),
        ("-input.a", json!(-5)),
        ("-input.a * 2", json!(-10)),
        (
            "[y | some y in [1, 2]; z := [y | some y in [3]]; z == [3]]",
            json!([1, 2]),
        ),
        (
            "[v | [[`a`], v] = walk({`a`: {`b`: 1}, `c`: 2})]",
            json!([{"b": 1}]),
        ),
        ("[1 | `a`, `a` in {`a`}]", json!([1])),
    ] {
        assert_eq!(x(expression, &json!({"a": 5})), want, "{expression}");
    }
}

#[test]
fn content_of_an_input_that_is_no_time_is_undefined() {
    for expression in [
        "time.parse_duration_ns(input.t)",
        "time.parse_ns(input.t, input.t)",
        "time.parse_rfc3339_ns(input.t)",
        "numbers.range_step(1, 5, 0)",
    ] {
        let policy = try_compile(&format!("package p\nx := {expression}")).unwrap();
        for text in ["1ö", "ö", "", "2006-01-02T15:04:05ö"] {
            let input = json!({"t": text});
            let answer = evaluate(&policy, "p.x", &input, Timestamp::UNIX_EPOCH).unwrap();
            let parsed_itself = expression.starts_with("time.parse_ns");
            assert!(
                answer.document().is_none() || parsed_itself,
                "{expression} {text}"
            );
        }
    }
}

#[test]
fn policy_of_opa_compiles_and_has_its_answer() {
    for (text, want) in [
        (
            "package p\nx contains y if { y := 1 } { y := 2 }",
            json!([1, 2]),
        ),
        ("package p\nx[y] { y := 1 } { y := 2 }", json!([1, 2])),
        ("package p\nf(\"a\")\nx := f(\"a\")", json!(true)),
        ("package p\nx if { y := input.a\n(y == 5) }", json!(true)),
        (
            "package p\nf(v) := v\nx := y if { y := f(\"a\") with f as upper }",
            json!("A"),
        ),
        (
            "package p\nx := y if { y := 3; z := [y | y := [4][_]]; z == [4] }",
            json!(3),
        ),
        (
            "package p\nx if { y := 3; every v in [1] { y := v + 1; y > v }; y == 3 }",
            json!(true),
        ),
        (
            "package p\nx := y if { uuid.parse(input.b, _); y := 1 } else := 2",
            json!(2),
        ),
        (
            "package p\nimport future.keywords\nx if { not upper(input.missing) == \"A\" }",
            json!(true),
        ),
    ] {
        let policy = try_compile(text).unwrap_or_else(|errors| panic!("{errors}: {text}"));
        let input = json!({"a": 5, "b": "no"});
        assert_eq!(
            answer(&policy, "p.x", &input, Timestamp::UNIX_EPOCH),
            want,
            "{text}"
        );
    }
}

/// 18 KB of an ordinary object are within the bounds.
#[test]
fn large_ordinary_policy_compiles() {
    let one = |at: u32| {
        format!(
            "children contains child if {{\n\tsome team in input.teams\n\tchild := {{\"apiVersion\": \"v1\", \"kind\": \
             \"ConfigMap\", \"metadata\": {{\"name\": sprintf(\"%s-{at}\", [team.name]), \"labels\": {{\"a\": {{\"b\": \
             [{{\"c\": [team]}}]}}}}}}, \"spec\": {{\"template\": {{\"spec\": {{\"containers\": [{{\"env\": \
             [{{\"name\": \"A\", \"value\": team.name}}]}}]}}}}}}}}\n}}\n"
        )
    };
    let rules: String = (0..100).map(one).collect();
    assert!(rules.len() > 18_000);
    assert!(try_compile(&format!("package p\n{rules}")).is_ok());
}
