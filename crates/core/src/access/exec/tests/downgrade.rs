//! What this release writes, 0.1 understands, but for seals: a downgrade ends every grant, finishes an end that was begun, and
//! grants nothing anew. 0.1 knows no `status.ending`: it goes by the conditions, reasons first.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding, RoleRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value};

use super::reworded::{EVENTS, TROUBLES};
use super::upgrade::GRANTED_BY_0_1;
use super::world::*;
use crate::api::{EndReason, OnTemplateChange, RequestStatus};
use crate::labels;

/// What 0.1 reads of the conditions of a request, by its own functions (`access/status.rs` and
/// `access/sessions.rs`) as they stood. It is never corrected.
#[derive(Debug, PartialEq)]
struct Read {
    /// `End::begun`: the reason of an end, and what is told of it.
    begun: Option<(String, String)>,
    /// `is_ending`: the end is on record.
    is_ending: bool,
    /// `sessions_may_last`.
    sessions_may_last: bool,
    /// What `given_up` asks: whether processes were ended.
    were_ended: bool,
}

impl Read {
    fn of(conditions: &[Condition]) -> Self {
        let find = |type_: &str| conditions.iter().find(|one| one.type_ == type_);
        let begun = || {
            let valid = find("AccessStillValid").filter(|valid| valid.status == "False")?;
            let text = valid.message.as_str();
            let what = text.strip_prefix("Access revoked: ").unwrap_or(text);
            let what = match valid.reason.as_str() {
                "Timeout" | "Deleted" | "TemplateChanged" => "",
                "DriftDetected" | "PodNotReady" | "PodReplaced" => what,
                _ => return None,
            };
            Some((valid.reason.clone(), what.to_owned()))
        };
        let ready = find("AccessResourcesReady");
        let cut = find("SessionsCut");
        Self {
            begun: begun(),
            is_ending: ready.is_some_and(|ready| ready.reason == "Ending"),
            sessions_may_last: ready.is_some_and(|ready| {
                let message = &ready.message;
                message.starts_with("Access has ended; its sessions may go on")
            }),
            were_ended: cut.is_some_and(|cut| cut.message.contains("processes were ended")),
        }
    }

    /// What it has to read of a status that this release wrote.
    fn expected(status: &RequestStatus) -> Self {
        let ending = status.ending.as_ref();
        let begun = ending.map(|ending| {
            let reason = match ending.reason {
                EndReason::Expired => "Timeout".to_owned(),
                reason => reason.to_string(),
            };
            (reason, ending.detail.clone().unwrap_or_default())
        });
        Self {
            begun,
            is_ending: ending.is_some_and(|ending| ending.recorded),
            sessions_may_last: ending.is_some_and(|ending| ending.sessions_may_go_on),
            were_ended: ending.is_some_and(|ending| ending.sessions_ended),
        }
    }
}

#[test]
fn an_end_half_done_is_read_by_0_1_as_it_is_and_what_is_over_as_over() {
    let mut half_done = 0;
    for (what, event) in EVENTS {
        for (which, trouble) in TROUBLES {
            let mut world = World::new();
            world.config().on_template_change = OnTemplateChange::Revoke;
            world.settle(at(1));
            event(&mut world);
            trouble(&mut world);
            for seconds in [10, 11, 300, 301, 361, 362] {
                world.pass(at(seconds));
                let status = world.status();
                if status.phase.is_terminal() {
                    // 0.1 grants nothing for it, whatever else it reads.
                    continue;
                }
                half_done += usize::from(status.ending.is_some());
                assert_eq!(
                    Read::of(&status.conditions),
                    Read::expected(&status),
                    "{what}, {which}, at {seconds}: {status:#?}"
                );
            }
        }
    }
    assert!(half_done > 0);
}

/// The sealed decision of a Role, which is taken from it.
fn sealed(role: &mut Role) -> Map<String, Value> {
    let annotations = role.metadata.annotations.as_mut().unwrap();
    let text = annotations.remove(labels::GRANT).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// But for the name of the Role, which 0.1 does not find: it ends the grant.
#[test]
fn a_grant_is_written_as_0_1_writes_it() {
    let mut world = World::new();
    world.settle(at(1));
    let granted: Value = serde_json::from_str(GRANTED_BY_0_1).unwrap();
    let live = |kind: &str| {
        let live = world.live.iter().find(|live| live.resource.kind == kind);
        serde_json::to_value(&live.unwrap().object).unwrap()
    };
    let mut role: Role = serde_json::from_value(live("Role")).unwrap();
    let binding: RoleBinding = serde_json::from_value(live("RoleBinding")).unwrap();
    let mut before: Role = serde_json::from_value(granted["role"].clone()).unwrap();
    // 0.1 passes over what it does not know of it, and does not open the seal.
    let (now, then) = (sealed(&mut role), sealed(&mut before));
    for (field, value) in then.iter().filter(|(field, _)| *field != "mac") {
        assert_eq!(now.get(field), Some(value), "{field}");
    }
    let name = role.metadata.name.clone().unwrap();
    assert_eq!(name, "oz-grant-debug-0a1b2c3d");
    role.metadata.name.clone_from(&before.metadata.name);
    let labels = role.metadata.labels.as_mut().unwrap();
    assert_eq!(labels.remove(labels::GRANT_ROLE).as_deref(), Some("true"));
    assert_eq!(role, before);
    let before: RoleBinding = serde_json::from_value(granted["roleBinding"].clone()).unwrap();
    let role_ref = RoleRef {
        name,
        ..before.role_ref
    };
    assert_eq!(binding.role_ref, role_ref);
    assert_eq!(binding.subjects, before.subjects);
}
