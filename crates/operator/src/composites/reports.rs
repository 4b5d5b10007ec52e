//! The reports of passes over parents about the steps that they do not carry out, stored until the
//! reconciliation of their composite: once all parents have reported, and some time after a change
//! of a report.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::core::DynamicObject;
use oz_composites::Composite;
use oz_composites::guard::{Report, Tally};
use oz_core::controller::{Effect, Failure};
use oz_engine::{Port, Signal};
use oz_runtime::{Store, Subscription};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

/// The time for which changes are collected before their composite is reconciled.
const COLLECTED: Duration = Duration::from_secs(1);

/// The reports of parents by composite.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<HashMap<String, Reported>>>);

/// The reports of the parents of one composite.
#[derive(Default)]
struct Reported {
    /// The reports by UID of the parent.
    reports: BTreeMap<String, Report>,
    /// True if a reconciliation of the composite is pending.
    due: bool,
}

/// The port that receives reports.
pub(crate) struct ReportsPort {
    pub(crate) reports: Reports,
    /// The signal that reconciles a composite.
    pub(crate) told: Signal,
}

impl Port for ReportsPort {
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>> {
        Box::pin(async move {
            let report: Report =
                serde_json::from_value(effect.payload.clone()).map_err(|error| {
                    let message = format!("failed to read a report of a parent: {error}");
                    Failure::invalid("PayloadInvalid", message)
                })?;
            let uid = report.composite.clone().ok_or_else(|| {
                let message = "failed to read a report of a parent: it names no composite";
                Failure::invalid("PayloadInvalid", message)
            })?;
            if self.reports.store(&uid, &effect.key, report) {
                self.reports.look_later(&uid, &self.told);
            }
            Ok(Value::Null)
        })
    }
}

impl Reports {
    /// Removes the reports of a composite.
    pub(super) fn forget(&self, composite: &str) {
        self.lock().remove(composite);
    }

    /// Returns the tally of the reports of these parents about the policy with this digest, with
    /// these existing children, each with its parent's UID.
    pub(super) fn tally<'a>(
        &self,
        composite: &str,
        policy: Option<&str>,
        parents: impl IntoIterator<Item = &'a str>,
        children: &[(String, String)],
    ) -> Tally {
        let none = BTreeMap::new();
        let told = self.lock();
        let reports = told.get(composite).map_or(&none, |told| &told.reports);
        let children = children.iter();
        let children = children.map(|(parent, child)| (parent.as_str(), child.as_str()));
        Tally::from_reports(policy, parents, reports).checked(children, reports)
    }

    /// Reconciles a composite when the number of its parents changes.
    pub(super) fn count(
        &self,
        composite: &Composite,
        parents: &Store<DynamicObject>,
        signal: &Signal,
    ) -> Subscription {
        let (this, signal) = (self.clone(), signal.clone());
        let uid = composite.declared.uid.clone();
        let counts = composite.declared.most_deletions.is_some();
        let known = Mutex::new(0);
        let store = parents.clone();
        parents.subscribe(move |_| {
            let mut known = known.lock();
            if counts && *known != store.len() {
                *known = store.len();
                if let Some(uid) = &uid {
                    this.look_later(uid, &signal);
                }
            }
        })
    }

    /// Stores a report, and returns whether it differs from the previous one.
    fn store(&self, composite: &str, parent: &str, report: Report) -> bool {
        let mut all = self.lock();
        let told = all.entry(composite.to_owned()).or_default();
        let before = told.reports.insert(parent.to_owned(), report.clone());
        before != Some(report)
    }

    /// Reconciles a composite soon, once for all reports until then.
    fn look_later(&self, composite: &str, signal: &Signal) {
        let mut all = self.lock();
        let told = all.entry(composite.to_owned()).or_default();
        if std::mem::replace(&mut told.due, true) {
            return;
        }
        let (this, signal, uid) = (self.clone(), signal.clone(), composite.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(COLLECTED).await;
            if let Some(told) = this.lock().get_mut(&uid) {
                told.due = false;
            }
            signal.raise(&uid);
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Reported>> {
        self.0.lock()
    }
}
