//! `ozctl report`: collects the data that a maintainer needs, without private data: names of users,
//! reasons, values of environment variables and seals are removed.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use oz_api::{ExecAccessRequest, ExecAccessTemplate, GROUP, PodAccessRequest, PodAccessTemplate};
use oz_client::doctor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::{choose, output};

/// Write a cluster report for a bug, without names, reasons and secrets
#[derive(Args)]
#[command(after_help = "\
Contains versions, the results of `ozctl doctor`, the namespace's templates and
requests, and oz's events. Users are replaced by user-1, user-2 and so on,
requests by request-1 and so on; reasons, commands, values of environment
variables, annotations and the API server's address are removed. Read it before
you send it.

Examples:
  ozctl report > oz-report.yaml
  ozctl report --file oz-report.yaml")]
pub(crate) struct Report {
    /// File to write to [default: standard output]
    #[arg(long, value_name = "FILE")]
    file: Option<std::path::PathBuf>,
    /// The namespace that oz runs in
    #[arg(long, default_value = "oz-system", value_name = "NAMESPACE")]
    oz_namespace: String,
}

impl Report {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let me = choose::myself(&cluster).await?;
        let findings = doctor::examine_installation(&cluster, &self.oz_namespace).await;
        let mut report = json!({
            "time": Timestamp::now().to_string(),
            "ozctl": env!("CARGO_PKG_VERSION"),
            "namespace": cluster.namespace,
            "doctor": findings,
            "execAccessTemplates": list::<ExecAccessTemplate>(&cluster).await,
            "podAccessTemplates": list::<PodAccessTemplate>(&cluster).await,
            "execAccessRequests": list::<ExecAccessRequest>(&cluster).await,
            "podAccessRequests": list::<PodAccessRequest>(&cluster).await,
            "events": events(&cluster).await,
        });
        let mut names = Names::default();
        names.add("user", &me.user);
        names.find(&report);
        redact(&mut report);
        names.rename(&mut report);
        rewrite(&mut report, &|text| {
            text.replace(&cluster.url, "https://api-server/")
        });
        let text = output::yaml(&report)?;
        match &self.file {
            None => context.print(&text)?,
            Some(path) => {
                std::fs::write(path, text).map_err(|error| {
                    Failure::new(format!("failed to write {}: {error}", path.display()))
                })?;
                context.say(&format!(
                    "Written to {}. Read it before you send it.",
                    path.display()
                ));
            }
        }
        Ok(Exit::SUCCESS)
    }
}

/// Lists all objects of a kind, or the reason why they cannot be read.
async fn list<K>(cluster: &Cluster) -> Value
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let (api, all) = (cluster.api::<K>(), ListParams::default());
    match cluster.answer(api.list(&all)).await {
        Ok(list) => json!(list.items),
        Err(failure) => json!({"unknown": failure.message()}),
    }
}

async fn events(cluster: &Cluster) -> Value {
    let (api, all) = (cluster.api::<Event>(), ListParams::default());
    match cluster.answer(api.list(&all)).await {
        Err(failure) => json!({"unknown": failure.message()}),
        Ok(list) => list
            .items
            .iter()
            .filter(|event| {
                let about = event.regarding.as_ref();
                let version = about.and_then(|about| about.api_version.as_deref());
                version.is_some_and(|version| version.starts_with(GROUP))
            })
            .map(|event| {
                let about = event.regarding.as_ref();
                json!({
                    "time": event.event_time.as_ref().map(|time| time.0.to_string()),
                    "type": event.type_, "reason": event.reason, "note": event.note,
                    "kind": about.and_then(|about| about.kind.clone()),
                    "regarding": about.and_then(|about| about.name.clone()),
                })
            })
            .collect(),
    }
}

/// Removes the data that no maintainer needs.
fn redact(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            // The author of an object chooses the prefix of its name.
            for field in ["annotations", "managedFields", "generateName"] {
                fields.remove(field);
            }
            // Users pass passwords in them, against all advice.
            for field in ["command", "args"] {
                if let Some(words @ Value::Array(_)) = fields.get_mut(field) {
                    *words = json!(["<redacted>"]);
                }
            }
            // The reason of a request; the reason of a condition contains no data of users.
            if fields.contains_key("templateName") && fields.contains_key("reason") {
                fields.insert("reason".to_owned(), json!("<redacted>"));
            }
            if let Some(Value::Array(env)) = fields.get_mut("env") {
                for variable in env {
                    if let Some(value) = variable.get_mut("value") {
                        *value = json!("<redacted>");
                    }
                }
            }
            // Values of a JSON patch may be anything.
            if fields.contains_key("op") && fields.contains_key("value") {
                fields.insert("value".to_owned(), json!("<redacted>"));
            }
            fields.values_mut().for_each(redact);
        }
        _ => {}
    }
}

/// The names in the data, with their replacements. Requests contain names of users, too.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn add(&mut self, what: &str, name: &str) {
        if !name.is_empty() && !self.0.contains_key(name) {
            let prefix = format!("{what}-");
            let before = self.0.values().filter(|known| known.starts_with(&prefix));
            let instead = format!("{prefix}{}", before.count() + 1);
            self.0.insert(name.to_owned(), instead);
        }
    }

    fn find(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.find(item)),
            Value::Object(fields) => {
                self.find_request(value);
                for (field, value) in fields {
                    match (field.as_str(), value) {
                        ("requester" | "crds.wizardofoz.co/requested-by", Value::String(name)) => {
                            self.add("user", name);
                        }
                        ("allowedUsers", Value::Array(names)) => {
                            for name in names.iter().filter_map(Value::as_str) {
                                self.add("user", name);
                            }
                        }
                        (_, value) => self.find(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds the name of a request, or of the request that an event is about and that may not exist
    /// any more.
    fn find_request(&mut self, value: &Value) {
        let is_template = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Template"));
        if let Some(about) = value["regarding"].as_str().filter(|_| !is_template) {
            self.add("request", about);
        }
        if let (true, Some(name)) = (
            value["spec"]["templateName"].is_string(),
            value["metadata"]["name"].as_str(),
        ) {
            self.add("request", name);
        }
        if let Some(before) = value["extends"].as_str() {
            self.add("request", before);
        }
    }

    /// Replaces the longest names first: one name may be part of another.
    fn rename(&self, value: &mut Value) {
        let mut names: Vec<(&String, &String)> = self.0.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, instead) in names {
            rewrite(value, &|text| replaced(text, name, instead));
        }
    }
}

/// Replaces every text in a value by the result of `instead`.
fn rewrite(value: &mut Value, instead: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = instead(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, instead)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| rewrite(field, instead)),
        _ => {}
    }
}

/// Replaces a name in a text, but not as part of a word: a user may be called `al`.
fn replaced(text: &str, name: &str, instead: &str) -> String {
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let (mut all, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(name) {
        all.push_str(before);
        let is_part = is_word(all.chars().last()) || is_word(after.chars().next());
        all.push_str(if is_part { name } else { instead });
        rest = after;
    }
    all + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_people_and_secrets_is_left() {
        let mut report = json!({
            "requests": [{
                "metadata": {
                    "name": "alice-x7k2p", "generateName": "alice-", "annotations": {
                        "crds.wizardofoz.co/requested-by": "alice@example.com",
                        "crds.wizardofoz.co/requester": "{\"user\":\"alice\",\"sig\":\"s3cr3t\"}",
                    },
                },
                "spec": {
                    "templateName": "shell", "reason": "of alice's illness",
                    "extends": "alice-b4c5d",
                },
                "status": {
                    "requester": "alice@example.com", "podName": "alice-x7k2p-12345678",
                    "accessMessage": "kubectl attach -ti alice-x7k2p-12345678",
                    "conditions": [{
                        "reason": "Success", "message": "Requested by alice@example.com",
                    }],
                },
            }],
            "events": [
                {
                    "kind": "ExecAccessRequest", "regarding": "alice-a1b2c",
                    "note": "alice-a1b2c was granted",
                },
                {"kind": "ExecAccessTemplate", "regarding": "shell", "note": "shell is ready"},
            ],
            "templates": [{"spec": {
                "accessConfig": {"allowedUsers": ["alice.smith"]},
                "controllerTargetMutationConfig": {
                    "env": [{"name": "TOKEN", "value": "s3cr3t"}],
                    "command": ["login", "--password=s3cr3t"],
                    "patchSpecOperations": [{"op": "add", "path": "/a", "value": "s3cr3t"}],
                },
                "podSpec": {"containers": [{"name": "app", "args": ["--password=s3cr3t"]}]},
            }}],
        });
        let mut names = Names::default();
        names.find(&report);
        redact(&mut report);
        names.rename(&mut report);
        let text = report.to_string();
        for left in ["alice", "s3cr3t", "illness", "smith"] {
            assert!(!text.contains(left), "{left}: {text}");
        }
        let reason = &report["requests"][0]["status"]["conditions"][0]["reason"];
        assert_eq!(reason, "Success");
        let pod = report["requests"][0]["status"]["podName"].as_str().unwrap();
        assert!(
            pod.starts_with("request-") && pod.ends_with("-12345678"),
            "{pod}"
        );
        assert_eq!(report["events"][1]["note"], "shell is ready");
    }

    #[test]
    fn a_short_name_spoils_no_word() {
        for (text, expected) in [
            ("al", "user-1"),
            (
                "al's pod al-x7k2p, by al",
                "user-1's pod user-1-x7k2p, by user-1",
            ),
            ("allowed, signal, alal", "allowed, signal, alal"),
        ] {
            assert_eq!(replaced(text, "al", "user-1"), expected);
        }
    }
}
