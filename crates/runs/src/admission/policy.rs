//! Admission of broker policies.

use jiff::{SignedDuration, Timestamp};
use oz_api::glob::Glob;
use oz_api::harness::{
    BrokerPolicy, BrokerPolicySpec, CredentialGrant, DeliveryMode, EgressDiscovery, Grants, Hosts,
    Provider, ProviderKind, RunPhase,
};
use oz_api::instant::{after, has_come, instant};
use oz_core::validate::{Violation, dns_subdomain};

use super::found::Found;

/// The maximum time from a write until the end of a discovery.
pub const MAX_DISCOVERY: SignedDuration = SignedDuration::from_hours(7 * 24);
const EXPIRES_AT: &str = "spec.egressDiscovery.expiresAt";

/// Returns all violations of a policy that is written at `now`; `before` is its previous version, with a discovery that
/// may stay unchanged. A stored policy does not become invalid because time passes, see [`standing_policy`].
#[must_use]
pub fn policy(
    policy: &BrokerPolicy,
    before: Option<&BrokerPolicy>,
    now: Timestamp,
) -> Vec<Violation> {
    let mut found = Found::default();
    if policy.metadata.deletion_timestamp.is_some() {
        return found.0;
    }
    said(&mut found, &policy.spec);
    if let Some(discovery) = &policy.spec.egress_discovery {
        let old = before.and_then(|before| before.spec.egress_discovery.as_ref());
        if old != Some(discovery) {
            ends(&mut found, discovery, now);
        }
    }
    found.0
}

/// Returns all violations of a stored policy: its discovery may have ended.
#[must_use]
pub fn standing_policy(policy: &BrokerPolicy) -> Vec<Violation> {
    let mut found = Found::default();
    said(&mut found, &policy.spec);
    if let Some(discovery) = &policy.spec.egress_discovery {
        accepted(&mut found, discovery);
    }
    found.0
}

/// Checks all fields except the discovery.
fn said(found: &mut Found, spec: &BrokerPolicySpec) {
    if spec.applies_to_templates.is_empty() {
        found.add(
            "spec.appliesToTemplates",
            "must have at least one name: * is for any",
        );
    }
    for (number, glob) in spec.applies_to_templates.iter().enumerate() {
        if let Err(error) = glob.parse::<Glob>() {
            found.value(
                format!("spec.appliesToTemplates[{number}]"),
                error.to_string(),
                glob,
            );
        }
    }
    grants(found, &spec.grants);
    if let Some(interception) = &spec.interception {
        let field = "spec.interception.cooperativeAccepted";
        if let Some(accepted) = &interception.cooperative_accepted {
            found.accepted(field, accepted.accepted, &accepted.reason);
            if interception.transparent.is_some() {
                let message = "at most one of transparent and cooperativeAccepted may be set";
                found.add("spec.interception", message);
            }
        }
    }
}

/// Checks that a discovery is accepted, and returns its end.
fn accepted(found: &mut Found, discovery: &EgressDiscovery) -> Option<Timestamp> {
    let field = "spec.egressDiscovery";
    found.accepted(field, discovery.accepted, &discovery.reason);
    let text = &discovery.expires_at;
    let ends = instant(text);
    if let Err(error) = &ends {
        found.value(EXPIRES_AT, error.to_string(), text);
    }
    ends.ok()
}

fn ends(found: &mut Found, discovery: &EgressDiscovery, now: Timestamp) {
    let text = &discovery.expires_at;
    match accepted(found, discovery) {
        Some(ends) if has_come(now, ends) => {
            found.value(EXPIRES_AT, "must be in the future", text);
        }
        Some(ends) if !has_come(after(now, MAX_DISCOVERY), ends) => {
            found.value(EXPIRES_AT, "must be at most seven days ahead", text);
        }
        _ => {}
    }
}

fn grants(found: &mut Found, grants: &Grants) {
    let mut granted = Vec::new();
    for (number, grant) in grants.egress.iter().enumerate() {
        let field = format!("spec.grants.egress[{number}]");
        granted.extend(found.hosts(&format!("{field}.host"), &grant.host));
        found.ports(&format!("{field}.ports"), &grant.ports);
    }
    let names = grants.credentials.iter().map(|grant| grant.name.as_str());
    found.once("spec.grants.credentials", "name", names);
    for (number, grant) in grants.credentials.iter().enumerate() {
        let field = format!("spec.grants.credentials[{number}]");
        credential(found, &field, grant, &granted);
    }
    for (number, repo) in grants.git_repos.iter().enumerate() {
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        for (name, value) in [("owner", &repo.owner), ("repo", &repo.repo)] {
            if !is_name(value) {
                let field = format!("spec.grants.gitRepos[{number}].{name}");
                found.value(field, "must be letters, digits, '-', '_' and '.'", value);
            }
        }
    }
    let Some(shell) = grants.runs.as_ref().and_then(|runs| runs.shell.as_ref()) else {
        return;
    };
    if shell
        .command
        .first()
        .is_some_and(|first| !first.starts_with('/'))
    {
        let field = "spec.grants.runs.shell.command[0]";
        found.value(field, "must be an absolute path", &shell.command[0]);
    }
    for (number, phase) in shell.allowed_phases.iter().enumerate() {
        if !matches!(phase, RunPhase::Running | RunPhase::Idle) {
            let field = format!("spec.grants.runs.shell.allowedPhases[{number}]");
            found.value(
                field,
                "must be a phase in which there is a pod: Running or Idle",
                phase,
            );
        }
    }
}

fn credential(found: &mut Found, field: &str, grant: &CredentialGrant, granted: &[Hosts]) {
    found.variable(&format!("{field}.name"), &grant.name);
    let provider = &grant.provider;
    let field = format!("{field}.provider");
    by_kind(found, &field, provider);
    if let Some(secret) = &provider.secret_ref
        && let Err(error) = dns_subdomain(&secret.name)
    {
        found.value(format!("{field}.secretRef.name"), error, &secret.name);
    }
    for (name, id) in [
        ("appId", &provider.app_id),
        ("installationId", &provider.installation_id),
    ] {
        let Some(id) = id else { continue };
        let is_id = (1..=20).contains(&id.len())
            && !id.starts_with('0')
            && id.bytes().all(|byte| byte.is_ascii_digit());
        if !is_id {
            found.value(
                format!("{field}.{name}"),
                "must be a number of at most 20 digits",
                id,
            );
        }
    }
    if let Some(seconds) = provider.rotation_seconds.filter(|seconds| *seconds < 60) {
        found.value(
            format!("{field}.rotationSeconds"),
            "must be at least 60",
            seconds,
        );
    }
    covered(found, &format!("{field}.hosts"), &provider.hosts, granted);
    if let Some(delivery) = &provider.delivery_mode {
        delivered(found, &format!("{field}.deliveryMode"), delivery, granted);
    }
}

/// Checks the fields that a kind of provider requires, and those that it does not support.
fn by_kind(found: &mut Found, field: &str, provider: &Provider) {
    let kind = provider.kind;
    let (is_app, is_user) = (
        kind == ProviderKind::GitHubApp,
        kind == ProviderKind::UserSuppliedSecret,
    );
    // Name, whether it is there, whether it must be, whether it may be.
    for (name, is_set, needed, allowed) in [
        ("secretRef", provider.secret_ref.is_some(), true, true),
        ("appId", provider.app_id.is_some(), is_app, is_app),
        (
            "installationId",
            provider.installation_id.is_some(),
            is_app,
            is_app,
        ),
        (
            "deliveryMode",
            provider.delivery_mode.is_some(),
            is_user,
            is_user,
        ),
        ("hosts", !provider.hosts.is_empty(), false, !is_user),
    ] {
        if needed && !is_set {
            found.add(format!("{field}.{name}"), format!("must be set for {kind}"));
        }
        if is_set && !allowed {
            found.add(
                format!("{field}.{name}"),
                format!("must be absent for {kind}"),
            );
        }
    }
}

fn delivered(found: &mut Found, field: &str, delivery: &DeliveryMode, granted: &[Hosts]) {
    if delivery.proxy_injected.is_some() == delivery.in_container.is_some() {
        found.add(
            field,
            "exactly one of proxyInjected and inContainer must be set",
        );
    }
    if let Some(accepted) = &delivery.in_container {
        found.accepted(
            &format!("{field}.inContainer"),
            accepted.accepted,
            &accepted.reason,
        );
    }
    let Some(injected) = &delivery.proxy_injected else {
        return;
    };
    let field = format!("{field}.proxyInjected");
    let set = [
        injected.header.is_some(),
        injected.query_param.is_some(),
        injected.basic_auth.is_some(),
    ];
    if set.iter().filter(|is_set| **is_set).count() != 1 {
        found.add(
            &field,
            "exactly one of header, queryParam and basicAuth must be set",
        );
    }
    if injected.hosts.is_empty() {
        found.add(format!("{field}.hosts"), "must have at least one host");
    }
    covered(found, &format!("{field}.hosts"), &injected.hosts, granted);
}

/// Checks that the hosts of a credential are valid, and that the policy permits connections to them.
fn covered(found: &mut Found, field: &str, hosts: &[String], granted: &[Hosts]) {
    for (number, text) in hosts.iter().enumerate() {
        let field = format!("{field}[{number}]");
        let Some(hosts) = found.hosts(&field, text) else {
            continue;
        };
        if !granted.iter().any(|granted| granted.cover(&hosts)) {
            let message = "must be covered by an entry of spec.grants.egress of the same policy";
            found.value(field, message, text);
        }
    }
}
