//! The metrics of the trail.

use oz_trail::{Action, Decision, Record};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use strum::IntoEnumIterator;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct What {
    action: &'static str,
    decision: &'static str,
}

impl What {
    fn new(action: Action, decision: Decision) -> Self {
        Self {
            action: action.into(),
            decision: decision.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Where {
    sink: &'static str,
}

#[derive(Clone, Default)]
pub(crate) struct Meters {
    records: Family<What, Counter>,
    failures: Family<Where, Counter>,
    /// A caller required a record and did not get it.
    pub(crate) refused: Counter,
    pub(crate) dropped: Counter,
    checkpoints: Counter,
    waiting: Gauge,
    unsigned: Gauge,
}

impl Meters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // An alert about an event that occurs once a year requires a zero before it.
        for action in Action::iter() {
            for decision in action.decisions() {
                drop(self.records.get_or_create(&What::new(action, *decision)));
            }
        }
        let registry = registry.sub_registry_with_prefix("oz_audit");
        registry.register(
            "records",
            "Audit records, by action; one that counts several events is counted for each of them",
            self.records.clone(),
        );
        registry.register(
            "sink_failures",
            "Failed attempts to write audit records, by destination",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "Requests that were denied or delayed since their audit record could not be written in \
                time",
            self.refused.clone(),
        );
        registry.register(
            "dropped",
            "Audit records that will never reach the collector or the cluster: it was down for too \
             long, or does not accept them",
            self.dropped.clone(),
        );
        registry.register(
            "checkpoints",
            "Signed checkpoints that were published",
            self.checkpoints.clone(),
        );
        registry.register(
            "waiting",
            "Audit records that have not reached all destinations",
            self.waiting.clone(),
        );
        registry.register(
            "unsigned",
            "Audit records that have reached all destinations and are in no published checkpoint",
            self.unsigned.clone(),
        );
    }

    pub(crate) fn written(&self, record: &Record) {
        let what = What::new(record.action, record.decision);
        let many = record.repeated.as_ref().map_or(1, |several| several.count);
        self.records.get_or_create(&what).inc_by(many);
    }

    pub(crate) fn failed(&self, sink: &'static str) {
        self.failures.get_or_create(&Where { sink }).inc();
    }

    pub(crate) fn signed(&self) {
        self.checkpoints.inc();
    }

    pub(crate) fn sizes(&self, waiting: usize, unsigned: u64) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.unsigned
            .set(i64::try_from(unsigned).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use oz_trail::Repeated;

    use super::*;

    #[test]
    fn alert_counters_start_at_zero_and_include_unwritten_records() {
        let (meters, mut registry) = (Meters::default(), Registry::default());
        meters.register(&mut registry);
        let shown = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        for series in [
            r#"{action="DriftDetected",decision="End"} 0"#,
            r#"{action="WebhookRepaired",decision="Note"} 0"#,
            r#"{action="SessionRefused",decision="Deny"} 0"#,
        ] {
            assert!(shown().contains(series), "{series}: {}", shown());
        }
        let mut refused = Record {
            action: Action::SessionRefused,
            decision: Decision::Deny,
            ..Record::default()
        };
        meters.written(&refused);
        refused.repeated = Some(Repeated {
            count: 9_000,
            ..Repeated::default()
        });
        meters.written(&refused);
        let counted = r#"{action="SessionRefused",decision="Deny"} 9001"#;
        assert!(shown().contains(counted), "{}", shown());
    }
}
