//! The kinds that are named at run time.

use oz_composites::declared::{KindName, Placed};
use oz_composites::supervise::KIND_MISSING;
use oz_core::controller::Failure;
use oz_engine::Cx;
use oz_runtime::{Kind, within};

/// Returns a kind in the form of the runtime.
pub(super) fn kind(placed: &Placed) -> Kind {
    Kind {
        resource: placed.resource.clone(),
        cluster_scoped: placed.cluster_scoped,
    }
}

/// Returns a kind by its plural, and whether it has a status subresource.
pub(super) async fn placed(cx: &Cx, name: &KindName) -> Result<(Placed, bool), Failure> {
    let what = || format!("failed to look up {name}");
    let listed = async {
        match name.group() {
            "" => cx.client().list_core_api_resources(name.version()).await,
            _ => {
                cx.client()
                    .list_api_group_resources(&name.api_version)
                    .await
            }
        }
    };
    let missing = || {
        let message = format!("the API server has no {name} in {}", name.api_version);
        Failure::transient(KIND_MISSING, message)
    };
    let listed = within(listed, what)
        .await
        .map_err(|error| match error.reason {
            "NotFound" => missing(),
            _ => oz_engine::of_call(error),
        })?;
    Placed::listed(name, &listed).ok_or_else(missing)
}
