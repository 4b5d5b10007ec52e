//! The maximum size of an access pod. It limits the resources that the pod can use at most at any one time,
//! as Kubernetes itself calculates: all containers and sidecars together, or an init container together with
//! the sidecars started before it, and the overhead of the runtime. A container without a limit could use all
//! resources, so it is given one.
//! See <https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>.

use serde_json::{Value, json};

use super::json::{is_sidecar, items, items_mut};
use crate::validate::Amount;

const NANO: i128 = 1_000_000_000;

/// The maximum resources of a pod, all its containers together; `None` is no limit. Only templates of dedicated pods
/// have them: the agent of a run has the resources that its template or the run states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// CPU, in cores.
    pub cpu: Option<Amount>,
    /// Memory, in bytes.
    pub memory: Option<Amount>,
    /// Ephemeral storage, in bytes.
    pub storage: Option<Amount>,
}

/// The reason why a pod cannot stay below a ceiling; amounts are as Kubernetes writes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CeilingError {
    /// The pod, or a part of it, can take too much.
    #[error("{what} can take {amount} {resource}, {field} is {ceiling}")]
    Exceeded {
        /// The pod, or the part of it.
        what: String,
        /// The amount.
        amount: String,
        /// The kind of resource.
        resource: &'static str,
        /// The template's field.
        field: &'static str,
        /// The ceiling.
        ceiling: String,
    },
    /// A container without a limit gets nothing.
    #[error("nothing of {field} {ceiling} is left for container {container}")]
    NothingLeft {
        /// The template's field.
        field: &'static str,
        /// The ceiling.
        ceiling: String,
        /// The container.
        container: String,
    },
}

/// A kind of resource.
struct Resource {
    name: &'static str,
    /// The template's field.
    field: &'static str,
    ceiling: i128,
    /// The smallest step of a limit, in billionths.
    step: i128,
}

/// Gives every container a limit, so that the pod stays below the ceilings.
///
/// # Errors
/// The numbers, if the pod cannot stay below them.
pub fn enforce(spec: &mut Value, ceilings: &Ceilings) -> Result<(), Vec<CeilingError>> {
    let of = |name, field, ceiling: Option<Amount>, step| {
        ceiling.map(|ceiling| Resource {
            name,
            field,
            ceiling: ceiling.as_nanos(),
            step,
        })
    };
    let resources = [
        of("cpu", "maxCpu", ceilings.cpu, NANO / 1000),
        of("memory", "maxMemory", ceilings.memory, NANO),
        of("ephemeral-storage", "maxStorage", ceilings.storage, NANO),
    ];
    let violations: Vec<CeilingError> = resources
        .iter()
        .flatten()
        .filter_map(|resource| resource.enforce(spec).err())
        .collect();
    match violations.is_empty() {
        true => Ok(()),
        false => Err(violations),
    }
}

impl Resource {
    fn enforce(&self, spec: &mut Value) -> Result<(), CeilingError> {
        let overhead = amount(&spec["overhead"][self.name]);
        let room = self.ceiling - overhead;
        // A limit on the pod as a whole applies to all containers together.
        let whole = amount(&spec["resources"]["limits"][self.name]);
        if whole > 0 {
            return if whole <= room {
                Ok(())
            } else {
                Err(self.exceeded("the pod", whole + overhead))
            };
        }
        self.together(spec, room, overhead)?;
        self.one_after_the_other(spec, room)
    }

    /// Limits containers and sidecars, which run at the same time. Those without a limit share the remainder,
    /// each at least its requests.
    fn together(&self, spec: &mut Value, room: i128, overhead: i128) -> Result<(), CeilingError> {
        let sidecars = items(&spec["initContainers"]).filter(|one| is_sidecar(one));
        let running: Vec<&Value> = items(&spec["containers"]).chain(sidecars).collect();
        let needed: i128 = running.iter().map(|one| self.least(one)).sum();
        if needed > room {
            return Err(self.exceeded("all containers together", needed + overhead));
        }
        let unlimited = running.iter().filter(|one| self.limit(one) == 0).count();
        let share = (room - needed) / i128::try_from(unlimited).unwrap_or(1).max(1);
        for list in ["containers", "initContainers"] {
            let sidecars_only = list == "initContainers";
            for one in items_mut(spec, list) {
                if !sidecars_only || is_sidecar(one) {
                    self.give(one, share)?;
                }
            }
        }
        Ok(())
    }

    /// Limits init containers, each of which runs together with the sidecars before it.
    fn one_after_the_other(&self, spec: &mut Value, room: i128) -> Result<(), CeilingError> {
        let mut beside = 0;
        for one in items_mut(spec, "initContainers") {
            if is_sidecar(one) {
                beside += self.limit(one);
                continue;
            }
            let needed = self.least(one);
            let left = room - beside - needed;
            if left < 0 {
                let what = format!("init container {} together with the sidecars", name(one));
                return Err(self.exceeded(&what, self.ceiling - left));
            }
            self.give(one, left)?;
        }
        Ok(())
    }

    /// Returns the limit of a container in billionths; 0 if it has none, which is also the meaning of 0.
    fn limit(&self, container: &Value) -> i128 {
        amount(&container["resources"]["limits"][self.name])
    }

    /// Returns the minimum that a container uses: its limit, or else its request.
    fn least(&self, container: &Value) -> i128 {
        match self.limit(container) {
            0 => amount(&container["resources"]["requests"][self.name]),
            limit => limit,
        }
    }

    /// Limits a container without a limit to its request and `share`. It adds no request, for which Kubernetes then
    /// takes the limit: a LimitRange with a minimum, or with a ratio of limit to request, rejects a request of 0.
    /// See <https://kubernetes.io/docs/concepts/policy/limit-range/>.
    fn give(&self, container: &mut Value, share: i128) -> Result<(), CeilingError> {
        if self.limit(container) > 0 {
            return Ok(());
        }
        let given = (self.least(container) + share) / self.step * self.step;
        if given <= 0 {
            return Err(CeilingError::NothingLeft {
                field: self.field,
                ceiling: self.text(self.ceiling),
                container: name(container).to_owned(),
            });
        }
        let limit = json!(self.text(given));
        let resources = &mut container["resources"];
        let requests = resources.get_mut("requests");
        if let Some(request) = requests.and_then(|requests| requests.get_mut(self.name))
            && amount(request) > given
        {
            // A fraction of the step: Kubernetes rejects a request above the limit.
            *request = limit.clone();
        }
        resources["limits"][self.name] = limit;
        Ok(())
    }

    fn exceeded(&self, what: &str, amount: i128) -> CeilingError {
        CeilingError::Exceeded {
            what: what.to_owned(),
            amount: self.text(amount),
            resource: self.name,
            field: self.field,
            ceiling: self.text(self.ceiling),
        }
    }

    /// Formats an amount as Kubernetes writes it.
    fn text(&self, nanos: i128) -> String {
        if self.step < NANO {
            let milli = (nanos + self.step - 1) / self.step;
            return match milli % 1000 {
                0 => (milli / 1000).to_string(),
                _ => format!("{milli}m"),
            };
        }
        let bytes = (nanos + NANO - 1) / NANO;
        [("Gi", 30), ("Mi", 20), ("Ki", 10)]
            .iter()
            .find(|(_, shift)| bytes != 0 && bytes % (1 << shift) == 0)
            .map_or_else(
                || bytes.to_string(),
                |(suffix, shift)| format!("{}{suffix}", bytes >> shift),
            )
    }
}

fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// Reads an amount in billionths; the API server rejects a value that is not a quantity.
fn amount(value: &Value) -> i128 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return 0,
    };
    text.parse().map_or(0, Amount::as_nanos).max(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the resources of a container that is alone in its list, with this ceiling of CPU.
    fn limited(list: &str, container: &Value, ceiling: &str) -> Value {
        let mut spec = json!({"containers": [], list: [container]});
        let ceilings = Ceilings {
            cpu: ceiling.parse().ok(),
            ..Ceilings::default()
        };
        enforce(&mut spec, &ceilings).unwrap();
        spec[list][0]["resources"].take()
    }

    #[test]
    fn limited_container_keeps_its_requests_and_gets_no_other() {
        for (ceiling, resources, expected) in [
            ("1", json!(null), json!({"limits": {"cpu": "1"}})),
            ("1", json!({}), json!({"limits": {"cpu": "1"}})),
            (
                "1",
                json!({"limits": {"cpu": "0", "memory": "1Gi"}}),
                json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
            ),
            (
                "1",
                json!({"limits": {"cpu": "500m"}}),
                json!({"limits": {"cpu": "500m"}}),
            ),
            (
                "1",
                json!({"requests": {"memory": "64Mi"}}),
                json!({"requests": {"memory": "64Mi"}, "limits": {"cpu": "1"}}),
            ),
            (
                "1",
                json!({"requests": {"cpu": "100m"}}),
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}),
            ),
            (
                "1",
                json!({"requests": {"cpu": 1}}),
                json!({"requests": {"cpu": 1}, "limits": {"cpu": "1"}}),
            ),
            (
                "1500u",
                json!({"requests": {"cpu": "1500u"}}),
                json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}}),
            ),
        ] {
            for (list, restarts) in [
                ("containers", json!(null)),
                ("initContainers", json!(null)),
                ("initContainers", json!("Always")),
            ] {
                let container =
                    json!({"name": "app", "restartPolicy": restarts, "resources": resources});
                let result = limited(list, &container, ceiling);
                assert_eq!(result, expected, "{list} {container}");
            }
        }
    }

    #[test]
    fn limited_container_without_request_satisfies_minimum_and_ratio_of_limit_range() {
        let (minimum, ratio) = (NANO / 100, 2);
        for (ceiling, resources) in [
            ("10m", json!({})),
            ("1", json!({})),
            ("64", json!({"requests": {"memory": "64Mi"}})),
            ("1", json!({"limits": {"memory": "64Mi"}})),
        ] {
            let container = json!({"name": "app", "resources": resources});
            let resources = limited("containers", &container, ceiling);
            let limit = amount(&resources["limits"]["cpu"]);
            // The API server takes the limit as a missing request before it compares with the LimitRange.
            let request = match resources["requests"].get("cpu") {
                Some(request) => amount(request),
                None => limit,
            };
            assert!(request >= minimum, "{resources}");
            assert!(limit <= ratio * request, "{resources}");
        }
    }

    fn enforced(containers: Value, ceilings: (&str, &str)) -> Result<Value, String> {
        let amount = |text: &str| (!text.is_empty()).then(|| text.parse::<Amount>().unwrap());
        let mut spec = containers;
        let ceilings = Ceilings {
            cpu: amount(ceilings.0),
            memory: amount(ceilings.1),
            storage: None,
        };
        match enforce(&mut spec, &ceilings) {
            Ok(()) => Ok(spec),
            Err(errors) => Err(errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")),
        }
    }

    #[test]
    fn containers_without_a_limit_share_what_the_others_leave() {
        let spec = enforced(
            json!({"containers": [
                {"name": "a", "resources": {"limits": {"cpu": "500m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "c", "resources": {"limits": {"cpu": "0"}}},
            ]}),
            ("1", ""),
        )
        .unwrap();
        let cpu = |index: usize| &spec["containers"][index]["resources"]["limits"]["cpu"];
        assert_eq!(
            (cpu(0), cpu(1), cpu(2)),
            (&json!("500m"), &json!("300m"), &json!("200m"))
        );
        assert_eq!(spec["containers"][2]["resources"].get("requests"), None);
    }

    #[test]
    fn a_pod_that_is_too_large_is_refused_with_the_numbers() {
        let memory = |value: &str| json!({"limits": {"memory": value}});
        for (spec, message) in [
            (
                json!({"containers": [
                    {"name": "a", "resources": memory("700Mi")},
                    {"name": "b", "resources": memory("700Mi")},
                ]}),
                "all containers together can take 1400Mi memory, maxMemory is 1Gi",
            ),
            (
                json!({
                    "containers": [{"name": "a", "resources": memory("600Mi")}],
                    "initContainers": [
                        {"name": "side", "restartPolicy": "Always", "resources": memory("600Mi")},
                    ],
                }),
                "all containers together can take 1200Mi memory, maxMemory is 1Gi",
            ),
            (
                json!({
                    "containers": [{"name": "a", "resources": memory("100Mi")}],
                    "initContainers": [
                        {"name": "side", "restartPolicy": "Always", "resources": memory("600Mi")},
                        {"name": "init", "resources": memory("600Mi")},
                    ],
                }),
                "init container init together with the sidecars can take 1200Mi memory, maxMemory is 1Gi",
            ),
            (
                json!({
                    "overhead": {"memory": "200Mi"},
                    "containers": [{"name": "a", "resources": memory("900Mi")}],
                }),
                "all containers together can take 1100Mi memory, maxMemory is 1Gi",
            ),
            (
                json!({"resources": memory("2Gi"), "containers": [{"name": "a"}]}),
                "the pod can take 2Gi memory, maxMemory is 1Gi",
            ),
            (
                json!({"containers": [{"name": "a", "resources": memory("1Gi")}, {"name": "b"}]}),
                "nothing of maxMemory 1Gi is left for container b",
            ),
        ] {
            assert_eq!(enforced(spec, ("", "1Gi")).unwrap_err(), message);
        }
    }

    #[test]
    fn an_init_container_may_be_as_large_as_the_rest_together() {
        let spec = json!({
            "containers": [{"name": "a", "resources": {"limits": {"memory": "1Gi"}}}],
            "initContainers": [
                {"name": "one", "resources": {"limits": {"memory": "1Gi"}}},
                {"name": "two"},
            ],
        });
        let spec = enforced(spec, ("", "1Gi")).unwrap();
        assert_eq!(
            spec["initContainers"][1]["resources"]["limits"]["memory"],
            "1Gi"
        );
    }

    proptest! {
        /// Checks for any requests of a pod that its limits stay below the ceiling, that every container has a
        /// limit, and that every container keeps its requests.
        #[test]
        fn limited_pod_has_limits_below_ceiling_and_keeps_requests(
            asked in proptest::collection::vec((proptest::option::of(0_i64..2000), proptest::option::of(0_i64..1000), 0_u8..3), 1..6),
            ceiling in 1_i64..4000,
        ) {
            let container = |index: usize, limit: &Option<i64>, request: &Option<i64>, kind: u8| {
                let mut one = json!({"name": format!("c{index}"), "resources": {}});
                if let Some(limit) = limit { one["resources"]["limits"] = json!({"cpu": format!("{limit}m")}); }
                if let Some(request) = request { one["resources"]["requests"] = json!({"cpu": format!("{request}m")}); }
                if kind == 2 { one["restartPolicy"] = json!("Always"); }
                one
            };
            let all = asked.iter().enumerate().map(|(index, (limit, request, kind))| (kind, container(index, limit, request, *kind)));
            let (main, init): (Vec<_>, Vec<_>) = all.partition(|(kind, _)| **kind == 0);
            let values = |list: Vec<(&u8, Value)>| list.into_iter().map(|(_, one)| one).collect::<Vec<_>>();
            let spec = json!({"containers": values(main), "initContainers": values(init)});
            if let Ok(spec) = enforced(spec, (&format!("{ceiling}m"), "")) {
                let milli = |one: &Value| {
                    let text = one["resources"]["limits"]["cpu"].as_str().unwrap();
                    text.parse::<Amount>().unwrap().as_nanos() / 1_000_000
                };
                let all = spec["containers"].as_array().unwrap().iter();
                let init = spec["initContainers"].as_array().unwrap();
                prop_assert!(all.clone().chain(init).all(|one| milli(one) > 0));
                let sidecars = || init.iter().filter(|one| one["restartPolicy"] == "Always");
                let together: i128 = all.chain(sidecars()).map(milli).sum();
                prop_assert!(together <= i128::from(ceiling));
                let mut beside = 0;
                for one in init {
                    if one["restartPolicy"] == "Always" { beside += milli(one); }
                    else { prop_assert!(beside + milli(one) <= i128::from(ceiling)); }
                }
            }
        }
    }
}
