//! Reads objects of other users with requests instead of a watch: one by name, or all objects of a kind
//! page by page. The data is hostile: it may be large or deep, so a page is bounded in bytes, each
//! object is decoded separately, and managed fields, which may nest without limit, are skipped.

use std::collections::BTreeMap;

use axum::body::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{GetParams, ListParams};
use kube::core::{ApiResource, DynamicObject, Request, Status};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{CallError, within};
use crate::raw::{self, Form, Piece, RawObject, Splitter};
use crate::store::path;

/// The number of objects per request, as long as they are small.
const PAGE: u32 = 250;
/// The longest response. One object may take 9 MiB: 1.5 MiB in etcd, six bytes for one in JSON.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Decodes an object from its text, without managed fields and without each field that nests too
/// deeply or has too many values: name and UID are enough to delete it.
fn decode(resource: &ApiResource, object: &RawObject) -> Option<DynamicObject> {
    let metadata = raw::metadata_of(object)?;
    let fields = object.text().map(serde_json::from_slice).transpose().ok()?;
    let fields: Option<BTreeMap<String, &RawValue>> = fields;
    let rest = fields
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
        .filter_map(|(name, text)| Some((name, raw::value(text.get())?)));
    let mut decoded = DynamicObject::new("", resource);
    decoded.data = Value::Object(rest.collect());
    decoded.metadata = ObjectMeta {
        managed_fields: None,
        ..metadata
    };
    Some(decoded)
}

/// Reads one object; returns `None` if no object has that name.
///
/// # Errors
/// When the API server does not respond, rejects the request, or responds with another type of
/// data.
pub async fn get(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<DynamicObject>, CallError> {
    let kind = &resource.kind;
    let what = || format!("failed to read {kind} {}", path(namespace, name));
    let url = <DynamicObject as kube::Resource>::url_path(resource, namespace);
    let text = within(
        async {
            let request = Request::new(url).get(name, &GetParams::default());
            let request = request.map_err(kube::Error::BuildRequest)?;
            match bounded(client, request).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                answer => answer.map(Some),
            }
        },
        what,
    )
    .await?;
    match text {
        None | Some(None) => Ok(None),
        Some(Some(text)) => match decode(resource, &RawObject::with_largest(&text, PAGE_BYTES)) {
            Some(object) => Ok(Some(object)),
            None => Err(CallError::passing(
                "UnexpectedResponse",
                format!("{}: it does not decode", what()),
            )),
        },
    }
}

/// Reads all objects of a kind, or those that `labels` select, in one namespace or in all, and passes
/// each to `visit`.
///
/// # Errors
///
/// When the API server does not respond, rejects the request, or has an object that is larger than
/// possible.
pub async fn scan(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    labels: Option<&str>,
    mut visit: impl FnMut(DynamicObject) + Send,
) -> Result<(), CallError> {
    let what = || {
        let place = namespace.unwrap_or("all namespaces");
        format!("failed to list {} in {place}", resource.plural)
    };
    let url = <DynamicObject as kube::Resource>::url_path(resource, namespace);
    let (mut limit, mut next) = (PAGE, None::<String>);
    loop {
        let mut page = ListParams::default().limit(limit);
        page.continue_token.clone_from(&next);
        page.label_selector = labels.map(ToOwned::to_owned);
        let request = Request::new(url.clone()).list(&page);
        let text = within(
            async { bounded(client, request.map_err(kube::Error::BuildRequest)?).await },
            what,
        )
        .await?;
        let Some(text) = text else {
            if limit == 1 {
                let message = format!("{}: an object exceeds the maximum size", what());
                return Err(CallError::passing("TooLarge", message));
            }
            limit = (limit / 8).max(1);
            continue;
        };
        let mut pieces = Vec::new();
        Splitter::with_largest(Form::List, PAGE_BYTES).push(&text, &mut pieces);
        let mut end = None;
        for piece in pieces {
            match piece {
                Piece::Object(object) => match decode(resource, &object) {
                    Some(object) => visit(object),
                    None => {
                        tracing::warn!(
                            kind = resource.kind,
                            "skipped an object that does not \
                            decode"
                        );
                    }
                },
                Piece::Around(text) => end = Some(raw::list_end(&text)),
            }
        }
        let unexpected =
            |error: &str| CallError::passing("UnexpectedResponse", format!("{}: {error}", what()));
        let end = end.ok_or_else(|| unexpected("the list ends early"))?;
        let end = end.map_err(|error| unexpected(&raw::without_content(&error)))?;
        next = end.next();
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Returns the response as text; `None` if it is too long.
async fn bounded(client: &Client, request: http::Request<Vec<u8>>) -> kube::Result<Option<Bytes>> {
    let answer = client.send(request.map(kube::client::Body::from)).await?;
    let status = answer.status();
    let body = match Limited::new(answer.into_body(), PAGE_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(None),
        Err(error) => return Err(kube::Error::Service(error)),
    };
    if status.is_success() {
        return Ok(Some(body));
    }
    let told: Status = serde_json::from_slice(&body).unwrap_or_else(|_| {
        Status::failure("the response does not decode", "").with_code(status.as_u16())
    });
    Err(kube::Error::Api(Box::new(told)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::RoleBinding;

    use super::*;

    #[test]
    fn deeply_nested_field_does_not_hide_other_fields() {
        let deep = format!(
            "{}{}",
            "{\"f:a\":".repeat(300),
            "{}".to_owned() + &"}".repeat(300)
        );
        let text = format!(
            "{{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"RoleBinding\",\
             \"metadata\":{{\"name\":\"a\",\"uid\":\"u\",\"managedFields\":[{{\"fieldsV1\":{deep}}}]}},\
             \"roleRef\":{{\"kind\":\"Role\",\"name\":\"r\"}},\"subjects\":{deep}}}"
        );
        let resource = ApiResource::erase::<RoleBinding>(&());
        let decoded = |text: &str| decode(&resource, &RawObject::new(text.as_bytes()));
        let object = decoded(&text).unwrap();
        assert_eq!(object.metadata.uid.as_deref(), Some("u"));
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.data["roleRef"]["name"], "r");
        assert_eq!(object.data.get("subjects"), None);
        for text in ["", "[]", "{}", "{\"metadata\":3}"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
