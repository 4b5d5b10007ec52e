//! AccessPolicies at the edge: whether their expressions compile, and their number. The operator
//! evaluates none of them.

use std::time::{Duration, Instant};

use oz_api::AccessPolicy;
use oz_core::access::policy::MAX_POLICIES;
use oz_core::access::policy::status::{Checked, Compiled, NotCompiled, Policies};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

/// The timeout of one compilation.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct AccessPolicies {
    pub(crate) policies: Store<AccessPolicy>,
}

impl AccessPolicies {
    fn count(&self) -> usize {
        self.policies.len() + self.policies.undecodable()
    }
}

impl Observe<Policies> for AccessPolicies {
    fn watches(&self) -> Watches<AccessPolicy> {
        // Where one policy more or less makes a difference, it affects all of them.
        Watches::new(&self.policies).related(&self.policies, |_, all| {
            if all.len() >= MAX_POLICIES {
                all.objects()
            } else {
                Vec::new()
            }
        })
    }

    fn facts(&self, _: &AccessPolicy) -> Option<Checked> {
        None
    }

    async fn answer(
        &self,
        _: &Cx,
        policy: &AccessPolicy,
        _: Compiled,
        facts: &mut Option<Checked>,
    ) {
        let spec = policy.spec.clone();
        let compile = move || {
            let until = Instant::now() + COMPILE_TIMEOUT;
            oz_cel::apart(COMPILE_TIMEOUT, move || oz_cel::policy::check(&spec, until))
        };
        let compiled = match tokio::task::spawn_blocking(compile).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err((field, why)))) => Err(NotCompiled::Field {
                field: field.to_string(),
                why: why.to_string(),
            }),
            Ok(Err(why)) => Err(NotCompiled::Attempt(why.to_string())),
            Err(error) => Err(NotCompiled::Attempt(error.to_string())),
        };
        *facts = Some(Checked {
            compiled,
            count: self.count(),
        });
    }
}
