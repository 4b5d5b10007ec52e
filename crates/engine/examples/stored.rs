//! Throws objects at what reads them, as others may store them: nested, wide, many, of odd letters and
//! of wrong types, for every kind that is watched, through splitting, decoding, deciding and planning.
//! Nothing may panic, the honest object beside them always comes out, and none takes long or much.
//!
//! `make fuzz` runs it for a minute: `cargo run --example stored -- [SECONDS [SEED]]`.
//! With `--release` the limit of time is the one that is promised.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::Role;
use kube::core::{ApiResource, DynamicObject};
use oz_core::access::exec::{self, ExecAccess};
use oz_core::access::pod::{self, PodAccess};
use oz_core::access::seal::Keys;
use oz_core::access::template::{ExecTemplate, PodTemplate};
use oz_core::api::{TransientClusterRoleBinding, TransientRoleBinding};
use oz_core::build::NameServer;
use oz_core::connect::pod::PodIdentity;
use oz_core::controller::{Controller, Live, Outcome};
use oz_core::mutate::RenderCache;
use oz_core::transient::{BindableRoles, Policy, Transient};
use oz_engine::raw::{Form, Piece, RawObject, Splitter, Strip, decode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long one object may take, and what a build that is not optimised may take longer.
const LIMIT: Duration = Duration::from_millis(50);
const UNOPTIMISED: u32 = 40;
/// How much memory one object may take, in units of 1024 bytes.
const MEMORY: u64 = 16 * 1024;

/// A xorshift: the same seed throws the same objects.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Small mostly, large at times.
    fn size(&mut self, largest: usize) -> usize {
        let limit = match self.below(40) {
            0 => largest,
            1..=5 => largest / 50,
            _ => 8,
        };
        self.below(limit.max(2))
    }

    fn text(&mut self) -> String {
        const ODD: [&str; 12] = [
            "a",
            "<",
            "\u{0}",
            "\u{FFFD}",
            "\u{1F980}",
            "\u{202E}",
            "\"",
            "\\",
            "{",
            "]",
            "é",
            ",",
        ];
        let piece = self.one(&ODD).copied().unwrap_or("a");
        piece.repeat(self.size(1_000_000))
    }

    fn value(&mut self) -> Value {
        match self.below(9) {
            0 => Value::Null,
            1 => json!(self.next()),
            2 => json!(-1.5e300),
            3 => json!([]),
            4 => {
                let count = self.size(50_000);
                (0..count).map(|_| json!({})).collect()
            }
            5 => {
                let count = self.size(20_000);
                let keys = (0..count).map(|number| (format!("key-{number}"), json!("")));
                Value::Object(keys.collect())
            }
            // Grows where it is written: a value that nests so deeply cannot be dropped either.
            6 => json!(format!("@{}@", self.size(200_000))),
            _ => json!(self.text()),
        }
    }

    /// Changes something somewhere.
    fn change(&mut self, value: &mut Value) {
        let stays = self.below(4) == 0;
        match value {
            Value::Object(fields) if !stays && !fields.is_empty() => {
                let place = self.below(fields.len());
                if let Some((_, inner)) = fields.iter_mut().nth(place) {
                    return self.change(inner);
                }
            }
            Value::Array(items) if !stays && !items.is_empty() => {
                let place = self.below(items.len());
                if let Some(inner) = items.get_mut(place) {
                    return self.change(inner);
                }
            }
            Value::Object(fields) if self.below(2) == 0 => {
                fields.insert(self.text(), self.value());
                return;
            }
            _ => {}
        }
        *value = self.value();
    }
}

/// The text of a value, in which what is to nest does.
fn written(value: &Value) -> Result<String> {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("\"@") {
        out.push_str(before);
        let Some((levels, after)) = after.split_once("@\"") else {
            out.push_str("\"@");
            rest = after;
            continue;
        };
        match levels.parse::<usize>() {
            Ok(levels) => write!(out, "{}1{}", "{\"a\":[".repeat(levels), "]}".repeat(levels))?,
            Err(_) => write!(out, "\"@{levels}@\"")?,
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn honest(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": if kind.contains("Access") || kind.contains("Transient") {
            "crds.wizardofoz.co/v1alpha1"
        } else {
            "v1"
        },
        "kind": kind,
        "metadata": {
            "name": "mine", "namespace": "shop", "uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
            "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-01T12:00:00Z",
            "labels": { "oz.wizardofoz.co/owner-uid": "7c9e6679-7425-40de-944b-e07fc1f90ae7" },
            "annotations": { "crds.wizardofoz.co/requested-by": "alice" },
            "ownerReferences": [], "finalizers": ["a/b"],
            "managedFields": [{ "manager": "m", "fieldsV1": { "f:a": {} } }],
        },
        "spec": spec,
    })
}

/// One kind: what an honest object of it has, and what is done with one.
struct Kind {
    name: &'static str,
    spec: Value,
    judge: Box<dyn Fn(&RawObject) -> bool>,
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(490_000)
}

/// Decides about an object as the engine does, with itself among its children.
fn decided<C: Controller>(controller: &C, object: &RawObject, facts: &C::Facts) -> bool
where
    C::Object: DeserializeOwned,
{
    let live: Vec<Live> = decode::<DynamicObject>(object)
        .ok()
        .map(|object| Live {
            resource: ApiResource::erase::<Role>(&()),
            object,
        })
        .into_iter()
        .collect();
    let plan = controller.orphaned(now(), None, &live);
    let Ok(object) = decode::<C::Object>(object) else {
        return false;
    };
    controller.is_decided(&object, &live);
    let Some(decision) = controller.decide(now(), &object, facts, &live).decided() else {
        // More would be read, of other objects.
        return true;
    };
    let known = plan.steps().count() + decision.plan.steps().count();
    let outcome = Outcome::default();
    let status = controller.status(now(), &object, &decision, &outcome);
    let before = controller.current_status(&object);
    controller.transitions(&object, before.as_ref(), &status);
    known < usize::MAX
}

fn plain<K: DeserializeOwned>(name: &'static str, spec: Value) -> Kind {
    Kind {
        name,
        spec,
        judge: Box::new(|object| decode::<K>(object).is_ok()),
    }
}

fn controlled<C: Controller>(
    name: &'static str,
    spec: Value,
    controller: C,
    facts: C::Facts,
) -> Kind {
    Kind {
        name,
        spec,
        judge: Box::new(move |object| decided(&controller, object, &facts)),
    }
}

fn kinds() -> Result<Vec<Kind>> {
    let keys = Keys::new(vec![vec![7; Keys::MIN_BYTES]]).context("no keys")?;
    let hour = SignedDuration::from_hours(1);
    let request = json!({ "templateName": "shell", "duration": "1h", "reason": "why" });
    let template = json!({
        "accessConfig": {
            "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "2h",
            "accessCommand": "kubectl exec {{ .Metadata.Name }}",
        },
        "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
    });
    let mut pod_template = template.clone();
    pod_template["controllerTargetMutationConfig"] = json!({ "patchSpecOperations": [
        { "op": "add", "path": "/spec/containers/0/env", "value": [{ "name": "a" }] },
    ] });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "view" });
    let binding = json!({ "roleRef": role, "subjects": [], "duration": "1h" });
    let policy = std::sync::Arc::new(Policy {
        roles: BindableRoles::default(),
        longest: hour,
        longest_in: std::collections::BTreeMap::default(),
        own_namespace: "oz-system".to_owned(),
    });
    let exec = ExecAccess {
        keys: keys.clone(),
        keep_finished: hour,
    };
    let pod = PodAccess {
        keys: keys.clone(),
        keep_finished: hour,
        ready_timeout: hour,
        rendered: RenderCache::default(),
        name_servers: vec![NameServer::usual()],
        as_author: false,
    };
    let bindings = Transient::<TransientRoleBinding>::new(keys.clone(), policy.clone());
    let cluster_bindings = Transient::<TransientClusterRoleBinding>::new(keys, policy);
    let interval = hour;
    // Children and Roles are kept as they come.
    Ok(vec![
        plain::<PodIdentity>("Pod", json!({ "containers": [{ "name": "a", "env": [] }] })),
        plain::<DynamicObject>("Role", json!({})),
        plain::<DynamicObject>("RoleBinding", json!({})),
        plain::<DynamicObject>("NetworkPolicy", json!({ "podSelector": {} })),
        controlled(
            "ExecAccessRequest",
            request.clone(),
            exec,
            exec::Facts::alone(None),
        ),
        controlled("PodAccessRequest", request, pod, pod::Facts::alone(None)),
        controlled(
            "ExecAccessTemplate",
            template,
            ExecTemplate { interval },
            Some(Ok(Vec::new())),
        ),
        controlled(
            "PodAccessTemplate",
            pod_template,
            PodTemplate { interval },
            Some(Ok(None)),
        ),
        controlled(
            "TransientRoleBinding",
            binding.clone(),
            bindings,
            Default::default(),
        ),
        controlled(
            "TransientClusterRoleBinding",
            binding,
            cluster_bindings,
            Default::default(),
        ),
    ])
}

/// What the process holds and held at most since the last call, in units of 1024 bytes.
fn memory() -> Result<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let peak = line("VmHWM:").context("no VmHWM")?;
    // Begins to count anew.
    std::fs::write("/proc/self/clear_refs", "5")?;
    Ok((line("VmRSS:").context("no VmRSS")?, peak))
}

/// How long this thread has worked: what others do at the same time does not count.
fn worked() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().context("no time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Reads a page with the object and an honest one. Says how long that took.
fn read(kind: &Kind, text: &str, dice: &mut Dice) -> Result<Duration> {
    let page = format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"7"}},"items":[{text},{}]}}"#,
        honest(kind.name, &kind.spec)
    );
    let size = 1 + dice.below(16 * 1024);
    let large = text.len() > 256 * 1024;
    let held = if large { memory()?.0 } else { 0 };
    let began = worked()?;
    let (mut strip, mut splitter) = (Strip::default(), Splitter::new(Form::List));
    let (mut pieces, mut objects, mut known) = (Vec::new(), 0, false);
    for part in page.as_bytes().chunks(size) {
        splitter.push(&strip.push(part), &mut pieces);
        for piece in pieces.drain(..) {
            if let Piece::Object(object) = piece {
                objects += 1;
                known = (kind.judge)(&object);
            }
        }
    }
    let took = worked()?.saturating_sub(began);
    ensure!(
        objects == 2 && known,
        "the honest object beside it was not read"
    );
    if large {
        let more = memory()?.1.saturating_sub(held);
        ensure!(
            more < MEMORY,
            "{more} KiB for an object of {} bytes",
            text.len()
        );
    }
    let limit = if cfg!(debug_assertions) {
        LIMIT * UNOPTIMISED
    } else {
        LIMIT
    };
    ensure!(
        took < limit,
        "{took:?} for an object of {} bytes",
        text.len()
    );
    Ok(took)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let seed: u64 = match arguments.next() {
        Some(seed) => seed.parse()?,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs(),
    };
    let kinds = kinds()?;
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut thrown, mut slowest, mut largest) = (0_u64, Duration::ZERO, 0);
    while Instant::now() < end {
        let kind = dice.one(&kinds).context("no kinds")?;
        let mut object = honest(kind.name, &kind.spec);
        for _ in 0..=dice.below(4) {
            dice.change(&mut object);
        }
        if !object.is_object() {
            continue;
        }
        let text = written(&object)?;
        // No API server stores more.
        if text.len() > 9_000_000 {
            continue;
        }
        let took = read(kind, &text, &mut dice);
        let took = took.with_context(|| {
            let start = text
                .get(..text.floor_char_boundary(2_000))
                .unwrap_or_default();
            format!("seed {seed}, object {thrown}, {}: {start}", kind.name)
        })?;
        thrown += 1;
        largest = largest.max(text.len());
        slowest = slowest.max(took);
    }
    let told = format!(
        "{thrown} objects of {} kinds, seed {seed}: the largest {largest} bytes, the slowest {slowest:?}\n",
        kinds.len()
    );
    std::io::stdout().write_all(told.as_bytes())?;
    Ok(())
}
