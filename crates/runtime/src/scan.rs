//! Reading objects of others by the API server's word instead of a watch's: one by name, or page by page
//! all of a kind. What is read is hostile: it may be large or deep, so a page is bounded in bytes, each
//! object is decoded by itself, and managed fields, which may be nested without end, are passed over.

use std::collections::BTreeMap;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kube::api::{GetParams, ListParams};
use kube::core::{ApiResource, DynamicObject, Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{CallError, within};
use crate::raw;

/// How many objects are asked for at once, as long as they are small.
const PAGE: u32 = 250;
/// The longest answer. One object may take 9 MiB: 1.5 MiB in etcd, six bytes for one in JSON.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// One page of a list, as text.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// An object from its text. Managed fields are left out, and so is each field that nests too deeply or
/// has too many values to be read: name and UID are enough to end it.
#[must_use]
pub(crate) fn decode(resource: &ApiResource, text: &str) -> Option<DynamicObject> {
    let mut fields: Fields<'_> = serde_json::from_str(text).ok()?;
    let metadata: Fields<'_> = serde_json::from_str(fields.remove("metadata")?.get()).ok()?;
    let parse = |(name, raw): (String, &RawValue)| Some((name, raw::value(raw.get())?));
    let metadata: Map<String, Value> = metadata
        .into_iter()
        .filter(|(name, _)| name != "managedFields")
        .filter_map(parse)
        .collect();
    let mut object = DynamicObject::new("", resource);
    object.metadata = serde_json::from_value(Value::Object(metadata)).ok()?;
    let rest = fields
        .into_iter()
        .filter(|(name, _)| name != "apiVersion" && name != "kind");
    object.data = Value::Object(rest.filter_map(parse).collect());
    Some(object)
}

/// Reads one object; `None` if there is none of that name.
///
/// # Errors
/// When the API server does not answer, refuses, or answers with something else.
pub async fn get(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<DynamicObject>, CallError> {
    let kind = &resource.kind;
    let what = || format!("failed to read {kind} {}{name}", place(namespace));
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
        Some(Some(text)) => match decode(resource, &text) {
            Some(object) => Ok(Some(object)),
            None => Err(CallError::passing(
                "UnexpectedAnswer",
                format!("{}: it does not decode", what()),
            )),
        },
    }
}

/// Reads all objects of a kind, or those that `labels` select, in one namespace or in all, and hands each
/// to `visit`. Never from a cache
/// that may be behind, which `resourceVersion=0` would allow; and in pages, which it would not.
///
/// # Errors
///
/// When the API server does not answer, refuses, or has an object that is larger than any can be.
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
                let message = format!("{}: one is larger than any may be", what());
                return Err(CallError::passing("TooLarge", message));
            }
            limit = (limit / 8).max(1);
            continue;
        };
        let page: Page<'_> = serde_json::from_str(&text).map_err(|error| {
            let error = raw::without_content(&error);
            CallError::passing("UnexpectedAnswer", format!("{}: {error}", what()))
        })?;
        for item in page.items.into_iter().flatten() {
            match decode(resource, item.get()) {
                Some(object) => visit(object),
                None => tracing::warn!(kind = resource.kind, "passed over what does not decode"),
            }
        }
        next = page.metadata.next.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(());
        }
    }
}

/// The answer as text; `None` if it is too long.
async fn bounded(client: &Client, request: http::Request<Vec<u8>>) -> kube::Result<Option<String>> {
    let answer = client.send(request.map(kube::client::Body::from)).await?;
    let status = answer.status();
    let body = match Limited::new(answer.into_body(), PAGE_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(None),
        Err(error) => return Err(kube::Error::Service(error)),
    };
    if status.is_success() {
        let text = String::from_utf8(body.into()).map_err(kube::Error::FromUtf8)?;
        return Ok(Some(text));
    }
    let told: Status = serde_json::from_slice(&body).unwrap_or_else(|_| {
        Status::failure("the answer does not decode", "").with_code(status.as_u16())
    });
    Err(kube::Error::Api(Box::new(told)))
}

fn place(namespace: Option<&str>) -> String {
    namespace.map(|name| format!("{name}/")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::RoleBinding;

    use super::*;

    #[test]
    fn what_is_nested_without_end_hides_nothing_else() {
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
        let object = decode(&resource, &text).unwrap();
        assert_eq!(object.metadata.uid.as_deref(), Some("u"));
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.data["roleRef"]["name"], "r");
        assert_eq!(object.data.get("subjects"), None);
        for text in ["", "[]", "{}", "{\"metadata\":3}"] {
            assert_eq!(decode(&resource, text), None, "{text}");
        }
    }
}
