//! Names for completion. The shell waits while ozctl asks the cluster, so a slow response counts as
//! none, and a failure prints nothing.

use std::ffi::OsStr;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Resource};
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, HarnessTemplate, Workspace};
use oz_api::{
    AccessLock, CrossVersionObjectReference, ExecAccessTemplate, PodAccessTemplate, TargetKind,
};
use oz_core::for_each_kind;
use oz_core::kinds::{self, AccessTemplate, Entry, Family};
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;
use crate::connect;
use crate::connection::Connection;

/// The maximum time that the shell waits for names.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the names of templates for exec.
pub(crate) fn exec_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| names_of::<ExecAccessTemplate>(&cluster).await)
}

/// Returns the names of templates for pods.
pub(crate) fn pod_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| names_of::<PodAccessTemplate>(&cluster).await)
}

/// Returns the names of templates of every kind.
pub(crate) fn templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| {
        let mut lists = Vec::new();
        for_each_kind!(templates T => { lists.push(names_of::<T>(&cluster).boxed_local()) });
        join_all(lists).await.concat()
    })
}

/// Returns the names of requests of every kind.
pub(crate) fn requests() -> Vec<CompletionCandidate> {
    ask(async |cluster| {
        let mut lists = Vec::new();
        for_each_kind!(requests R => { lists.push(names_of::<R>(&cluster).boxed_local()) });
        join_all(lists).await.concat()
    })
}

/// Returns the names of locks.
pub(crate) fn locks() -> Vec<CompletionCandidate> {
    ask(async |cluster| listed(&Api::<AccessLock>::all(cluster.client.clone())).await)
}

/// Returns the names of harness runs.
pub(crate) fn runs() -> Vec<CompletionCandidate> {
    ask(async |cluster| names_of::<HarnessRun>(&cluster).await)
}

/// Returns the names of workspaces.
pub(crate) fn workspaces() -> Vec<CompletionCandidate> {
    ask(async |cluster| names_of::<Workspace>(&cluster).await)
}

/// Returns the names of templates for harness runs, of the namespace and of the cluster.
pub(crate) fn harness_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| {
        let shared = Api::<ClusterHarnessTemplate>::all(cluster.client.clone());
        let own = names_of::<HarnessTemplate>(&cluster);
        let (mut names, shared) = futures::join!(own, listed(&shared));
        names.extend(shared);
        names.sort_unstable();
        names.dedup();
        names
    })
}

/// Returns the names of composites.
pub(crate) fn composites() -> Vec<CompletionCandidate> {
    ask(async |cluster| {
        let mut lists = Vec::new();
        for_each_kind!(composites C => {
            let all = Api::<C>::all(cluster.client.clone());
            lists.push(async move { listed(&all).await }.boxed_local());
        });
        join_all(lists).await.concat()
    })
}

/// Returns the completions of an argument of `explain`: names of requests, the kinds of composites'
/// parents, and names of parents after a kind.
pub(crate) fn explained(typed: &OsStr) -> Vec<CompletionCandidate> {
    let begun = typed.to_string_lossy().into_owned();
    let names = |mut found: Vec<CompletionCandidate>| {
        found.retain(|one| one.get_value().to_string_lossy().starts_with(&begun));
        found
    };
    let word = begun.clone();
    let parents = ask(async move |cluster| parents(&cluster, &word).await);
    match begun.contains('/') {
        true => names(parents),
        false => names(requests().into_iter().chain(parents).collect()),
    }
}

async fn parents(cluster: &Cluster, typed: &str) -> Vec<String> {
    let found = oz_client::composites::read(cluster, &[]).await;
    let composites = found.map(|found| found.composites).unwrap_or_default();
    let mut words = Vec::new();
    for composite in &composites {
        let (parent, _) = oz_client::composites::parent(composite);
        let plural = &parent.resource;
        if typed.split_once('/').is_none_or(|(word, _)| word != plural) {
            words.push(format!("{plural}/"));
            continue;
        }
        let Ok(kind) = oz_client::composites::placed(cluster, &parent).await else {
            continue;
        };
        let api = oz_client::composites::objects(cluster, &kind);
        let names = listed(&api).await.into_iter();
        words.extend(names.map(|name| format!("{plural}/{name}")));
    }
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns the completions of an argument of `get`: kinds, and names after a kind.
pub(crate) fn words() -> Vec<CompletionCandidate> {
    let typed = typed();
    let verb = typed.iter().position(|word| word == "get");
    let after = typed.get(verb.map_or(0, |at| at + 1)..).unwrap_or_default();
    let named = |word: &String| kinds::named(word).filter(Entry::is_of_access);
    let Some(kind) = after.iter().find_map(named) else {
        let ours = kinds::all().into_iter();
        let ours = ours.filter(|kind| kind.family == Family::Access);
        let plurals = ours.map(|kind| CompletionCandidate::new(kind.resource.plural));
        return plurals.collect();
    };
    ask(async move |cluster| {
        let client = cluster.client.clone();
        let api: Api<DynamicObject> = match kind.namespaced {
            true => Api::namespaced_with(client, &cluster.namespace, &kind.resource),
            false => Api::all_with(client, &kind.resource),
        };
        listed(&api).await
    })
}

/// Returns the completions of a target of `exec`: the workloads of its templates, with the word for
/// the kind that the user began, or by name alone.
pub(crate) fn targets(typed: &OsStr) -> Vec<CompletionCandidate> {
    targets_of::<ExecAccessTemplate>(typed)
}

/// Returns the completions of a target of `pod`, as [`targets`] does.
pub(crate) fn pod_targets(typed: &OsStr) -> Vec<CompletionCandidate> {
    targets_of::<PodAccessTemplate>(typed)
}

fn targets_of<T: AccessTemplate>(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().into_owned();
    ask(async move |cluster| {
        let templates = cluster.api::<T>();
        let found = templates.list(&ListParams::default()).await;
        let mut names: Vec<String> = found
            .into_iter()
            .flatten()
            .flat_map(|template| ways_to(&template, &typed))
            .filter(|name| name.starts_with(&typed))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    })
}

/// Returns the spellings of a template's target that fit the beginning `typed`.
fn ways_to<T: AccessTemplate>(template: &T, typed: &str) -> Vec<String> {
    let workload = template.workload();
    let Some((word, _)) = typed.split_once('/') else {
        let kind = |kind: TargetKind| kind.to_string().to_lowercase();
        let workload = workload.map(|target| {
            let longer = format!("{}/{}", kind(target.kind), target.name);
            [target.name.clone(), longer]
        });
        let own = workload.is_none().then(|| template.name().to_owned());
        return workload.into_iter().flatten().chain(own).collect();
    };
    let is_workload = |target: &&CrossVersionObjectReference| {
        crate::names::workload(word).is_some_and(|kind| kind == target.kind)
    };
    match word {
        "template" | "templates" => vec![format!("{word}/{}", template.name())],
        _ => workload
            .filter(is_workload)
            .map(|target| format!("{word}/{}", target.name))
            .into_iter()
            .collect(),
    }
}

/// Returns the names of namespaces.
pub(crate) fn namespaces() -> Vec<CompletionCandidate> {
    ask(async |cluster| {
        let api = Api::<Namespace>::all(cluster.client.clone());
        listed(&api).await
    })
}

/// Returns the names of the contexts in the kubeconfig.
pub(crate) fn contexts() -> Vec<CompletionCandidate> {
    let kubeconfig = connect::kubeconfig(&connection()).ok().flatten();
    kubeconfig
        .into_iter()
        .flat_map(|kubeconfig| kubeconfig.contexts)
        .map(|context| CompletionCandidate::new(context.name))
        .collect()
}

async fn names_of<K>(cluster: &Cluster) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    listed(&cluster.api::<K>()).await
}

async fn listed<K>(api: &Api<K>) -> Vec<String>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.list_metadata(&ListParams::default()).await;
    let found = found.into_iter().flatten();
    found.filter_map(|object| object.metadata.name).collect()
}

/// Asks the cluster that the typed words name. A credential plugin blocks its thread, so the
/// question has a thread that no other work needs: it ends with the process.
fn ask<Q>(question: Q) -> Vec<CompletionCandidate>
where
    Q: AsyncFnOnce(Cluster) -> Vec<String> + Send + 'static,
{
    let (sender, names) = channel();
    std::thread::spawn(move || {
        // After the timeout, the channel has no receiver.
        let _ = sender.send(answer(question));
    });
    let names = names.recv_timeout(COMPLETION_TIMEOUT).ok().flatten();
    let names = names.unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn answer(question: impl AsyncFnOnce(Cluster) -> Vec<String>) -> Option<Vec<String>> {
    oz_client::tls::install();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(async {
        let cluster = connect::connect(&connection()).await.ok()?;
        Some(question(cluster).await)
    })
}

/// Returns the words typed so far; the words before the first `--` belong to the shell.
fn typed() -> Vec<String> {
    let words = std::env::args().skip_while(|word| word != "--");
    words.skip(1).collect()
}

/// Returns the flags among the words typed so far. An incomplete command line cannot be parsed, so
/// this function searches for the flags.
fn connection() -> Connection {
    let words = typed();
    let mut connection = Connection {
        namespace: flag(&words, &["-n", "--namespace"]),
        context: flag(&words, &["--context"]),
        kubeconfig: flag(&words, &["--kubeconfig"]).map(Into::into),
        impersonate: flag(&words, &["--as"]),
        cluster: flag(&words, &["--cluster"]),
        user: flag(&words, &["--user"]),
        server: flag(&words, &["-s", "--server"]),
        token: flag(&words, &["--token"]),
        unattended: true,
        ..Connection::default()
    };
    connection.tidy();
    connection
}

fn flag(words: &[String], names: &[&str]) -> Option<String> {
    let words: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
    words.iter().enumerate().rev().find_map(|(at, word)| {
        names.iter().find_map(|name| {
            if word == name {
                return words.get(at + 1).map(|value| (*value).clone());
            }
            let value = word.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::flag;

    #[test]
    fn flags_are_found_among_half_typed_words() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let typed = words("ozctl exec -n shop --context=prod deploy/");
        assert_eq!(
            flag(&typed, &["-n", "--namespace"]).as_deref(),
            Some("shop")
        );
        assert_eq!(flag(&typed, &["--context"]).as_deref(), Some("prod"));
        assert_eq!(flag(&typed, &["--as"]), None);
        let typed = words("ozctl exec -n shop -n");
        assert_eq!(flag(&typed, &["-n"]).as_deref(), Some("shop"));
    }
}
