//! The number of grants that exist after their expiry: it must be zero, and is counted when metrics
//! are read.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use oz_api::BindingStatus;
use oz_core::kinds::AccessRequest;
use oz_core::lifecycle::window::has_come;
use oz_core::transient::Kind;
use oz_runtime::{Clock, Store};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::kept::By;

/// The name of the metric.
const METRIC: &str = "oz_grants_past_expiry";
const HELP: &str = "Grants past their expiry that are not reported as expired";

type Count = Box<dyn Fn(Timestamp) -> usize + Send + Sync>;

/// The counters by kind.
pub(crate) struct PastExpiry {
    clock: Arc<dyn Clock>,
    kinds: Vec<(String, Count)>,
}

impl PastExpiry {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let kinds = Vec::new();
        Self { clock, kinds }
    }

    /// Counts requests, without decompressing them.
    pub(crate) fn requests<R: AccessRequest>(&mut self, requests: Store<R>) {
        let over = By::Over.mark();
        self.count::<R>(move |now| {
            let mut count = 0;
            requests.for_each(|request| {
                let until = request.until().filter(|_| !request.is_marked(over));
                count += usize::from(until.is_some_and(|until| has_come(now, until)));
            });
            count
        });
    }

    /// Counts transient bindings.
    pub(crate) fn bindings<K: Kind>(&mut self, bindings: Store<K>) {
        let is_past = |status: &BindingStatus, now| {
            let until = status.remembers_until();
            !status.phase.is_terminal() && until.is_some_and(|until| has_come(now, until))
        };
        self.count::<K>(move |now| {
            let past =
                bindings.select(|one| one.status().is_some_and(|status| is_past(status, now)));
            past.len()
        });
    }

    fn count<K: oz_core::kinds::Kind>(
        &mut self,
        count: impl Fn(Timestamp) -> usize + Send + Sync + 'static,
    ) {
        let kind = format!("{}.{}", K::plural(&()), K::group(&()));
        self.kinds.push((kind, Box::new(count)));
    }
}

impl fmt::Debug for PastExpiry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PastExpiry").finish_non_exhaustive()
    }
}

impl Collector for PastExpiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.clock.now();
        let kind = ConstGauge::new(0_u64).metric_type();
        let mut family = encoder.encode_descriptor(METRIC, HELP, None, kind)?;
        for (kind, count) in &self.kinds {
            let labels = [("kind", kind.as_str())];
            let count = u64::try_from(count(now)).unwrap_or(u64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{ExecAccessRequest, TransientRoleBinding};
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;
    use crate::kept;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            "2026-11-27T10:00:00Z".parse().unwrap()
        }
    }

    fn status(phase: &str, began: Option<&str>, until: &str) -> Value {
        json!({
            "phase": phase, "grantedAt": began, "activatedAt": began, "expiresAt": until, "ready": false,
        })
    }

    /// Returns one status of each state, of which the first two count.
    fn statuses() -> Vec<Value> {
        let (before, after) = ("2026-11-27T10:00:00Z", "2026-11-27T10:00:01Z");
        let began = Some("2026-11-27T09:00:00Z");
        vec![
            status("Active", began, before),
            status("Active", began, "2026-11-27T09:30:00Z"),
            status("Active", began, after),
            status("Expired", began, before),
            status("Pending", None, before),
        ]
    }

    #[test]
    fn grants_active_past_expiry_are_counted_and_others_are_not() {
        let request = |(number, status): (usize, Value)| -> ExecAccessRequest {
            serde_json::from_value(json!({
                "metadata": {"name": format!("r{number}"), "namespace": "dev", "uid": number.to_string()},
                "spec": {"templateName": "shell"}, "status": status,
            }))
            .unwrap()
        };
        let requests = statuses().into_iter().enumerate().map(request);
        let mut past = PastExpiry::new(Arc::new(Fixed));
        past.requests(Store::fixed_as(requests, &kept::keep()));
        let binding = |(number, status): (usize, Value)| -> TransientRoleBinding {
            serde_json::from_value(json!({
                "metadata": {"name": format!("b{number}"), "uid": number.to_string()},
                "spec": {"subjects": [], "roleRef": {"apiGroup": "g", "kind": "ClusterRole", "name": "view"}},
                "status": status,
            }))
            .unwrap()
        };
        past.bindings(Store::fixed(
            statuses().into_iter().enumerate().map(binding),
        ));
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(past));
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for kind in ["execaccessrequests", "transientrolebindings"] {
            let line = format!("oz_grants_past_expiry{{kind=\"{kind}.crds.wizardofoz.co\"}} 2\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
