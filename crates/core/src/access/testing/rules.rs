//! The rules of all kinds of access between a request and its grant, each with a change that breaks it alone, in the
//! order in which they apply. The tests of a kind add the rules of the kind.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::core::ApiResource;
use oz_api::{Phase, RequestStatus, Sessions};
use serde_json::json;

pub(crate) use super::asked::Asked;
use super::judgements::{self, TIMEOUT, refused, ticket};
use super::order::{self, Rule, rules};
use super::{InMemory, timestamp};
use crate::access::objects;
use crate::access::policy::Longest;
use crate::controller::{Failure, Live};
use crate::kinds::AccessRequest as _;
use crate::lifecycle::seal::Keys;
use crate::tickets::Answer;

/// Returns the rules that precede those of a kind.
pub(crate) fn before_offer<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    [identification(), permission(), conditions()].concat()
}

/// Returns the rules that identify the requester and the template.
fn identification<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "ended" => |it| {
            it.then(|world| {
                let status = RequestStatus { phase: Phase::Denied, ..RequestStatus::default() };
                K::set_status(&mut world.request, status);
            });
        };
        "deleted" => |it| {
            it.then(|world| {
                world.request.meta_mut().deletion_timestamp = Some(Time(timestamp(99)));
            });
        };
        "stamp missing, predecessor unread" => |it| {
            it.then(|world| world.request.meta_mut().annotations = None);
            it.with(|facts| facts.predecessor = None);
        };
        "stamp missing" => |it| it.then(|world| world.request.meta_mut().annotations = None);
        "stamp unverified" => |it| it.then(|world| *world.controller.keys_mut() = Keys::default());
        "stamp forged" => |it| it.then(|world| judgements::forge(world.request.meta_mut()));
        // It replaces the stamp before any other change of it.
        "stamp of another request" => |it| it.later.insert(0, |world| {
            let name = world.request.meta_mut().name.replace("other".into());
            world.stamp("alice", &["devs"]);
            world.request.meta_mut().name = name;
        });
        "locked" => |it| it.world.locks.all = vec![order::lock(&json!({"namespace": "shop"}))];
        "lock unreadable" => |it| it.world.locks.unreadable = 1;
        "request duration invalid" => |it| it.ask(|terms| terms.duration = Some("soon"));
        "request invalid" => |it| it.ask(|terms| terms.template = "No_Name");
        "template missing" => |it| it.then(|world| world.template = None);
        "template deleted" => |it| {
            it.then(|world| {
                let templates = world.template.iter_mut().map(Resource::meta_mut);
                templates.for_each(|one| one.deletion_timestamp = Some(Time(timestamp(99))));
            });
        };
    }
}

/// Returns the rules of templates and access policies.
fn permission<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "service account" => |it| it.config().allow_service_accounts = false;
        "not a member" => |it| it.groups = &[];
        "emergency disabled" => |it| { it.emergency(); it.config().emergency = None; };
        "emergency not permitted" => |it| {
            it.emergency().into_iter().for_each(|config| config.users = vec!["carol".into()]);
        };
        "reason missing" => |it| {
            it.ask(|terms| terms.reason = None);
            it.config().require_reason = true;
        };
        "ticket missing" => |it| it.ask(|terms| terms.ticket = None);
        "ticket mismatch" => |it| {
            it.config().ticket.as_mut().unwrap().pattern = Some("CHG-[0-9]+".into());
        };
        "container not allowed" => |it| it.config().containers = vec!["other".into()];
        "extends not owned" => |it| it.ask(|terms| terms.extends = Some("first"));
        "policy denies" => |it| it.judgement().refused = Some(refused());
        "policy requires reason" => |it| {
            it.ask(|terms| terms.reason = None);
            it.judgement().require_reason = Some("prod".into());
        };
        "policy requires other ticket" => |it| {
            it.judgement().tickets.push(ticket(Some("CHG-[0-9]+"), None));
        };
        "template changed" => |it| {
            it.then(|world| {
                let templates = world.template.iter_mut().map(Resource::meta_mut);
                templates.for_each(|one| one.labels = Some(BTreeMap::new()));
            });
        };
        "gate missing" => |it| it.config().sessions = Sessions::Gate;
        "template duration invalid" => |it| it.config().max_duration = "1d".into();
        "template invalid" => |it| it.config().command_policy = Some(String::new());
    }
}

/// Returns the rules about other users, the time and other objects.
fn conditions<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "ticket check unknown" => |it| it.check("unknown", None);
        "ticket check refuses" => |it| {
            it.check("refused", Some((90, Answer::Refused("it is closed".into()))));
        };
        "ticket check unavailable" => |it| {
            it.check("away", Some((90, Answer::Away("no response".into()))));
        };
        "ticket check pending" => |it| it.check("pending", None);
        "approvers unknown" => |it| it.approver("carol", None, "forever");
        "approval denied" => |it| it.approver("erin", Some(false), TIMEOUT);
        "approval timed out" => |it| it.approver("dave", None, "1m");
        "approval missing" => |it| it.approver("frank", None, TIMEOUT);
        "policy leaves no time" => |it| {
            let (policy, duration) = ("prod".into(), "0s".into());
            it.judgement().longest = Some(Longest { policy, duration });
        };
        "window over" => |it| it.now = timestamp(3600);
        "same stamp unread" => |it| it.with(|facts| facts.same_stamp = None);
        "stamp replayed" => |it| it.world.same_stamp = Some("first".into());
        "ticket check outdated" => |it| it.check("stale", Some((10, Answer::Accepted)));
        "reviews unread" => |it| { it.emergency(); it.with(|facts| facts.unreviewed = None); };
        "reviews unreadable" => |it| {
            it.emergency();
            let failure = Failure::transient("Unreachable", "no response about reviews");
            it.world.unreviewed = Some(Err(failure));
        };
        "reviews pending" => |it| {
            it.emergency();
            let uids = it.world.unreviewed.iter_mut().flatten();
            uids.for_each(|uids| *uids = vec!["uid-7".into(), "uid-8".into()]);
        };
        "workload unread" => |it| it.with(|facts| facts.workload = None);
        "workload unreadable" => |it| {
            it.world.workload = Err(Failure::transient("TargetNotFound", "no such workload"));
        };
    }
}

/// Returns the rule that follows those of a kind.
pub(crate) fn after_offer<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "role bound by others" => |it| {
            let role = it.world.request.stored().unwrap().role_name();
            let object = json!({
                "metadata": {"name": "theirs", "namespace": "shop", "uid": "theirs"},
                "roleRef": objects::role_ref(&role),
            });
            it.world.live.push(Live {
                resource: ApiResource::erase::<RoleBinding>(&()),
                object: serde_json::from_value(object).unwrap(),
            });
        };
    }
}

/// Returns the rules about the last read of the approvals.
pub(crate) fn confirmation<K: InMemory>() -> Vec<Rule<Asked<K>>> {
    rules! {
        Asked<K>:
        "approvals unread" => |it| {
            it.approver("grace", Some(true), TIMEOUT);
            it.with(|facts| facts.confirmed = None);
        };
        "approvals unreadable" => |it| {
            it.approver("heidi", Some(true), TIMEOUT);
            it.with(|facts| {
                let failed = Failure::transient("Unreachable", "no response about approvals");
                facts.confirmed = facts.confirmed.take().map(|_| Err(failed));
            });
        };
    }
}
