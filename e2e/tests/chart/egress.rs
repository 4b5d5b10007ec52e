//! The outgoing connections of the programs, compared with the NetworkPolicies of the chart.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use oz_config::Component;
use oz_e2e::repository;
use serde_json::{Value, json};

use crate::{configuration_text, rendered, value_files};

/// The packages that call other servers than the API server: their URLs are in the configuration that the test below
/// reads. A change that adds a package here adds its connections to charts/oz/templates/_egress.tpl. The chart does not
/// install oz-harness, which runs in the pods of runs: the operator writes their NetworkPolicies. `config` and `ozctl`
/// use the rules about proxies, and call no server.
const CALLERS: [&str; 6] = ["audit", "config", "gate", "harness", "operator", "ozctl"];

#[test]
fn packages_with_outbound_calls_are_listed_by_chart() -> Result<()> {
    let mut callers = BTreeSet::new();
    for entry in std::fs::read_dir(repository().join("crates"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let manifest = entry.path().join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest)
            .with_context(|| format!("failed to read {}", manifest.display()))?;
        if manifest.contains("\noz-outbound") {
            callers.insert(name);
        }
    }
    let expected: BTreeSet<String> = CALLERS.map(str::to_owned).into();
    assert_eq!(callers, expected);
    Ok(())
}

/// An installation: its NetworkPolicies and its Deployments by their components, and its configuration.
struct Parts {
    policies: BTreeMap<String, Value>,
    programs: BTreeMap<String, Value>,
    configuration: Value,
}

fn parts(flags: &[&str]) -> Result<Parts> {
    let (mut policies, mut programs) = (BTreeMap::new(), BTreeMap::new());
    let objects = rendered(flags)?;
    let configuration = serde_saphyr::from_str(&configuration_text(&objects)?)?;
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let component = name.rsplit('-').next().unwrap_or_default().to_owned();
        match object["kind"].as_str() {
            Some("NetworkPolicy") => drop(policies.insert(component, object)),
            Some("Deployment") => drop(programs.insert(component, object)),
            _ => {}
        }
    }
    Ok(Parts {
        policies,
        programs,
        configuration,
    })
}

/// Returns the ports of the URLs in the configuration that a component calls: those in the sections that it reads,
/// without the sections of other components, and without links, which users follow.
fn called(configuration: &Value, component: &str) -> Result<BTreeSet<u64>> {
    let reader = Component::from_name(component).context("no such component")?;
    let is_of_other =
        |section: &str| section != component && Component::from_name(section).is_some();
    let sections = reader.sections();
    let sections = sections.filter(|section| !is_of_other(section));
    let mut ports = BTreeSet::new();
    for text in sections.flat_map(|section| texts(&configuration[section])) {
        let Some((scheme, rest)) = text.split_once("://") else {
            continue;
        };
        if scheme == "file" {
            continue;
        }
        let host = rest.split('/').next().unwrap_or_default();
        let port = host.rsplit_once(':');
        let port = port.and_then(|(_, port)| port.parse().ok());
        let usual = if scheme == "http" { 80 } else { 443 };
        ports.insert(port.unwrap_or(usual));
    }
    Ok(ports)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(all) => all.iter().flat_map(texts).collect(),
        Value::Object(all) => all
            .iter()
            .filter(|(key, _)| *key != "link")
            .flat_map(|(_, value)| texts(value))
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the ports that a policy opens to any address.
fn open(policy: &Value) -> BTreeSet<(u64, String)> {
    let rules = policy["spec"]["egress"].as_array().into_iter().flatten();
    let anywhere = rules.filter(|rule| rule["to"].is_null());
    let ports = anywhere.flat_map(|rule| rule["ports"].as_array().into_iter().flatten());
    let port = |it: &Value| {
        let protocol = it["protocol"].as_str().unwrap_or_default().to_owned();
        (it["port"].as_u64().unwrap_or_default(), protocol)
    };
    ports.map(port).collect()
}

#[test]
fn every_program_reaches_name_servers_the_api_server_and_what_its_configuration_names() -> Result<()>
{
    let mut calls = 0;
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let Parts {
            policies,
            programs,
            configuration,
        } = parts(&[&values, "--set=networkPolicy.create=true"])?;
        assert_eq!(
            policies.keys().collect::<Vec<_>>(),
            programs.keys().collect::<Vec<_>>(),
            "{name}: each program has a NetworkPolicy"
        );
        for (component, program) in &programs {
            let what = format!("{component} with {name}");
            let policy = &policies[component];
            assert_eq!(
                policy["spec"]["podSelector"]["matchLabels"],
                program["spec"]["selector"]["matchLabels"],
                "{what}"
            );
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
            let open = open(policy);
            let is_open = |port: u64, protocol: &str| open.contains(&(port, protocol.to_owned()));
            assert!(is_open(53, "UDP") && is_open(53, "TCP"), "{what}: {open:?}");
            if name != "network_policies" {
                assert!(is_open(443, "TCP") && is_open(6443, "TCP"), "{what}");
            }
            for port in called(&configuration, component)? {
                assert!(is_open(port, "TCP"), "{what} calls port {port}: {open:?}");
                calls += 1;
            }
        }
    }
    assert!(calls > 10, "only {calls} calls are configured");
    Ok(())
}

#[test]
fn addresses_of_the_api_server_and_pods_behind_services_are_named_where_they_are_known()
-> Result<()> {
    let flags = ["--values=e2e/tests/chart/values/network_policies.yaml".to_owned()];
    let flags = flags.map(|flag| flag.replace("e2e", &repository().join("e2e").to_string_lossy()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for (component, policy) in parts(&flags)?.policies {
        let rules = policy["spec"]["egress"].as_array().context("no rules")?;
        let named: Vec<&Value> = rules.iter().map(|rule| &rule["to"]).collect();
        let namespace = |name: &str| json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}]);
        for expected in [
            // The source of incoming connections need not be a destination.
            json!([{"ipBlock": {"cidr": "10.0.0.0/28"}}]),
            namespace("logging"),
            json!([{"ipBlock": {"cidr": "192.0.2.7/32"}}]),
        ] {
            assert!(named.contains(&&expected), "{component}: {named:?}");
        }
        let ports: Vec<u64> = open(&policy).into_iter().map(|(port, _)| port).collect();
        assert!(!ports.contains(&443) && ports.contains(&4318), "{ports:?}");
    }
    Ok(())
}
