//! Tests of the limits of commands, for any author.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::super::{AccessCommand, AccessCommandError, MAX_MESSAGE};
use super::{metadata, render};

#[test]
fn never_prints_a_structure() {
    for source in [
        "{{ . }}",
        "{{ .Metadata }}",
        "{{ print .Metadata }}",
        "{{ printf \"%v\" . }}",
        "{{ printf \"%q\" .Metadata }}",
        "{{ .Metadata.OwnerReferences }}",
    ] {
        let error = render(source).unwrap_err().to_string();
        assert!(
            error.starts_with("prints a whole structure"),
            "{source}: {error}"
        );
    }
}

#[test]
fn a_message_has_its_limit() {
    assert_eq!(
        render(&"x".repeat(MAX_MESSAGE)).map(|text| text.len()),
        Ok(MAX_MESSAGE)
    );
    assert_eq!(
        render("{{ range .Metadata.Labels }}{{ range 100 }}0123456789abcdef{{ end }}{{ end }}"),
        Err(AccessCommandError::TooLong)
    );
    let doubling = format!(
        "{{{{ $a := \"0123456789\" }}}}{}",
        "{{ $a = print $a $a }}".repeat(60)
    );
    assert_eq!(render(&doubling), Err(AccessCommandError::TooLong));
    let piped = format!(
        "{{{{ $a := \"0123456789\" }}}}{}",
        "{{ $a = ($a | print $a) }}".repeat(60)
    );
    assert_eq!(render(&piped), Err(AccessCommandError::TooLong));
    assert_eq!(
        render("{{ printf \"%9999d\" 1 }}"),
        Err(AccessCommandError::TooLong)
    );
    assert!(render("{{ range 9999 }}{{ end }}").is_err());
    assert!(render(&"{{ if true }}".repeat(300)).is_err());
    assert!(render(&format!("{{{{ {} }}}}", "(".repeat(3000))).is_err());
}

#[test]
fn a_command_has_its_limit() {
    for source in [
        "x".repeat(MAX_MESSAGE + 1),
        format!("{{{{ if true }}}}{}", "{{ else if true }}".repeat(100_000)),
    ] {
        let error = render(&source).unwrap_err().to_string();
        assert_eq!(error, "is longer than 4096 bytes");
    }
    // As deep as the limits permit, and deeper.
    for count in [10, 31, 62, 63, 64, 100, 1000] {
        for (part, end) in [
            ("{{else if 1}}", "{{end}}"),
            ("{{with 1}}", ""),
            ("{{with 1}}", "{{end}}"),
            ("{{else}}{{if 1}}", ""),
            ("{{if 1}}{{$x := (1)}}", ""),
            ("(", ")"),
        ] {
            let inside = part.repeat(count);
            let end = if end == "{{end}}" && count > 1 {
                end.repeat(2)
            } else {
                end.repeat(count)
            };
            let _ = render(&format!("{{{{if 1}}}}{inside}{end}"));
            let _ = render(&format!("{{{{if {inside}1{end}}}}}{{{{end}}}}"));
        }
    }
    let nested = |count: usize| format!("{}x{}", "{{if 1}}".repeat(count), "{{end}}".repeat(count));
    assert_eq!(render(&nested(32)), Ok("x".to_owned()));
    assert!(render(&nested(33)).is_err());
    let chain = |count: usize| {
        let branches = "{{else if 0}}".repeat(count - 1);
        format!("{{{{if 0}}}}{branches}{{{{else if 1}}}}x{{{{end}}}}")
    };
    assert_eq!(render(&chain(62)), Ok("x".to_owned()));
    assert!(render(&chain(63)).is_err());
    let parentheses =
        |count: usize| format!("{{{{ {}1{} }}}}", "(".repeat(count), ")".repeat(count));
    assert_eq!(render(&parentheses(64)), Ok("1".to_owned()));
    assert!(render(&parentheses(65)).is_err());
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_in_order(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("{{"), Just("}}"), Just("{{-"), Just("-}}"), Just("if "), Just("end"),
                Just("else"), Just("range "), Just("with "), Just("define "), Just("template "),
                Just("block "), Just(".Metadata"), Just(".Name"), Just("$x"), Just(" := "),
                Just(" = "), Just(" | "), Just("("), Just(")"), Just("\"a\""), Just("`"),
                Just("printf "), Just("index "), Just(" 0 "), Just("nil"), Just("true"),
                Just("/*"), Just("*/"), Just(" "), Just("\u{e9}"), Just("'"), Just(","),
                Just("break"), Just("."), Just("\n"), Just("{{end}}"), Just("{{if true}}"),
            ],
            0..24,
        )
    ) {
        let _ = render(&parts.concat());
    }

    #[test]
    fn text_without_actions_is_itself(text in "[^{\0]{0,200}") {
        prop_assert_eq!(render(&text), Ok(text));
    }
}

#[test]
fn access_command_cost_depends_on_pod() {
    let pod = |longest: usize| ObjectMeta {
        annotations: Some(BTreeMap::from([("a".to_owned(), "x".repeat(longest))])),
        ..metadata()
    };
    // Each comparison reads the whole text.
    let many = " $a".repeat(900);
    let source = format!(
        "{{{{ $a := index .Metadata.Annotations \"a\" }}}}\
         {{{{ range 900 }}}}{{{{ if eq \"\" {many} }}}}{{{{ end }}}}{{{{ end }}}}done"
    );
    let command = AccessCommand::parse(&source);
    // It costs too much even for the smallest pod, so no template can contain it.
    assert!(command.is_err(), "{command:?}");
    let once = source.replace("range 900", "if true");
    let command = AccessCommand::parse(&once).unwrap();
    assert_eq!(command.render(&pod(1_000)), Ok("done".to_owned()));
    let error = command.render(&pod(200_000)).unwrap_err().to_string();
    assert!(error.contains("at most 83 are carried out"), "{error}");
    let plain = AccessCommand::parse("{{ range 100 }}{{ end }}{{ .Metadata.Name }}").unwrap();
    assert!(plain.render(&pod(10_000)).is_ok());
}
