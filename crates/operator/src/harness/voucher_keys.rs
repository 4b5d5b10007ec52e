//! Publishes the keys by which the broker checks the vouchers of Jobs, in a Secret that the operator alone writes: a
//! writer of it could vouch for Jobs of their own.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_core::access::seal::Keys;
use oz_core::harness::voucher::{PUBLIC_KEYS, published};
use oz_core::names::RUN_VOUCHER_KEYS;
use oz_runtime::{CallError, Task, within};
use serde_json::json;

/// The interval between two checks for new keys: a new one signs ten seconds after it came.
const LOOK: Duration = Duration::from_secs(2);
/// The number of checks after which they are written again, so that a change by others is repaired.
const LOOKS: u32 = 30;

pub(super) struct VoucherKeys {
    keys: Keys,
    secrets: Api<Secret>,
}

impl VoucherKeys {
    pub(super) fn new(client: &Client, namespace: &str, keys: &Keys) -> Self {
        Self {
            keys: keys.clone(),
            secrets: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Writes the keys into the Secret that the installation made: this process may create none.
    async fn publish(&self, keys: &str) -> Result<Secret, CallError> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": RUN_VOUCHER_KEYS, "labels": {"app.kubernetes.io/name": "oz"}},
            "data": {PUBLIC_KEYS: ByteString(keys.as_bytes().to_vec())},
        });
        let apply = PatchParams::apply("oz-keys").force();
        let patch = Patch::Apply(secret);
        let published = self.secrets.patch(RUN_VOUCHER_KEYS, &apply, &patch);
        within(published, || {
            format!(
                "failed to publish the keys of vouchers in Secret {RUN_VOUCHER_KEYS}, which the chart and \
                 deploy/rbac/harness make"
            )
        })
        .await
    }
}

impl Task for VoucherKeys {
    async fn run(&self) {
        loop {
            let keys = published(&self.keys);
            let looks = match self.publish(&keys).await {
                Ok(_) => LOOKS,
                Err(error) => {
                    tracing::warn!(%error, "the broker may refuse the pods of runs");
                    1
                }
            };
            for _ in 0..looks {
                tokio::time::sleep(LOOK).await;
                if published(&self.keys) != keys {
                    break;
                }
            }
        }
    }
}
