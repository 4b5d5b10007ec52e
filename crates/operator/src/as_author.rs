//! The check whether the API server and its admission would let the author of a template create the
//! pod that oz is about to create for a requester: the operator creates it as the author, in a dry
//! run. This requires the right to impersonate, which is as powerful as any other right; so it is
//! an option (operator.impersonateAuthors).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::{PostParams, Request};
use kube::core::DynamicObject;
use oz_api::Name;
use oz_core::access::kind::Trial;
use oz_core::controller::Failure;
use oz_engine::Cx;

/// The timeout of admission, with its webhooks.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(15);

/// Tries to create the pod as the author.
pub(crate) async fn try_as_author(cx: &Cx, trial: &Trial) -> Result<(), Failure> {
    let author = &trial.author;
    let pod = &trial.pod.object;
    let name = Name::from_metadata(&pod.metadata)?.as_str();
    let refused = |why: String| {
        Failure::transient(
            "AuthorRefused",
            format!(
                "{}, the author of template {}, may not create Pod {name}: {why}; have them change \
                 the template, or have a user with these rights write it",
                author.user, trial.template
            ),
        )
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let asked = || -> anyhow::Result<_> {
        let path = Pod::url_path(&(), pod.metadata.namespace.as_deref());
        let mut request = Request::new(path).create(&dry, serde_json::to_vec(pod)?)?;
        let headers = request.headers_mut();
        headers.insert("impersonate-user", author.user.parse()?);
        for group in &author.groups {
            headers.append("impersonate-group", group.parse()?);
        }
        Ok(request)
    };
    let request = asked().map_err(|why| refused(why.to_string()))?;
    let answer = cx.client().request::<DynamicObject>(request);
    match tokio::time::timeout(DRY_RUN_TIMEOUT, answer).await {
        Ok(Ok(_)) => Ok(()),
        // An existing object with the name is reported when the pod is created.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(()),
        Ok(Err(kube::Error::Api(status))) => Err(refused(status.message.clone())),
        Ok(Err(error)) => Err(oz_engine::failure(
            "failed to try the creation of the pod as the template's author",
            &error,
        )),
        Err(_) => Err(Failure::transient(
            "Timeout",
            format!(
                "failed to try the creation of Pod {name} as {}: the API server did not respond in \
                    time",
                author.user
            ),
        )),
    }
}
