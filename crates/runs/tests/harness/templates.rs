//! Merge of templates.

use oz_api::duration::GoDuration;
use oz_api::harness::{HarnessRunSpec, InteractiveMode, TemplateKind, TemplateRef};
use oz_runs::template::{Unresolved, chosen, resolve};
use serde_json::json;

use crate::{inheriting, template};

#[test]
fn a_template_that_says_little_has_the_published_defaults() {
    let resolved = resolve(&template(json!({})), None).unwrap();
    assert_eq!(resolved.timeout, "30m".parse().unwrap());
    assert_eq!(resolved.grace_seconds, 60);
    assert!(resolved.workspace.required);
    assert_eq!(resolved.workspace.mount_path, "/workspace");
    let interactive = resolved.interactive;
    assert_eq!(interactive.mode, InteractiveMode::Batch);
    let minutes = |minutes: i64| GoDuration::from_secs(60 * minutes);
    assert_eq!(interactive.idle_timeout, minutes(30));
    assert_eq!(interactive.detach_idle_timeout, minutes(15));
    assert_eq!(interactive.detach_timeout, minutes(5));
    assert_eq!(interactive.max_lifetime, minutes(24 * 60));
    assert_eq!(interactive.max_recent_events, 50);
}

#[test]
fn template_fields_override_fields_of_base() {
    let base = template(json!({
        "harness": "parrot", "args": ["--once"], "runtime": {"image": "r:1"},
        "defaults": {"model": "small", "timeout": "45s", "terminationGracePeriodSeconds": 5},
        "requires": {
            "credentials": [{"name": "B"}, {"name": "A"}],
            "egress": [{"host": "a.example.com", "ports": [443]}],
        },
        "workspace": {"required": false, "mountPath": "/src"},
        "podTemplateOverlay": {"spec": {"nodeSelector": {"a": "b"}}},
    }));
    let own = inheriting(json!({
        "defaults": {"model": "large"},
        "requires": {"credentials": [{"name": "C"}, {"name": "A"}], "egress": [{"host": "b.example.com"}]},
        "podTemplateOverlay": {"spec": {"hostname": "x"}},
    }));
    let resolved = resolve(&own, Some(&base)).unwrap();
    assert_eq!(resolved.image, "parrot:1");
    assert_eq!(resolved.args, ["--once"]);
    assert_eq!(resolved.runtime.image.as_deref(), Some("r:1"));
    assert_eq!(resolved.harness.as_deref(), Some("parrot"));
    assert_eq!(resolved.model.as_deref(), Some("large"));
    // Not the 30m that a schema would have filled into `defaults`.
    assert_eq!(resolved.timeout, "45s".parse().unwrap());
    assert_eq!(resolved.grace_seconds, 5);
    assert_eq!(resolved.credentials, ["A", "B", "C"]);
    let hosts: Vec<&str> = resolved
        .egress
        .iter()
        .map(|need| need.host.as_str())
        .collect();
    assert_eq!(hosts, ["a.example.com", "b.example.com"]);
    assert_eq!(resolved.workspace.mount_path, "/src");
    assert!(!resolved.workspace.required);
    // Replaced, not merged.
    assert_eq!(resolved.overlay, Some(json!({"spec": {"hostname": "x"}})));
}

#[test]
fn approvals_of_template_and_base_are_both_required_within_the_shorter_timeout() {
    let approval = |user: &str, timeout: &str, reason: bool| {
        let rules = json!([{"name": "security", "users": [user]}]);
        json!({"approval": {"rules": rules, "timeout": timeout, "requireReason": reason}})
    };
    for (of_own, of_base) in [("10m", "1h"), ("1h", "10m")] {
        let own = inheriting(approval("bob", of_own, false));
        let base = template(approval("carol", of_base, true));
        let required = resolve(&own, Some(&base)).unwrap().approval.unwrap();
        let rules = required.rules.iter();
        let rules: Vec<_> = rules
            .map(|rule| (&rule.name[..], &rule.users[0][..]))
            .collect();
        assert_eq!(rules, [("security", "bob"), ("base/security", "carol")]);
        assert_eq!(required.timeout, "10m");
        assert!(required.require_reason);
    }
}

#[test]
fn r2_what_an_inheriting_template_says_of_interactive_runs_counts() {
    let base = template(json!({
        "interactive": {"mode": "per-prompt-process", "idleTimeout": "10m", "maxLifetime": "8h", "maxRecentEvents": 20},
    }));
    let own = inheriting(json!({
        "interactive": {"mode": "persistent-process", "idleTimeout": "2m", "maxRecentEvents": 200},
    }));
    let interactive = resolve(&own, Some(&base)).unwrap().interactive;
    assert_eq!(interactive.mode, InteractiveMode::PersistentProcess);
    assert_eq!(interactive.idle_timeout, "2m".parse().unwrap());
    assert_eq!(interactive.max_lifetime, "8h".parse().unwrap());
    assert_eq!(interactive.max_recent_events, 200);
    // And what it does not say is its base's.
    let silent = resolve(&inheriting(json!({})), Some(&base)).unwrap();
    assert_eq!(silent.interactive.mode, InteractiveMode::PerPromptProcess);
    assert_eq!(silent.interactive.max_recent_events, 20);
}

#[test]
fn a_base_that_is_missing_or_inherits_is_named() {
    let own = inheriting(json!({}));
    assert_eq!(
        resolve(&own, None),
        Err(Unresolved::NoBase("base".to_owned()))
    );
    assert_eq!(
        resolve(&own, Some(&inheriting(json!({})))),
        Err(Unresolved::Chain("base".to_owned()))
    );
}

#[test]
fn everything_that_cannot_be_used_is_named_at_once() {
    let bad = template(json!({
        "image": "", "command": [],
        "defaults": {"timeout": "0s", "terminationGracePeriodSeconds": 301},
        "interactive": {"idleTimeout": "junk", "maxLifetime": "-1h"},
    }));
    let Err(Unresolved::Invalid(found)) = resolve(&bad, None) else {
        panic!("it is used");
    };
    let fields: Vec<&str> = found.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.defaults.timeout",
            "spec.defaults.terminationGracePeriodSeconds",
            "spec.interactive.idleTimeout",
            "spec.interactive.maxLifetime",
            "spec.image",
            "spec.command",
        ]
    );
}

#[test]
fn the_template_of_the_namespace_goes_before_that_of_the_cluster() {
    let (own, cluster) = (template(json!({})), template(json!({"harness": "c"})));
    let kind = |kind, own, cluster| {
        let reference = TemplateRef {
            name: "parrot".to_owned(),
            kind,
        };
        chosen(&reference, own, cluster).map(|(kind, _)| kind)
    };
    let (namespaced, of_cluster) = (
        TemplateKind::HarnessTemplate,
        TemplateKind::ClusterHarnessTemplate,
    );
    assert_eq!(kind(None, Some(&own), Some(&cluster)), Some(namespaced));
    assert_eq!(kind(None, None, Some(&cluster)), Some(of_cluster));
    assert_eq!(kind(None, None, None), None);
    assert_eq!(kind(Some(namespaced), None, Some(&cluster)), None);
    assert_eq!(
        kind(Some(of_cluster), Some(&own), Some(&cluster)),
        Some(of_cluster)
    );
}

#[test]
fn a_run_overrides_model_timeout_and_resources() {
    let resolved = resolve(
        &template(json!({"defaults": {"model": "small", "timeout": "1m"}})),
        None,
    )
    .unwrap();
    let run = |fields| -> HarnessRunSpec {
        let mut spec = json!({"templateRef": {"name": "parrot"}, "prompt": "hi"});
        for (name, value) in json!(fields).as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    };
    assert_eq!(resolved.for_run(&run(json!({}))).unwrap(), resolved);
    let own =
        run(json!({"model": "large", "timeout": "45s", "resources": {"limits": {"cpu": "2"}}}));
    let own = resolved.for_run(&own).unwrap();
    assert_eq!(own.model.as_deref(), Some("large"));
    assert_eq!(own.timeout, "45s".parse().unwrap());
    assert!(own.resources.unwrap().limits.unwrap().contains_key("cpu"));
    let found = resolved.for_run(&run(json!({"timeout": "0"}))).unwrap_err();
    assert_eq!(found[0].field, "spec.timeout");
}
