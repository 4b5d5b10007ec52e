//! The embedded cluster: its features for tests, and its complete removal.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_testkit::{
    CONDITION_TIMEOUT, Cluster, ClusterOptions, dump_objects, eventually, fixtures,
    spawn_dependent, with_namespace,
};
use serde_json::json;

/// Returns the identity of the owner of a kubeconfig at the API server: user and groups.
async fn whoami(cluster: &Cluster, user: &str) -> Result<(String, Vec<String>)> {
    let reviews = Api::<SelfSubjectReview>::all(cluster.client(user).await?);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let info = review
        .status
        .and_then(|status| status.user_info)
        .context("no user info")?;
    Ok((
        info.username.unwrap_or_default(),
        info.groups.unwrap_or_default(),
    ))
}

#[tokio::test]
async fn alice_is_alice_of_the_group_devs() -> Result<()> {
    let cluster = Cluster::shared().await?;

    let (user, groups) = whoami(cluster, "alice").await?;

    assert_eq!(user, "alice");
    assert_eq!(groups, ["devs", "system:authenticated"]);
    Ok(())
}

#[tokio::test]
async fn an_identity_can_be_issued_with_any_number_of_groups() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let account = "system:serviceaccount:oz-system:oz-operator";
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:oz-system",
        "third",
    ];

    cluster.issue_kubeconfig(account, &groups)?;
    let (user, seen) = whoami(cluster, account).await?;

    assert_eq!(user, account);
    assert_eq!(seen[..3], groups);
    Ok(())
}

#[tokio::test]
async fn pods_of_every_kind_of_workload_become_ready() -> Result<()> {
    let cluster = Cluster::shared().await?;
    with_namespace(cluster, "workloads", async |namespace| {
        let client = cluster.client("admin").await?;

        let deployed = fixtures::deployment(&client, namespace.name(), "web", 3).await?;
        let stateful = fixtures::stateful_set(&client, namespace.name(), "db", 2).await?;
        let daemons = fixtures::daemon_set(&client, namespace.name(), "agent").await?;

        assert_eq!((deployed.len(), daemons.len()), (3, 1));
        let names: Vec<&str> = stateful
            .iter()
            .filter_map(|pod| pod.metadata.name.as_deref())
            .collect();
        assert_eq!(names, ["db-0", "db-1"]);
        Ok(())
    })
    .await
}

/// kwok deletes a pod by its name. After a forced deletion, that may be the name of the next pod already.
#[tokio::test]
async fn pod_deleted_by_force_is_not_deleted_again_by_kwok() -> Result<()> {
    let cluster = Cluster::shared().await?;
    with_namespace(cluster, "force", async |namespace| {
        let pods: Api<Pod> = Api::namespaced(cluster.client("admin").await?, namespace.name());
        let mark = cluster.audit().mark()?;
        let gracefully = DeleteParams::default();
        let by_force = DeleteParams::default().grace_period(0);
        for (name, how) in [("by-force", by_force), ("gracefully", gracefully)] {
            // The finalizer keeps the pod until kwok has seen its deletion.
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": name, "finalizers": ["example.test/seen"] },
                "spec": { "containers": [{ "name": "app", "image": "example.test/app:1" }] },
            }))?;
            pods.create(&PostParams::default(), &pod).await?;
            eventually("the pod to be ready", CONDITION_TIMEOUT, async || {
                let pod = pods.get(name).await?;
                Ok(fixtures::is_ready(&pod).then_some(()))
            })
            .await?;
            pods.delete(name, &how).await?;
        }

        let deleted = eventually("kwok to delete a pod", CONDITION_TIMEOUT, async || {
            let entries = cluster.audit().since(mark)?.in_namespace(namespace.name());
            let deletions = entries.by_user("kwok").with_verb("delete");
            let names: Vec<String> = deletions.iter().map(|one| one.name.clone()).collect();
            let is_seen = names.iter().any(|name| name == "gracefully");
            Ok(is_seen.then_some(names))
        })
        .await?;
        for name in ["by-force", "gracefully"] {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            pods.patch(name, &PatchParams::default(), &patch).await?;
            eventually("the pod to be gone", CONDITION_TIMEOUT, async || {
                Ok(pods.get_opt(name).await?.is_none().then_some(()))
            })
            .await?;
        }

        ensure!(
            !deleted.iter().any(|name| name == "by-force"),
            "{deleted:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_exec_runs_a_real_process_and_rbac_decides_who_may() -> Result<()> {
    let cluster = Cluster::shared().await?;
    with_namespace(cluster, "exec", async |namespace| {
        let client = cluster.client("admin").await?;
        fixtures::deployment(&client, namespace.name(), "web", 1).await?;
        let exec = |user: &str, script: &str| {
            cluster
                .kubectl(user)
                .args([
                    "exec",
                    "deploy/web",
                    "-n",
                    namespace.name(),
                    "--",
                    "sh",
                    "-c",
                    script,
                ])
                .output()
        };

        let admin = exec("admin", "echo hello")?;
        let alice = exec("alice", "echo hello")?;

        assert_eq!(String::from_utf8(admin.stdout)?, "hello\n");
        assert!(alice.stdout.is_empty());
        let refusal = String::from_utf8(alice.stderr)?;
        ensure!(refusal.contains("Forbidden"), "alice was told: {refusal}");
        Ok(())
    })
    .await
}

/// Permits `user` to write ConfigMaps in `namespace`.
async fn grant_config_maps(cluster: &Cluster, namespace: &str, user: &str) -> Result<()> {
    let client = cluster.client("admin").await?;
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": "writer" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }],
    }))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "writer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    }))?;
    let post = PostParams::default();
    Api::namespaced(client.clone(), namespace)
        .create(&post, &role)
        .await?;
    Api::namespaced(client, namespace)
        .create(&post, &binding)
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_audit_log_counts_what_a_user_wrote() -> Result<()> {
    let cluster = Cluster::shared().await?;
    with_namespace(cluster, "audit", async |namespace| {
        let maps: Api<ConfigMap> =
            Api::namespaced(cluster.client("alice").await?, namespace.name());
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "one" } }))?;
        let post = PostParams::default();
        ensure!(
            maps.create(&post, &map).await.is_err(),
            "alice may write before the grant"
        );
        let mark = cluster.audit().mark()?;
        grant_config_maps(cluster, namespace.name(), "alice").await?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("the grant to be seen", CONDITION_TIMEOUT, async || {
            Ok(Some(maps.create(&dry_run, &map).await?))
        })
        .await?;

        maps.create(&post, &map).await?;
        maps.replace("one", &post, &map).await?;
        maps.delete("one", &DeleteParams::default()).await?;

        let count = |verb: &str| (("alice".into(), verb.into(), "configmaps".into()), 1);
        let expected = BTreeMap::from(["create", "delete", "update"].map(count));
        eventually("three writes in the log", CONDITION_TIMEOUT, async || {
            let entries = cluster.audit().since(mark)?.in_namespace(namespace.name());
            let counts = entries.by_user("alice").writes().counts();
            ensure!(counts == expected, "{counts:?}");
            Ok(Some(()))
        })
        .await
    })
    .await
}

#[tokio::test]
async fn namespace_is_dumped_and_deleted_with_test() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let client = cluster.client("admin").await?;

    let name = with_namespace(cluster, "dump", async |namespace| {
        grant_config_maps(cluster, namespace.name(), "alice").await?;
        let dump = dump_objects(&client, namespace.name()).await?;
        ensure!(
            dump.iter().any(|line| line.starts_with("Role {")),
            "{dump:?}"
        );
        Ok(namespace.name().to_owned())
    })
    .await?;

    let namespaces = Api::<Namespace>::all(client);
    eventually("the namespace to be gone", CONDITION_TIMEOUT, async || {
        Ok(namespaces.get_opt(&name).await?.is_none().then_some(()))
    })
    .await
}

/// Checks whether the process runs: it exists and is not only waiting to be reaped.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit(')').next()?.trim_start().chars().next())
        .is_some_and(|state| state != 'Z')
}

#[tokio::test]
async fn clusters_are_independent_and_a_dropped_one_leaves_nothing() -> Result<()> {
    let shared = Cluster::shared().await?;
    let other = Cluster::start(ClusterOptions::default()).await?;
    let client = other.client("admin").await?;
    let (directory, components) = (other.state_dir().to_owned(), other.components().clone());
    assert_ne!(shared.server_url(), other.server_url());
    assert_eq!(components.len(), 5);
    assert!(components.values().all(|pid| runs(*pid)));
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta {
            name: Some("only-there".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    Api::all(client)
        .create(&PostParams::default(), &namespace)
        .await?;
    let here = Api::<Namespace>::all(shared.client("admin").await?);
    assert!(here.get_opt("only-there").await?.is_none());

    drop(other);

    let left: Vec<_> = components.iter().filter(|(_, pid)| runs(**pid)).collect();
    ensure!(left.is_empty(), "still running: {left:?}");
    assert!(!directory.exists());
    assert_eq!(whoami(shared, "bob").await?.0, "bob");
    Ok(())
}

/// The variable that makes [`own_a_cluster_until_killed`] run, and names the file of its report.
const REPORT: &str = "TESTKIT_REPORT";
/// A duration that identifies the process that an exec leaves behind.
const LONG_SLEEP: &str = "987654";

#[tokio::test]
#[ignore = "not a test: the next one runs it as the process that it kills"]
async fn own_a_cluster_until_killed() -> Result<()> {
    let Some(report) = std::env::var_os(REPORT) else {
        return Ok(());
    };
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let client = cluster.client("admin").await?;
    fixtures::deployment(&client, "default", "web", 1).await?;
    let mut exec = cluster.kubectl("admin");
    let mut exec = exec
        .args(["exec", "deploy/web", "--", "sleep", LONG_SLEEP])
        .spawn()?;
    let kwok = *cluster.components().get("kwok").context("no kwok")?;
    let sleeping = eventually("the exec's process", CONDITION_TIMEOUT, async || {
        // The child of the shell that guards kwok is kwok. Its own child is a copy of kwok until
        // the program is loaded.
        let child = child_of(kwok).and_then(child_of);
        Ok(child.filter(|pid| command_line(*pid).contains(LONG_SLEEP)))
    })
    .await?;
    let mut pids: Vec<u32> = cluster.components().values().copied().collect();
    pids.push(sleeping);
    let facts = json!({ "directory": cluster.state_dir(), "pids": pids });
    std::fs::write(Path::new(&report), facts.to_string())?;
    exec.wait()?;
    Ok(())
}

/// Returns the program and arguments of a process, separated by NUL.
fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Returns a child process of `parent`.
fn child_of(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task");
    std::fs::read_dir(children)
        .ok()?
        .flatten()
        .find_map(|task| {
            let children = std::fs::read_to_string(task.path().join("children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        })
}

#[tokio::test]
async fn nothing_outlives_an_owner_that_is_killed() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let report = scratch.path().join("report.json");
    let mut owner = Command::new(std::env::current_exe()?);
    owner
        .args([
            "own_a_cluster_until_killed",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(REPORT, &report);
    // Ends with this test, also when the test fails: its cluster would continue, and hold the
    // test's output.
    let mut owner = spawn_dependent(owner)?;
    let facts: serde_json::Value =
        eventually("the owner's report", CONDITION_TIMEOUT, async || {
            let exited = owner.exited()?;
            ensure!(exited.is_none(), "the owner ended with {exited:?}");
            Ok(Some(serde_json::from_slice(&std::fs::read(&report)?)?))
        })
        .await?;
    let pids: Vec<u32> = serde_json::from_value(facts["pids"].clone())?;
    let directory: std::path::PathBuf = serde_json::from_value(facts["directory"].clone())?;
    assert_eq!(pids.len(), 6);
    assert!(pids.iter().all(|pid| runs(*pid)));

    owner.kill();

    eventually("every process to end", CONDITION_TIMEOUT, async || {
        let left: Vec<_> = pids.iter().filter(|pid| runs(**pid)).collect();
        ensure!(left.is_empty(), "still running: {left:?}");
        Ok(Some(()))
    })
    .await?;
    drop(Cluster::start(ClusterOptions::default()).await?);
    ensure!(
        !directory.exists(),
        "the next start did not sweep {}",
        directory.display()
    );
    Ok(())
}
