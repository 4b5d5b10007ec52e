//! The checked declaration of a RegoController. The constraints of its schema are checked here as well, since other
//! users can change the CustomResourceDefinition.

use std::time::Duration;

use jiff::SignedDuration;
use oz_api::composite::{HookVersion, MAX_CHILDREN, Method};
use oz_api::duration::GoDuration;
use oz_api::rego::{Enforcement, Limits, RegoController, RegoControllerSpec, Then, Update};
use oz_core::kinds;
use oz_core::validate::Violation;

use crate::account::Account;
use crate::declared::{
    Call, Declared, InProcess, KindName, MOST_KINDS, Modules, as_told, name_of, parents, reserved,
    reserved_parent,
};
use crate::guard::MOST_DELETIONS;
use crate::kind::is_kind;
use crate::related::Rule;
use crate::window::{self, Window};

/// The maximum length of the name: with its prefix, it is the name of a finalizer.
const LONGEST_NAME: usize = 48;
/// The minimum interval between passes over all parents.
const SHORTEST_RESYNC: Duration = Duration::from_secs(1);
/// The minimum and the maximum limit for the duration of one evaluation.
const EVALUATIONS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];
/// The maximum number of evaluations of one call: one for now, and two for each instant that the parent names.
const EVALUATIONS_OF_A_CALL: u32 = 65;

impl Declared {
    /// Returns the declaration of a RegoController.
    ///
    /// # Errors
    /// All fields that are invalid or not supported yet.
    pub fn of_rego(rego: &RegoController) -> Result<Self, Vec<Violation>> {
        let spec = &rego.spec;
        let mut violations = Vec::new();
        let name = name_of(&rego.metadata, &mut violations);
        check(
            name.as_ref().is_none_or(|name| name.len() <= LONGEST_NAME),
            "metadata.name",
            "has more than 48 characters",
            &mut violations,
        );
        let parent = KindName {
            api_version: spec.parent.api_version.clone(),
            resource: spec.parent.resource.clone(),
        };
        reserved_parent(&parent, "spec.parent", &mut violations);
        let selector = parents(
            spec.parent.label_selector.as_ref(),
            "spec.parent.labelSelector",
            &mut violations,
        );
        let children = children(spec, &mut violations);
        let resync = duration(&spec.resync, "spec.resync", &mut violations);
        let is_long = resync.is_none_or(|resync| resync >= SHORTEST_RESYNC);
        check(is_long, "spec.resync", "is less than 1s", &mut violations);
        let related = related(spec, &mut violations);
        let window = window(spec, &parent, &mut violations);
        let evaluation = limits(&spec.limits, &mut violations);
        let policy = policy(spec, evaluation, &mut violations);
        let run_as = run_as(spec, &mut violations);
        let (Some(name), true) = (name, violations.is_empty()) else {
            return Err(violations);
        };
        Ok(Self {
            finalizer: format!("oz.wizardofoz.co/regocontroller-{name}"),
            name,
            uid: rego.metadata.uid.clone(),
            controller: as_told(rego),
            parent,
            selector,
            ignores_status: false,
            children,
            generate_selector: true,
            adopts_as_original: false,
            resync: resync.and_then(|resync| SignedDuration::try_from(resync).ok()),
            sync: Call {
                url: String::new(),
                version: HookVersion::V1,
                strict: false,
                timeout: evaluation.unwrap_or_default() * EVALUATIONS_OF_A_CALL,
                in_process: policy,
            },
            finalize: None,
            related,
            customize: None,
            window,
            most_children: usize::try_from(spec.limits.children).unwrap_or(MAX_CHILDREN),
            most_deletions: usize::try_from(spec.limits.deletions).ok(),
            dry_run: spec.mode == Enforcement::DryRun,
            run_as: Some(run_as),
        })
    }
}

fn check(holds: bool, field: &str, message: &str, violations: &mut Vec<Violation>) {
    if !holds {
        violations.push(Violation::new(field, message));
    }
}

fn duration(text: &str, field: &str, violations: &mut Vec<Violation>) -> Option<Duration> {
    let read = text
        .parse::<GoDuration>()
        .map_err(|error| error.to_string());
    let read = read.and_then(|read| {
        Duration::try_from(SignedDuration::from(read)).map_err(|_| "is negative".to_owned())
    });
    read.map_err(|error| violations.push(Violation::new(field, error)))
        .ok()
}

/// Returns the rules for related objects. A rule without a namespace selects objects in the parent's namespace.
fn related(spec: &RegoControllerSpec, violations: &mut Vec<Violation>) -> Vec<Rule> {
    let count = spec.related.len();
    let is_few = count <= MOST_KINDS;
    let message = format!("has {count} kinds, of at most {MOST_KINDS}");
    check(is_few, "spec.related", &message, violations);
    let kinds = spec.related.iter().take(MOST_KINDS).enumerate();
    let rules = kinds.map(|(index, related)| {
        let field = format!("spec.related[{index}]");
        let kind = KindName {
            api_version: related.api_version.clone(),
            resource: related.resource.clone(),
        };
        check(is_kind(&kind), &field, "names no kind", violations);
        let labels = parents(
            related.label_selector.as_ref(),
            &format!("{field}.labelSelector"),
            violations,
        );
        Rule {
            kind,
            namespace: related.namespace.clone(),
            names: Vec::new(),
            labels,
            namespaces: None,
        }
    });
    rules.collect()
}

fn children(spec: &RegoControllerSpec, violations: &mut Vec<Violation>) -> Vec<(KindName, Method)> {
    let mut children: Vec<(KindName, Method)> = Vec::new();
    let count = spec.children.len();
    let least = usize::from(spec.policy.is_some());
    let (field, message) = (
        "spec.children",
        format!("has {count} kinds, of 1 to {MOST_KINDS}"),
    );
    check(
        (least..=MOST_KINDS).contains(&count),
        field,
        &message,
        violations,
    );
    let message = "is set without spec.policy, which returns the children";
    check(
        spec.policy.is_some() || count == 0,
        field,
        message,
        violations,
    );
    for (index, child) in spec.children.iter().take(MOST_KINDS).enumerate() {
        let field = format!("spec.children[{index}]");
        let name = KindName {
            api_version: child.api_version.clone(),
            resource: child.resource.clone(),
        };
        reserved(&name, &field, violations);
        let is_new = !children.iter().any(|(known, _)| *known == name);
        check(is_new, &field, &format!("{name} exists twice"), violations);
        let method = match child.update {
            Update::InPlace => Method::InPlace,
            Update::Recreate => Method::Recreate,
            Update::OnDelete => Method::OnDelete,
        };
        children.push((name, method));
    }
    children
}

fn window(
    spec: &RegoControllerSpec,
    parent: &KindName,
    violations: &mut Vec<Violation>,
) -> Option<Window> {
    let window = spec.window.as_ref()?;
    let from = window.from.as_deref();
    let from = from.map(|from| ("spec.window.from", from));
    let until = ("spec.window.until", window.until.as_str());
    let checked = window::checked(from, until, violations);
    if window.then == Then::Keep {
        return Some(checked);
    }
    let mut own = kinds::all().into_iter().map(|entry| entry.resource);
    let is_own = own.any(|own| own.group == parent.group() && own.plural == parent.resource);
    let message = format!("{parent} is a kind of oz, which composites do not delete");
    check(!is_own, "spec.window.then", &message, violations);
    Some(checked.deleting_parent())
}

/// Checks the limits and returns the maximum duration of an evaluation.
fn limits(limits: &Limits, violations: &mut Vec<Violation>) -> Option<Duration> {
    let evaluation = duration(&limits.evaluation, "spec.limits.evaluation", violations);
    let [least, most] = EVALUATIONS;
    check(
        evaluation.is_none_or(|evaluation| (least..=most).contains(&evaluation)),
        "spec.limits.evaluation",
        "is not from 1ms to 1s",
        violations,
    );
    let most = u32::try_from(MAX_CHILDREN).unwrap_or(u32::MAX);
    check(
        (1..=most).contains(&limits.children),
        "spec.limits.children",
        &format!("is not from 1 to {most}"),
        violations,
    );
    check(
        limits.deletions <= MOST_DELETIONS,
        "spec.limits.deletions",
        &format!("is more than {MOST_DELETIONS}"),
        violations,
    );
    evaluation
}

fn policy(
    spec: &RegoControllerSpec,
    evaluation: Option<Duration>,
    violations: &mut Vec<Violation>,
) -> Option<InProcess> {
    let Some(policy) = &spec.policy else {
        let window = spec.window.as_ref();
        check(
            window.is_some_and(|window| window.then == Then::Delete),
            "spec.policy",
            "is missing: only a controller with window.then: Delete works without a policy",
            violations,
        );
        return None;
    };
    let modules = match (&policy.inline, &policy.config_map_ref) {
        (Some(text), None) => Modules::Inline(text.clone()),
        (None, Some(key)) => Modules::Key {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            key: key.key.clone(),
        },
        _ => {
            let message = "must have inline or configMapRef, and not both";
            violations.push(Violation::new("spec.policy", message));
            return None;
        }
    };
    let mut names = policy.package.split('.');
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters
            .next()
            .is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    check(
        names.all(is_name),
        "spec.policy.package",
        "is not a path of a document, without data., such as controller",
        violations,
    );
    Some(InProcess {
        modules,
        path: policy.package.clone(),
        language: policy.language,
        strict: policy.strict,
        evaluation,
    })
}

fn run_as(spec: &RegoControllerSpec, violations: &mut Vec<Violation>) -> Account {
    let (namespace, name) = (&spec.run_as.namespace, &spec.run_as.service_account);
    let is_named = !namespace.is_empty() && !name.is_empty();
    check(
        is_named,
        "spec.runAs",
        "names no service account",
        violations,
    );
    Account {
        namespace: namespace.clone(),
        name: name.clone(),
    }
}
