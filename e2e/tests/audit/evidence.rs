//! Evidence of oz's actions, made by an auditor who may only read and request a seal; and the list of users who could
//! get access.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use oz_api::{AccessReview, labels};
use oz_e2e::{
    Auditor, NAMESPACE, Person, Scene, System, answer_to, approval_rule, approved_template,
    exec_request,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};
use serde_json::{Value, json};

use crate::alone;
use crate::support::{clean, settled};

const BOB: Person = Person::new("bob", &["approvers"]);

/// The result of `ozctl audit …`.
struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn audit(cluster: &Cluster, user: &str, words: &[&str]) -> Result<Answer> {
    let output = Command::new(cargo_binary("ozctl")?)
        .arg("audit")
        .args(words)
        .env("KUBECONFIG", cluster.kubeconfig(user))
        .env("NO_COLOR", "1")
        .output()?;
    Ok(Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// Binds a user to the rights of oz's roles for users, in all namespaces or in oz's.
async fn bound(cluster: &Cluster, user: &str, roles: &[&str]) -> Result<()> {
    let admin = cluster.client("admin").await?;
    let ours = PatchParams::apply("test").force();
    let subjects = json!([
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
    ]);
    let binding = |kind: &str, role_kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": format!("{user}-{role}")}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        })
    };
    let everywhere: Api<ClusterRoleBinding> = Api::all(admin.clone());
    let reader = binding("ClusterRoleBinding", "ClusterRole", "oz-audit-reader");
    let name = format!("{user}-oz-audit-reader");
    everywhere
        .patch(&name, &ours, &Patch::Apply(reader))
        .await?;
    let in_oz: Api<RoleBinding> = Api::namespaced(admin, NAMESPACE);
    for role in roles {
        let binding = binding("RoleBinding", "Role", role);
        let name = format!("{user}-{role}");
        in_oz.patch(&name, &ours, &Patch::Apply(binding)).await?;
    }
    Ok(())
}

/// Creates a request of alice that bob approves.
async fn approved(scene: &Scene) -> Result<()> {
    scene.may_approve("approvers").await?;
    let rules = vec![approval_rule("security", &["bob"], &[], 1)];
    let template = approved_template("asked", rules, "1h");
    scene.template(&template).await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("mine", "asked", "5m")).await?;
    let waits = |status: &oz_api::RequestStatus| status.approval.is_some();
    let request = alice.until("mine", "to wait for others", waits).await?;
    let answer = answer_to(&request, "mine-security", true)?;
    // The webhook that receives the approval may not have seen the template yet.
    eventually("bob to approve", CONDITION_TIMEOUT, async || {
        let (namespace, answers) = (scene.name(), "accessrequestapprovals");
        let given = BOB.create(&scene.admin, namespace, answers, &answer);
        Ok(Some(given.await?))
    })
    .await?;
    alice.ready("mine").await?;
    Ok(())
}

/// Makes an attestation of erin, from the list to its name: first without decisions, then with.
async fn attested(cluster: &Cluster, file: &Path) -> Result<String> {
    cluster.issue_kubeconfig("erin", &[])?;
    bound(cluster, "erin", &["oz-audit-reader"]).await?;
    let path = file.display().to_string();
    let list = audit(
        cluster,
        "erin",
        &["entitlements", "--to-attest", "-o", "csv"],
    )?;
    std::fs::write(file, &list.stdout)?;
    let undecided = audit(cluster, "erin", &["attest", &path])?;
    assert_eq!(
        undecided.code,
        Some(3),
        "{}{}",
        undecided.stdout,
        undecided.stderr
    );
    ensure!(
        undecided.stdout.contains("line 2 has no decision"),
        "{}",
        undecided.stdout
    );
    let mut lines: Vec<String> = list.stdout.lines().map(ToOwned::to_owned).collect();
    for (number, line) in lines.iter_mut().enumerate().skip(1) {
        if let Some(bare) = line
            .strip_suffix(",,")
            .filter(|bare| !bare.starts_with("DIGEST"))
        {
            let decision = if number == 1 { "remove" } else { "keep" };
            *line = format!("{bare},{decision},looked at with the team");
        }
    }
    std::fs::write(file, lines.join("\n"))?;
    // The API server refuses a user who lacks the right.
    let refused = audit(cluster, "erin", &["attest", &path])?;
    assert_eq!(
        refused.code,
        Some(1),
        "{}{}",
        refused.stdout,
        refused.stderr
    );
    ensure!(
        refused.stderr.contains("oz-review-access"),
        "{}",
        refused.stderr
    );
    let admin = cluster.client("admin").await?;
    let in_oz: Api<RoleBinding> = Api::namespaced(admin.clone(), NAMESPACE);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "erin-reviews"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oz-review-access",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "erin"}],
    });
    let ours = PatchParams::apply("test").force();
    in_oz
        .patch("erin-reviews", &ours, &Patch::Apply(binding))
        .await?;
    let made = eventually("erin to attest", CONDITION_TIMEOUT, async || {
        let made = audit(cluster, "erin", &["attest", &path])?;
        Ok((made.code == Some(0)).then_some(made.stdout))
    })
    .await?;
    ensure!(made.contains("1 removed (attestation-"), "{made}");
    ensure!(made.contains("To be removed"), "{made}");
    let name = made
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let name = name.context("no name")?.0.to_owned();
    let reviews: Api<AccessReview> = Api::namespaced(admin, NAMESPACE);
    let stored = reviews.get(&name).await?;
    assert_eq!(stored.annotations()[labels::REVIEWED_BY], "erin");
    let removed = stored.spec.attestation.context("no attestation")?.removed;
    assert_eq!(removed, 1);
    // It stays; deleting and changing it fail.
    refused_for_good(&reviews, &name).await?;
    Ok(name)
}

/// Checks that an administrator can neither change nor delete it.
async fn refused_for_good(reviews: &Api<AccessReview>, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "attestation": { "kept": 0 } } }));
    let patched = reviews.patch(name, &PatchParams::default(), &patch).await;
    ensure!(patched.is_err(), "it was changed");
    let deleted = reviews.delete(name, &DeleteParams::default()).await;
    ensure!(deleted.is_err(), "it was deleted");
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
#[tokio::test]
async fn evidence_is_made_sealed_and_checked_without_the_cluster() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let files = tempfile::tempdir()?;
    let path = |name: &str| files.path().join(name).display().to_string();
    let (pin, file) = (path("oz.pub"), path("evidence.tar"));
    let from = Timestamp::now().to_string();
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "evidence").await?;
    approved(&scene).await?;
    let attested = attested(cluster, &files.path().join("review.csv")).await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;
    let to = Timestamp::now().to_string();

    let (reader, sealer) = ("ida", "saul");
    for (user, roles) in [
        (reader, &["oz-audit-reader"][..]),
        (sealer, &["oz-audit-reader", "oz-evidence-sealer"]),
    ] {
        cluster.issue_kubeconfig(user, &[])?;
        bound(cluster, user, roles).await?;
    }
    std::fs::write(&pin, audit(cluster, sealer, &["keys"])?.stdout)?;
    let time = ["--from", &from, "--to", &to];
    let wanted = |more: &[&'static str]| {
        let words = ["evidence", "-o", &file].into_iter().chain(time);
        words
            .map(ToOwned::to_owned)
            .chain(more.iter().map(|&word| word.to_owned()))
            .collect::<Vec<_>>()
    };
    let make = |user: &str, more: &[&'static str]| {
        let words = wanted(more);
        audit(
            cluster,
            user,
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    };
    // A user who may only read gets no seal, and no file.
    let refused = make(reader, &[])?;
    assert_eq!(
        refused.code,
        Some(1),
        "{}{}",
        refused.stdout,
        refused.stderr
    );
    assert!(
        refused.stderr.contains("oz-evidence-sealer"),
        "{}",
        refused.stderr
    );
    ensure!(
        !Path::new(&file).exists(),
        "a file that is not whole was left"
    );
    let made = make(sealer, &["--sample", "1", "--seed", "7"])?;
    // The processes of the tests have no Deployment; the command reports that.
    assert_eq!(made.code, Some(3), "{}{}", made.stdout, made.stderr);
    assert!(made.stdout.contains("granted: 1, "), "{}", made.stdout);
    let gaps: Vec<&str> = made
        .stderr
        .lines()
        .filter(|line| line.starts_with("Gap: "))
        .collect();
    ensure!(
        gaps.len() == 1 && gaps[0].contains("no operator was found"),
        "{gaps:?}"
    );

    let check = |more: &[&str]| {
        let words = [&["evidence", "--check", &file], more].concat();
        Command::new(cargo_binary("ozctl")?)
            .arg("audit")
            .args(words)
            .env("KUBECONFIG", "/nowhere")
            .env("NO_COLOR", "1")
            .output()
            .context("ozctl did not run")
    };
    let whole = check(&["--key", &pin])?;
    let said = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert_eq!(whole.status.code(), Some(0), "{said}");
    assert!(
        said.contains("Valid: ") && said.contains("as saul asked"),
        "{said}"
    );

    // The content of the file.
    let list = Command::new("tar")
        .args(["-xf", &file, "-C"])
        .arg(files.path())
        .status()?;
    ensure!(list.success());
    let inside = |name: &str| std::fs::read_to_string(files.path().join("oz-evidence").join(name));
    let summary = inside("summary.csv")?;
    // Grants of other tests may end in between.
    let ours = |line: &&str| line.contains(scene.name());
    let ours: Vec<&str> = summary.lines().filter(ours).collect();
    ensure!(
        ours.len() == 1
            && ours[0].contains(",alice,asked,sha256:")
            && ours[0].contains("bob (security)"),
        "{summary}"
    );
    let approvals = inside("approvals.csv")?;
    ensure!(
        approvals.contains(",ApprovalGiven,Allow,bob,security,"),
        "{approvals}"
    );
    let attestations = inside("attestations.csv")?;
    let row = format!(",EntitlementsAttested,erin,{NAMESPACE},{attested},sha256:");
    ensure!(attestations.contains(&row), "{row}: {attestations}");
    assert_eq!(inside("sample.csv")?.lines().count(), 2);
    let objects = inside("objects.json")?;
    ensure!(
        objects.contains("\"asked\"") && objects.contains("oz-approvals"),
        "{objects}"
    );
    let sums = Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(files.path().join("oz-evidence"))
        .status()?;
    ensure!(sums.success(), "sha256sum does not take the sums");

    // The audit trail has it once.
    let listed = audit(
        cluster,
        reader,
        &["list", "--action", "EvidenceSealed", "-o", "json"],
    )?;
    let records: Vec<Value> = serde_json::from_str(&listed.stdout)?;
    assert_eq!(records.len(), 1, "{}", listed.stdout);
    assert_eq!(records[0]["details"]["by"], "saul");
    settled(&auditor).await?;

    // One file has a changed byte, and one lacks its second half.
    let bytes = std::fs::read(&file)?;
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for broken in [flipped, bytes[..bytes.len() / 2].to_vec()] {
        std::fs::write(&file, broken)?;
        let answer = check(&["--key", &pin])?;
        let said = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{said}");
        assert!(said.contains("NOT WHOLE"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn entitlements_are_listed_with_gaps_of_unreadable_objects() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    cargo_binary("ozctl")?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "entitled").await?;
    approved(&scene).await?;
    let ours = PatchParams::apply("test").force();
    let kept = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "kept"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "=mallory"},
        ],
    });
    let bindings = scene.api::<RoleBinding>();
    bindings.patch("kept", &ours, &Patch::Apply(kept)).await?;
    let reader = "ida";
    cluster.issue_kubeconfig(reader, &[])?;
    bound(cluster, reader, &["oz-audit-reader"]).await?;

    let found = audit(
        cluster,
        reader,
        &["entitlements", "-n", scene.name(), "-o", "csv"],
    )?;
    assert_eq!(found.code, Some(3), "{}{}", found.stdout, found.stderr);
    let ns = scene.name();
    for row in [
        format!("Approve,{ns},User,bob,"),
        format!("Granted,{ns},User,alice,"),
        format!("Standing,{ns},User,'=mallory,"),
    ] {
        assert!(found.stdout.contains(&row), "{row}: {}", found.stdout);
    }
    // The list names the grant, and no other access, with its expiry.
    let granted = found
        .stdout
        .lines()
        .filter(|line| line.starts_with("Granted,"));
    assert_eq!(granted.count(), 1, "{}", found.stdout);
    // `edit` is an aggregated role: another role supplies the right.
    let standing = found.stdout.lines().find(|line| line.contains("=mallory"));
    let standing = standing.context("no row")?;
    ensure!(
        standing.contains("create pods/exec")
            && standing.contains("ClusterRole edit, by ClusterRole system:aggregate-to-edit"),
        "{standing}"
    );
    let again = audit(cluster, "admin", &["entitlements", "-n", ns, "-o", "json"])?;
    let list: Value = serde_json::from_str(&again.stdout)?;
    let digest = list["digest"].as_str().context("no digest")?;
    assert!(found.stderr.contains(digest), "{} {digest}", found.stderr);

    // A user who may read nothing sees which rights are missing.
    cluster.issue_kubeconfig("nadia", &[])?;
    let nothing = audit(cluster, "nadia", &["entitlements"])?;
    assert_eq!(
        nothing.code,
        Some(3),
        "{}{}",
        nothing.stdout,
        nothing.stderr
    );
    for title in [
        "ClusterRoleBinding",
        "RoleBinding",
        "ExecAccessTemplate",
        "break-glass groups",
    ] {
        let gap = format!("Gap: {title}");
        assert!(nothing.stderr.contains(&gap), "{gap}: {}", nothing.stderr);
    }
    Ok(())
}
