//! Harness runs at admission: who submits them.

mod stamp;

use kube::Resource as _;
use oz_admission::{Hook, NamespaceScope, Operation, SideEffects};
use oz_core::api::harness::HarnessRun;

use self::stamp::RunStamper;
use crate::hooks::Grounds;

/// The hooks of harness runs, if they are served.
pub(crate) fn hooks(grounds: &Grounds) -> Vec<Hook> {
    match grounds.harness {
        true => vec![stamp(grounds)],
        false => Vec::new(),
    }
}

/// Nobody is left out: what is not stamped is never run.
fn stamp(grounds: &Grounds) -> Hook {
    Hook::mutating("stamp-harnessrun", RunStamper::new(grounds.keys.clone()))
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path("mutate"))
        .webhook_name("mharnessrun.kb.io")
}

fn path(verb: &str) -> String {
    let group = HarnessRun::group(&()).replace('.', "-");
    let kind = HarnessRun::kind(&()).to_lowercase();
    format!("/{verb}-{group}-{}-{kind}", HarnessRun::version(&()))
}
