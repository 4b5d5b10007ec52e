//! Processes of a test: their output is found, they end on request, and their clock can be shifted.

use std::process::Command;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use oz_testkit::{CONDITION_TIMEOUT, Process, eventually, libfaketime, shift_clock};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn a_line_is_waited_for_and_a_process_that_ends_without_it_fails_the_wait() -> Result<()> {
    let logs = tempfile::tempdir()?;
    let mut process = Process::spawn("talk", logs.path(), shell("echo one; echo two >&2; exit 7"))?;

    let line = process
        .wait_for_line("a two", CONDITION_TIMEOUT, |line| line.starts_with("tw"))
        .await?;
    let missing = process
        .wait_for_line("a three", CONDITION_TIMEOUT, |line| line == "three")
        .await;

    assert_eq!(line, "two");
    assert_eq!(process.lines()?, ["one"]);
    let error = missing.map_or_else(|error| format!("{error:#}"), |line| format!("found {line}"));
    ensure!(
        error.contains("exit status: 7") && error.contains("one\ntwo"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_process_may_clean_up_when_terminated_and_may_not_when_killed() -> Result<()> {
    let logs = tempfile::tempdir()?;
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let ready = |line: &str| line == "ready";
    let mut polite = Process::spawn("polite", logs.path(), shell(script))?;
    let mut sudden = Process::spawn("sudden", logs.path(), shell(script))?;
    polite
        .wait_for_line("its start", CONDITION_TIMEOUT, ready)
        .await?;
    sudden
        .wait_for_line("its start", CONDITION_TIMEOUT, ready)
        .await?;

    let status = polite.terminate(CONDITION_TIMEOUT).await?;
    sudden.kill9();

    assert!(status.success());
    assert_eq!(polite.lines()?, ["ready", "bye"]);
    assert_eq!(sudden.lines()?, ["ready"]);
    assert!(sudden.exited()?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_dropped_process_takes_its_group_along() -> Result<()> {
    let logs = tempfile::tempdir()?;
    let mut process = Process::spawn("parent", logs.path(), shell("sleep 1000 & echo $!; wait"))?;
    let child = process
        .wait_for_line("the child's number", CONDITION_TIMEOUT, |_| true)
        .await?;

    drop(process);

    eventually("the child to end", CONDITION_TIMEOUT, async || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        ensure!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_clock_can_be_shifted() -> Result<()> {
    if libfaketime().is_none() {
        return Ok(()); // an optional package: the tests that need a skewed clock say so themselves
    }
    let logs = tempfile::tempdir()?;
    let mut command = Command::new("date");
    command.arg("+%s");
    shift_clock(&mut command, "+1h")?;

    let mut process = Process::spawn("date", logs.path(), command)?;
    let line = process
        .wait_for_line("the time", CONDITION_TIMEOUT, |_| true)
        .await?;

    let ahead = line.parse::<i64>()? - Timestamp::now().as_second();
    ensure!((3590..=3610).contains(&ahead), "{ahead} s ahead");
    Ok(())
}
