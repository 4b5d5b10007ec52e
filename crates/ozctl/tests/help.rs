//! The responses to command lines without a cluster: every help page, as it reads in 80 columns,
//! and the messages about invalid words. `INSTA_UPDATE=always cargo test -p ozctl` writes the pages
//! of a new verb.

use assert_cmd::Command;

fn ozctl(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ozctl"));
    command
        .args(words)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .env("NO_COLOR", "1")
        .env("USER", "alice");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Collects the words of every command, from the top.
fn commands(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
    all.push(words.to_vec());
    for below in command.get_subcommands() {
        if below.get_name() != "help" {
            let words = [words, &[below.get_name().to_owned()]].concat();
            commands(below, &words, all);
        }
    }
}

#[test]
fn every_help_page_reads_well_in_80_columns() {
    let mut all = Vec::new();
    commands(&ozctl::command(), &[], &mut all);
    for words in all {
        let mut line: Vec<&str> = words.iter().map(String::as_str).collect();
        line.push("--help");
        let answer = ozctl(&line).output().unwrap();
        assert!(answer.status.success(), "{line:?}");
        let page = text(&answer.stdout);
        for row in page.lines() {
            assert!(row.chars().count() <= 80, "{line:?}: {row}");
        }
        let name = ["ozctl"]
            .into_iter()
            .chain(words.iter().map(String::as_str));
        insta::assert_snapshot!(name.collect::<Vec<_>>().join("-"), page);
    }
}

#[test]
fn every_command_stands_once_below_a_heading() {
    let answer = ozctl(&["--help"]).output().unwrap();
    let page = text(&answer.stdout);
    let (commands, _) = page.split_once("\nOptions:\n").unwrap();
    let rows = commands.lines().filter(|row| {
        let name = row.strip_prefix("  ");
        name.is_some_and(|name| !name.starts_with(' '))
    });
    let listed: Vec<&str> = rows.flat_map(|row| row.split_whitespace().next()).collect();
    let command = ozctl::command();
    let verbs = command.get_subcommands();
    let (hidden, shown): (Vec<_>, Vec<_>) = verbs.partition(|verb| verb.is_hide_set());
    let names = |verbs: &[&clap::Command]| -> Vec<String> {
        let names = verbs.iter().map(|verb| verb.get_name().to_owned());
        names.collect()
    };
    assert_eq!(listed, names(&shown));
    assert_eq!(names(&hidden), ["policy"]);
    let headings: Vec<&str> = commands
        .lines()
        .filter_map(|row| row.strip_suffix(':'))
        .collect();
    assert_eq!(
        headings,
        [
            "Access",
            "Approvals",
            "Sessions",
            "Agents",
            "Audit",
            "Administration"
        ]
    );
}

#[test]
fn the_former_name_of_run_policy_does_the_same() {
    for verb in ["list", "check", "scaffold"] {
        let page = |words: &[&str]| {
            let answer = ozctl(words).args([verb, "--help"]).output().unwrap();
            assert!(answer.status.success(), "{words:?}");
            text(&answer.stdout)
        };
        let former = page(&["policy"]).replace("Usage: ozctl policy", "Usage: ozctl run policy");
        assert_eq!(former, page(&["run", "policy"]));
    }
}

#[test]
fn the_options_that_every_command_takes_are_listed() {
    let answer = ozctl(&["options"]).output().unwrap();
    insta::assert_snapshot!(text(&answer.stdout));
}

#[test]
fn words_that_make_no_sense_are_said_once_and_end_with_1() {
    for (words, said) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (
            &["create", "frobnicate"],
            "unrecognized subcommand 'frobnicate'",
        ),
        (&["create", "ExecAccessRequest"], "required arguments"),
        (&["get"], "required"),
        (&["get", "ear", "-o", "xml"], "invalid value 'xml'"),
        (
            &["create", "exec", "shell", "-N", "Al"],
            "invalid request name prefix: Al",
        ),
        (
            &["create", "exec", "shell", "--wait", "soon"],
            "invalid time supplied: soon",
        ),
    ] {
        let answer = ozctl(words).output().unwrap();
        assert_eq!(answer.status.code(), Some(1), "{words:?}");
        let stderr = text(&answer.stderr);
        assert_eq!(stderr.matches(said).count(), 1, "{words:?}: {stderr}");
        assert!(answer.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn half_a_command_line_prints_what_could_follow() {
    for (words, said) in [
        (&[][..], "ozctl exec deploy/web"),
        (&["help"], "ozctl exec deploy/web"),
        (&["create"], "PodAccessRequest"),
        (&["help", "create"], "PodAccessRequest"),
        (&["help", "create", "ExecAccessRequest"], "--target-pod"),
        (&["completion"], "bash"),
        (&["audit"], "verify"),
    ] {
        let answer = ozctl(words).output().unwrap();
        assert!(answer.status.success(), "{words:?}");
        assert!(text(&answer.stdout).contains(said), "{words:?}");
        assert!(answer.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn without_a_cluster_it_is_said_what_to_do() {
    let answer = ozctl(&["get", "ear"]).output().unwrap();
    assert_eq!(answer.status.code(), Some(1));
    let stderr = text(&answer.stderr);
    assert!(stderr.contains("--kubeconfig"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_kubeconfig_that_cannot_be_read_is_one_line_and_what_to_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "clusters: {").unwrap();
    let path = file.path().to_str().unwrap();
    let answer = ozctl(&["get", "ear", "--kubeconfig", path])
        .output()
        .unwrap();
    assert_eq!(answer.status.code(), Some(1));
    let stderr = text(&answer.stderr);
    assert!(
        stderr.starts_with("Error: failed to read the kubeconfig"),
        "{stderr}"
    );
    assert!(stderr.contains("Next: "), "{stderr}");
}

#[test]
fn completion_is_there_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let answer = ozctl(&["completion", shell, "--no-descriptions"])
            .output()
            .unwrap();
        assert!(answer.status.success(), "{shell}");
        assert!(text(&answer.stdout).contains("ozctl"), "{shell}");
    }
}

#[test]
fn a_half_typed_verb_is_completed() {
    let answer = ozctl(&["--", "ozctl", "creat"])
        .env("COMPLETE", "fish")
        .output()
        .unwrap();
    assert!(text(&answer.stdout).contains("create"), "{answer:?}");
}

#[test]
fn as_a_plugin_it_goes_by_kubectls_name() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-oz");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ozctl"), &plugin).unwrap();
    let answer = std::process::Command::new(plugin)
        .args(["get", "--help"])
        .output()
        .unwrap();
    let page = text(&answer.stdout);
    assert!(page.contains("Usage: kubectl oz get"), "{page}");
}
