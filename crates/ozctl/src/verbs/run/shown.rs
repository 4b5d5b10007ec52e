//! The states of a run, for the verbs that print parts of its status.

use crate::cluster::Cluster;
use crate::exit::Exit;
use crate::failure::Result;
use crate::interrupts::Interrupts;
use crate::run::follow;
use oz_api::harness::HarnessRun;

/// Passes the state of a run to `each`; with `follows`, each later state as well, until `each` returns true or the user
/// interrupts.
pub(super) async fn for_each_state(
    cluster: &Cluster,
    run: HarnessRun,
    follows: bool,
    mut each: impl FnMut(&HarnessRun) -> Result<bool>,
) -> Result<Exit> {
    if !follows {
        each(&run)?;
        return Ok(Exit::SUCCESS);
    }
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        followed = follow(cluster, run, each) => followed.map(|_| Exit::SUCCESS),
        exit = interrupts.next() => Ok(exit),
    }
}
