//! An operator that was down at the end of a grant, and starts long after.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use oz_api::{Phase, conditions};
use oz_e2e::{Operator, Options, Scene, System, records_in};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Record};

use crate::alone;
use crate::sessions::{gone, granted, said, session};

/// Long after the end, an operator that was down at that time first ends the remaining processes of the grant, and
/// reports its action.
#[tokio::test]
async fn returning_operator_ends_remaining_processes_long_after_expiry() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let options = Options::default().cutting();
    let mut system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "late").await?;
    let asked = granted(&scene, "mine", "12s").await?;
    let (pod, until) = (asked.pod(), asked.status().expires_at.context("no end")?);
    // The shell continues without the command that started it, and reads its input.
    let words = "exec 3<&0; (trap '' HUP TERM; exec sh <&3) & exit 0";
    let mut session = session(&scene, &["-i", &pod, "--", "sh", "-c", words])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut keyboard = session.stdin.take().context("no standard input")?;
    keyboard.write_all(b"echo here\n")?;
    said(&mut session)?;
    system.operator.process.kill9();

    // An operator that ran at the end would have made its last attempt before this time.
    let late = until + SignedDuration::from_secs(62);
    eventually(
        "a minute after the end",
        CONDITION_TIMEOUT * 2,
        async || Ok((Timestamp::now() > late).then_some(())),
    )
    .await?;
    keyboard.write_all(b"echo still here\n")?;
    said(&mut session).context("it ended by itself, and nothing is to be seen here")?;

    system.operator = Operator::start(cluster, &options).await?;
    gone(&mut session).await?;
    let alice = scene.requests("alice").await?;
    let status = alice.phase("mine", Phase::Expired).await?;
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION)
        .context("not said")?;
    assert_eq!(cut.status, "True", "{cut:?}");
    assert!(cut.message.contains("processes were ended"), "{cut:?}");
    let records = eventually("the end to be on record", CONDITION_TIMEOUT, async || {
        let records = records_in(&system.operator.process)?;
        let cut = |record: &Record| record.action == Action::SessionTerminated;
        Ok(records.iter().any(cut).then_some(records))
    })
    .await?;
    let about = |record: &&Record| record.request.name == "mine";
    let cut = records
        .iter()
        .filter(about)
        .find(|one| one.action == Action::SessionTerminated);
    let cut = cut.context("it is another grant's")?;
    assert!(cut.details["ended"].parse::<u32>()? > 0, "{cut:?}");
    assert_eq!(cut.details["left"], "0", "{cut:?}");
    Ok(())
}
