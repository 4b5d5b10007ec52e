//! The configuration that an EiriniX installation left: it would call a process that no longer exists.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Api, Resource,
    api::{DeleteParams, Preconditions},
};

/// Returns the name that EiriniX gives its configuration.
pub(crate) fn configuration_name(fingerprint: &str) -> String {
    format!("{fingerprint}-mutating-hook")
}

/// Checks that all webhooks have names of EiriniX: `0.<fingerprint>.org`, `1.<fingerprint>.org`, ….
fn is_eirinix(configuration: &MutatingWebhookConfiguration, fingerprint: &str) -> bool {
    let suffix = format!(".{fingerprint}.org");
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks.into_iter().all(|webhook| {
        let number = webhook.name.strip_suffix(&suffix);
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    })
}

/// Removes the configuration, if it contains only webhooks of EiriniX.
///
/// # Errors
/// The configuration can be neither read nor removed.
pub(crate) async fn remove(client: kube::Client, fingerprint: &str) -> Result<(), kube::Error> {
    let api = Api::<MutatingWebhookConfiguration>::all(client);
    let name = configuration_name(fingerprint);
    let Some(found) = api.get_opt(&name).await? else {
        return Ok(());
    };
    if !is_eirinix(&found, fingerprint) {
        tracing::warn!(name, "left a configuration: not all in it is of EiriniX");
        return Ok(());
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.meta().uid.clone(),
            resource_version: found.meta().resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(&name, &parameters).await {
        Ok(_) => {
            tracing::info!(name, "removed what EiriniX registered");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
