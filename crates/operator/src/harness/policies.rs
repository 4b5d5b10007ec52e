//! BrokerPolicies at the edge: decisions about them depend only on their contents, and on the time.

use std::convert::Infallible;

use oz_api::harness::BrokerPolicy;
use oz_engine::{Cx, Observe, Watches};
use oz_runs::definitions::Policies;
use oz_runtime::Store;

pub(crate) struct PolicyObjects {
    pub(crate) policies: Store<BrokerPolicy>,
}

impl Observe<Policies> for PolicyObjects {
    fn watches(&self) -> Watches<BrokerPolicy> {
        Watches::new(&self.policies)
    }

    fn known(&self, _: &BrokerPolicy) {}

    async fn answer(&self, _: &Cx, _: &BrokerPolicy, question: Infallible, (): &mut ()) {
        match question {}
    }
}
