//! Tests of the supported syntax of commands, against the results of Go.

mod limits;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use oz_api::DEFAULT_ACCESS_COMMAND;

use super::{AccessCommand, AccessCommandError};

fn metadata() -> ObjectMeta {
    let text = |text: &str| Some(text.to_owned());
    ObjectMeta {
        name: text("web-1"),
        namespace: text("shop"),
        uid: text("u-1"),
        resource_version: text("42"),
        generation: Some(3),
        creation_timestamp: Some(Time("2026-04-16T10:11:12Z".parse().unwrap())),
        labels: Some(BTreeMap::from(
            [
                ("app", "web"),
                ("app.kubernetes.io/name", "shop-web"),
                ("tier", "front"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        )),
        owner_references: Some(vec![OwnerReference {
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            ..OwnerReference::default()
        }]),
        finalizers: Some(vec!["a/b".to_owned(), "c/d".to_owned()]),
        ..ObjectMeta::default()
    }
}

fn render(source: &str) -> Result<String, AccessCommandError> {
    super::render(source, &metadata())
}

/// Commands, and their results for [`metadata`].
const RENDERED: &[(&str, &str)] = &[
    (
        DEFAULT_ACCESS_COMMAND,
        "kubectl exec -ti -n shop web-1 -- /bin/sh",
    ),
    ("", ""),
    ("plain } text {", "plain } text {"),
    ("{{ .Metadata.Name }}", "web-1"),
    ("{{.Metadata.Name}}/{{.Metadata.UID}}", "web-1/u-1"),
    ("<{{ .Metadata.Name }}> & co", "<web-1> & co"),
    ("[{{ .Metadata.GenerateName }}]", "[]"),
    (
        "{{ .Metadata.ResourceVersion }} {{ .Metadata.Generation }}",
        "42 3",
    ),
    (
        "{{ .Metadata.CreationTimestamp }}",
        "2026-04-16 10:11:12 +0000 UTC",
    ),
    ("{{ .Metadata.Finalizers }}", "[a/b c/d]"),
    ("{{ .Metadata.Annotations }}", "map[]"),
    ("{{ $.Metadata.Name }}", "web-1"),
    // Trimming and comments.
    ("a  {{- .Metadata.Name -}}  b", "aweb-1b"),
    ("a {{/* why */}} b", "a  b"),
    ("a {{- /* why */ -}} b", "ab"),
    // Keys of maps.
    ("{{ .Metadata.Labels.app }}", "web"),
    ("{{ .Metadata.Labels.nope }}", "<no value>"),
    ("{{ .Metadata.Labels.nope.deeper }}", "<no value>"),
    ("{{ .Metadata.Annotations.nope }}", "<no value>"),
    (
        r#"{{ index .Metadata.Labels "app.kubernetes.io/name" }}"#,
        "shop-web",
    ),
    (r#"[{{ index .Metadata.Labels "nope" }}]"#, "[]"),
    (
        "{{ (index .Metadata.OwnerReferences 0).Kind }}",
        "ReplicaSet",
    ),
    ("{{ index .Metadata.Finalizers 1 }}", "c/d"),
    // Branches.
    ("{{ if .Metadata.Labels.app }}y{{ else }}n{{ end }}", "y"),
    ("{{ if .Metadata.Labels.nope }}y{{ else }}n{{ end }}", "n"),
    ("{{ if .Metadata.GenerateName }}y{{ end }}", ""),
    (
        r#"{{ if eq .Metadata.Name "x" }}1{{ else if eq .Metadata.Name "web-1" }}2{{ else }}3{{ end }}"#,
        "2",
    ),
    (
        "{{ with .Metadata }}{{ .Name }} {{ $.Metadata.Namespace }}{{ end }}",
        "web-1 shop",
    ),
    (
        "{{ with .Metadata.Annotations }}{{ . }}{{ else }}none{{ end }}",
        "none",
    ),
    ("{{ with $n := .Metadata.Name }}{{ $n }}{{ end }}", "web-1"),
    // Loops: a map is iterated in the order of its keys.
    (
        "{{ range $k, $v := .Metadata.Labels }}{{ $k }}={{ $v }},{{ end }}",
        "app=web,app.kubernetes.io/name=shop-web,tier=front,",
    ),
    (
        "{{ range .Metadata.Labels }}{{ . }} {{ end }}",
        "web shop-web front ",
    ),
    (
        "{{ range $i, $f := .Metadata.Finalizers }}{{ $i }}:{{ $f }} {{ end }}",
        "0:a/b 1:c/d ",
    ),
    (
        "{{ range .Metadata.OwnerReferences }}{{ .Kind }}/{{ .Name }}{{ end }}",
        "ReplicaSet/web",
    ),
    (
        "{{ range .Metadata.Annotations }}x{{ else }}none{{ end }}",
        "none",
    ),
    // Variables.
    ("{{ $n := .Metadata.Name }}{{ $n }}-{{ $n }}", "web-1-web-1"),
    (
        "{{ $n := 1 }}{{ if true }}{{ $n = 2 }}{{ end }}{{ $n }}",
        "2",
    ),
    ("{{ $m := .Metadata }}{{ $m.Labels.app }}", "web"),
    // Functions and pipelines.
    ("{{ .Metadata.Name | printf \"%s!\" }}", "web-1!"),
    (
        "{{ printf \"%s|%q|%d|%v\" .Metadata.Name \"a b\" 7 true }}",
        "web-1|\"a b\"|7|true",
    ),
    ("{{ printf `%v` .Metadata.Finalizers }}", "[a/b c/d]"),
    ("{{ print 1 2 \"x\" }}", "1 2x"),
    ("{{ println \"x\" 1 }}", "x 1\n"),
    ("{{ len .Metadata.Labels }} {{ len .Metadata.Name }}", "3 5"),
    ("{{ (len .Metadata.Finalizers) | printf \"%d\" }}", "2"),
    (
        "{{ ne 1 2 }} {{ lt 1 2 }} {{ le 2 2 }} {{ gt 1 2 }} {{ ge 1 2 }}",
        "true true true false false",
    ),
    ("{{ eq .Metadata.Name \"a\" \"web-1\" }}", "true"),
    (
        "{{ and true \"x\" }} {{ or \"\" \"y\" }} {{ not \"\" }}",
        "x y true",
    ),
    ("{{ or .Metadata.Labels.nope .Metadata.Name }}", "web-1"),
    (
        "{{ \"quoted\" }} {{ `back` }} {{ 42 }} {{ false }}",
        "quoted back 42 false",
    ),
];

#[test]
fn renders_what_go_renders() {
    for (source, message) in RENDERED {
        assert_eq!(render(source), Ok((*message).to_owned()), "{source}");
    }
}

#[test]
fn refuses_what_go_refuses() {
    let cases = [
        (
            "{{ .Metadata.name }}",
            "can't evaluate field name in type v1.ObjectMeta",
        ),
        (
            "{{ .metadata.Name }}",
            "can't evaluate field metadata in type AccessCommand",
        ),
        (
            "{{ .Spec.NodeName }}",
            "can't evaluate field Spec in type AccessCommand",
        ),
        (
            "{{ .Status }}",
            "can't evaluate field Status in type AccessCommand",
        ),
        (
            "{{ .Metadata.Name.First }}",
            "can't evaluate field First in type string",
        ),
        (
            "{{ with .Metadata }}{{ .Nope }}{{ end }}",
            "can't evaluate field Nope in type v1.ObjectMeta",
        ),
        (
            "{{ range .Metadata.OwnerReferences }}{{ .Nope }}{{ end }}",
            "can't evaluate field Nope in type v1.OwnerReference",
        ),
        (
            "{{ $m := .Metadata }}{{ $m.Nope }}",
            "can't evaluate field Nope in type v1.ObjectMeta",
        ),
        (
            "{{ (index .Metadata.OwnerReferences 0).Nope }}",
            "can't evaluate field Nope in type v1.OwnerReference",
        ),
        (
            "{{ index .Metadata \"Name\" }}",
            "can't index item of type v1.ObjectMeta",
        ),
        (
            "{{ index .Metadata.Finalizers 9 }}",
            "index out of range: 9",
        ),
        ("{{ len .Metadata }}", "len of type v1.ObjectMeta"),
        ("{{ len 3 }}", "len of type int"),
        (
            "{{ range .Metadata }}{{ end }}",
            "range can't iterate over type v1.ObjectMeta",
        ),
        (
            "{{ range .Metadata.Name }}{{ end }}",
            "cannot range over string",
        ),
        ("{{ $nope }}", "undefined variable \"$nope\""),
        (
            "{{ if true }}{{ $n := 1 }}{{ end }}{{ $n }}",
            "undefined variable \"$n\"",
        ),
        ("{{ $n = 1 }}", "undefined variable \"$n\""),
    ];
    for (source, message) in cases {
        assert_eq!(
            render(source).map_err(|error| error.to_string()),
            Err(message.to_owned()),
            "{source}"
        );
    }
}

#[test]
fn access_command_with_invalid_syntax_is_rejected() {
    for source in [
        "{{ .Metadata.Name",
        "{{ .Metadata.Name }",
        "{{ }}",
        "{{ if }}x{{ end }}",
        "{{ if true }}x",
        "{{ if true }}{{ if true }}x{{ end }}",
        "x{{ end }}y",
        "{{ else }}",
        "x{{ else }}y{{ end }}",
        "{{ if true }}x{{ end }}{{ end }}",
        "{{ \"open }}",
        "{{ /* open }}",
        "{{ .Metadata.Name | }}",
        "{{ (.Metadata.Name }}",
        "\0",
    ] {
        let error = render(source);
        assert!(
            matches!(error, Err(AccessCommandError::Syntax(_))),
            "{source}: {error:?}"
        );
    }
}

#[test]
fn unsupported_function_or_action_is_named() {
    for (source, what) in [
        ("{{ html .Metadata.Name }}", "function \"html\""),
        ("{{ js .Metadata.Name }}", "function \"js\""),
        ("{{ .Metadata.Name | urlquery }}", "function \"urlquery\""),
        ("{{ slice .Metadata.Name 1 }}", "function \"slice\""),
        ("{{ call .Metadata.Name }}", "function \"call\""),
        ("{{ nope }}", "function \"nope\""),
        ("{{ define \"x\" }}{{ end }}", "define"),
        ("{{ template \"x\" }}", "template"),
        ("{{ block \"x\" . }}{{ end }}", "define"),
        ("{{ range .Metadata.Labels }}{{ break }}{{ end }}", "break"),
        (
            "{{ range .Metadata.Labels }}{{ continue }}{{ end }}",
            "continue",
        ),
    ] {
        let error = render(source);
        assert_eq!(
            error,
            Err(AccessCommandError::Unsupported(what.to_owned())),
            "{source}"
        );
    }
    assert_eq!(
        render("{{ html 1 }}").unwrap_err().to_string(),
        "function \"html\" is not supported: use fields of .Metadata, if, with, range, and the \
         functions and, eq, ge, gt, index, le, len, lt, ne, not, or, print, printf, println"
    );
}

#[test]
fn a_pod_may_lack_what_the_sample_has() {
    let command = AccessCommand::parse("{{ (index .Metadata.OwnerReferences 0).Name }}").unwrap();
    assert_eq!(command.render(&metadata()), Ok("web".to_owned()));
    let error = command.render(&ObjectMeta::default()).unwrap_err();
    assert_eq!(error.to_string(), "index out of range: 0");
    let absent = AccessCommand::parse("{{ .Metadata.CreationTimestamp }}").unwrap();
    assert_eq!(
        absent.render(&ObjectMeta::default()),
        Ok("0001-01-01 00:00:00 +0000 UTC".to_owned())
    );
}
