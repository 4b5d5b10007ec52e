//! The oz that these tests share.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use oz_e2e::{Operator, Options, apply, established, install};
use oz_testkit::Cluster;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::definitions;

/// oz with harness runs switched on.
pub(crate) struct Oz {
    pub(crate) operator: Operator,
}

static OZ: OnceCell<Oz> = OnceCell::const_new();

/// The oz of this process, started by whoever comes first.
pub(crate) async fn oz() -> Result<&'static Oz> {
    let cluster = Cluster::shared().await?;
    OZ.get_or_try_init(async || {
        install(cluster).await?;
        for part in ["charts/oz/files/harness", "deploy/rbac/harness"] {
            apply(cluster, part)?;
        }
        established(cluster)?;
        definitions::store_what_hooks_refuse(cluster).await?;
        let options = Options::default().flag("--harness");
        let operator = Operator::start(cluster, &options).await?;
        Ok(Oz { operator })
    })
    .await
}

pub(crate) async fn apply_as<K>(api: &Api<K>, mut object: Value) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    object["apiVersion"] = K::api_version(&()).as_ref().into();
    object["kind"] = K::kind(&()).as_ref().into();
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let parameters = PatchParams::apply("test").force();
    let written = api.patch(&name, &parameters, &Patch::Apply(&object)).await;
    written.with_context(|| format!("failed to apply {name}"))
}
