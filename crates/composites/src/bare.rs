//! The readable kinds of an invalid declaration. With them, children that were created while it was valid still expire,
//! and parents are still released.

use oz_api::composite::{CompositeController, CompositeControllerSpec, Hook, Hooks, Webhook};
use oz_api::rego::{Limits, PolicySource, RegoController, RegoControllerSpec, RunAs, Then, Window};

use super::annotations;
use super::declared::{Declared, KindName, MOST_KINDS, reserved};

/// The URL of a function that is never called.
const NOWHERE: &str = "http://nowhere.invalid/";

/// Returns a CompositeController without the fields that may be invalid, except its kind of parent.
pub(super) fn composite(source: &CompositeController) -> CompositeController {
    let spec = source.spec.clone();
    let nobody = || Hook {
        webhook: Some(Webhook {
            url: Some(NOWHERE.to_owned()),
            ..Webhook::default()
        }),
        ..Hook::default()
    };
    let children = kinds(spec.child_resources, |child| KindName {
        api_version: child.api_version.clone(),
        resource: child.resource.clone(),
    });
    let finalize = spec.hooks.and_then(|hooks| hooks.finalize);
    let mut bare = CompositeController {
        metadata: source.metadata.clone(),
        spec: CompositeControllerSpec {
            parent_resource: spec.parent_resource,
            child_resources: children,
            generate_selector: spec.generate_selector,
            hooks: Some(Hooks {
                sync: Some(nobody()),
                // Parents that are finalized wait until their function can be called again.
                finalize: finalize.map(|_| nobody()),
                ..Hooks::default()
            }),
            ..CompositeControllerSpec::default()
        },
        status: None,
    };
    for child in &mut bare.spec.child_resources {
        child.update_strategy = None;
    }
    if Declared::from_composite(&bare).is_err() {
        bare.spec.parent_resource.label_selector = None;
    }
    let annotations = bare.metadata.annotations.get_or_insert_default();
    annotations.remove(annotations::MODE);
    annotations.remove(annotations::MAX_DELETIONS);
    if annotations::declared(&bare).is_err() {
        let annotations = bare.metadata.annotations.get_or_insert_default();
        for name in [annotations::WINDOW_FROM, annotations::WINDOW_UNTIL] {
            annotations.remove(name);
        }
    }
    if annotations::declared(&bare).is_err() {
        let annotations = bare.metadata.annotations.get_or_insert_default();
        annotations.remove(annotations::RUN_AS);
    }
    bare
}

/// Returns a RegoController without the fields that may be invalid, except its name and its kind of parent.
pub(super) fn rego(source: &RegoController) -> RegoController {
    let spec = source.spec.clone();
    let children = kinds(spec.children, |child| KindName {
        api_version: child.api_version.clone(),
        resource: child.resource.clone(),
    });
    // A selector that cannot be read selects each parent: none of them is deleted.
    let window = spec.window.map(|window| Window {
        then: Then::Keep,
        ..window
    });
    let mut bare = RegoController {
        metadata: source.metadata.clone(),
        spec: RegoControllerSpec {
            parent: spec.parent,
            children,
            policy: Some(PolicySource {
                inline: Some("package controller".to_owned()),
                package: "controller".to_owned(),
                ..PolicySource::default()
            }),
            window,
            resync: "5m".to_owned(),
            run_as: RunAs {
                namespace: "nobody".to_owned(),
                service_account: "nobody".to_owned(),
            },
            limits: Limits::default(),
            ..RegoControllerSpec::default()
        },
        status: None,
    };
    if Declared::of_rego(&bare).is_err() {
        bare.spec.parent.label_selector = None;
    }
    if Declared::of_rego(&bare).is_err() {
        bare.spec.window = None;
    }
    bare
}

/// Returns the children of permitted kinds, each kind once.
fn kinds<C>(mut children: Vec<C>, name: impl Fn(&C) -> KindName) -> Vec<C> {
    let mut known: Vec<KindName> = Vec::new();
    children.retain(|child| {
        let kind = name(child);
        let mut violations = Vec::new();
        reserved(&kind, "", &mut violations);
        let is_one = violations.is_empty() && known.len() < MOST_KINDS && !known.contains(&kind);
        known.extend(is_one.then_some(kind));
        is_one
    });
    children
}
