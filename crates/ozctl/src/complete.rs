//! Names for completion, in shells and by kubectl. The shell waits while ozctl asks the cluster, so a
//! slow response counts as none, and a failure prints nothing.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap_complete::{CompletionCandidate, engine};
use oz_api::harness::{HarnessRun, Workspace};
use oz_api::{AccessLock, ExecAccessTemplate, PodAccessTemplate};
use oz_client::candidates;
use oz_core::kinds::{self, AccessTemplate, Entry, Family};

use crate::cluster::Cluster;
use crate::connect;
use crate::connection::Connection;

/// The maximum time that the shell waits for names.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// The program that kubectl starts to complete the words of its plugin `oz` is `kubectl_complete-oz`.
/// See <https://github.com/kubernetes/sample-cli-plugin#shell-completion>.
const KUBECTL_COMPLETE: &str = "kubectl_complete-";

/// The directives of the shell after the candidates: ShellCompDirectiveNoSpace and
/// ShellCompDirectiveNoFileComp of <https://pkg.go.dev/github.com/spf13/cobra>.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// Returns the plugin of kubectl whose words this process completes, by the name that it was started
/// under.
pub(crate) fn kubectl_plugin(started: &OsStr) -> Option<&str> {
    let name = Path::new(started).file_stem()?.to_str()?;
    name.strip_prefix(KUBECTL_COMPLETE)
}

/// Prints the candidates for the last word to kubectl.
pub(crate) fn for_kubectl(mut command: clap::Command, words: Vec<OsString>) -> ExitCode {
    let last = words.len().saturating_sub(1);
    let here = std::env::current_dir().ok();
    let found = engine::complete(&mut command, words, last, here.as_deref());
    let found = lines(&found.unwrap_or_default());
    // kubectl shows no error of a completion.
    let _ = std::io::stdout().write_all(found.as_bytes());
    ExitCode::SUCCESS
}

/// Returns the candidates, one in each line, with a tab before its description; and the directive.
fn lines(candidates: &[CompletionCandidate]) -> String {
    let (mut lines, mut directive) = (String::new(), NO_FILES);
    for candidate in candidates {
        let value = candidate.get_value().to_string_lossy();
        if value.ends_with(['/', '=', ':']) {
            directive |= NO_SPACE;
        }
        let help = candidate.get_help().map(ToString::to_string);
        let help = help.as_deref().and_then(|help| help.lines().next());
        lines += &match help {
            Some(help) => format!("{value}\t{help}\n"),
            None => format!("{value}\n"),
        };
    }
    lines + &format!(":{directive}\n")
}

/// Returns the names of templates for exec.
pub(crate) fn exec_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::of_kind::<ExecAccessTemplate>(&cluster).await)
}

/// Returns the names of templates for pods.
pub(crate) fn pod_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::of_kind::<PodAccessTemplate>(&cluster).await)
}

/// Returns the names of templates of every kind.
pub(crate) fn templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::templates(&cluster).await)
}

/// Returns the names of requests of every kind.
pub(crate) fn requests() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::requests(&cluster).await)
}

/// Returns the names of locks.
pub(crate) fn locks() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::of_cluster_kind::<AccessLock>(&cluster).await)
}

/// Returns the names of harness runs.
pub(crate) fn runs() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::of_kind::<HarnessRun>(&cluster).await)
}

/// Returns the names of workspaces.
pub(crate) fn workspaces() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::of_kind::<Workspace>(&cluster).await)
}

/// Returns the names of templates for harness runs, of the namespace and of the cluster.
pub(crate) fn harness_templates() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::harness_templates(&cluster).await)
}

/// Returns the names of composites.
pub(crate) fn composites() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::composites(&cluster).await)
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
    let parents = ask(async move |cluster| candidates::parents(&cluster, &word).await);
    match begun.contains('/') {
        true => names(parents),
        false => names(requests().into_iter().chain(parents).collect()),
    }
}

/// Returns the completions of an argument of `get`: kinds, and names after a kind.
pub(crate) fn words() -> Vec<CompletionCandidate> {
    let typed = typed();
    let verb = typed.iter().position(|word| word == "get");
    let after = typed.iter().skip(verb.map_or(0, |at| at + 1));
    let mut named = after.filter_map(|word| kinds::find(word).filter(Entry::is_of_access));
    let Some(kind) = named.next() else {
        let ours = kinds::all().into_iter();
        let ours = ours.filter(|kind| kind.family == Family::Access);
        let plurals = ours.map(|kind| CompletionCandidate::new(kind.resource.plural));
        return plurals.collect();
    };
    let kind = kind.into();
    ask(async move |cluster| candidates::objects(&cluster, &kind).await)
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
    ask(async move |cluster| candidates::targets::<T>(&cluster, &typed).await)
}

/// Returns the names of namespaces.
pub(crate) fn namespaces() -> Vec<CompletionCandidate> {
    ask(async |cluster| candidates::namespaces(&cluster).await)
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
    let names = names.recv_timeout(COMPLETION_TIMEOUT).into_iter().flatten();
    names.flatten().map(CompletionCandidate::new).collect()
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

/// Returns the words typed so far. kubectl passes no other words; those of a shell follow a `--`.
fn typed() -> Vec<String> {
    let words: Vec<String> = std::env::args().collect();
    let started = words.first().map(OsStr::new);
    if started.and_then(kubectl_plugin).is_some() {
        return words;
    }
    let words = words.into_iter().skip_while(|word| word != "--");
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
    use super::*;

    #[test]
    fn kubectl_plugin_is_found_in_name_of_program() {
        for (started, plugin) in [
            ("kubectl_complete-oz", Some("oz")),
            (
                "/home/alice/.krew/bin/kubectl_complete-paddock",
                Some("paddock"),
            ),
            ("kubectl_complete-oz.exe", Some("oz")),
            ("kubectl-oz", None),
            ("ozctl", None),
            ("", None),
        ] {
            assert_eq!(kubectl_plugin(OsStr::new(started)), plugin, "{started}");
        }
    }

    #[test]
    fn candidates_for_kubectl_end_with_directive() {
        let new = CompletionCandidate::new;
        let described = new("exec").help(Some("Open a shell\nand more".into()));
        for (candidates, expected) in [
            (vec![], ":4\n"),
            (vec![new("web"), new("api")], "web\napi\n:4\n"),
            (vec![described], "exec\tOpen a shell\n:4\n"),
            (vec![new("files/")], "files/\n:6\n"),
            (vec![new("file"), new("files/")], "file\nfiles/\n:6\n"),
        ] {
            assert_eq!(lines(&candidates), expected);
        }
    }

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
