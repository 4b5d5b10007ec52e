//! `providers.aws.sign_req`: the signature of a request by version 4 of the signing process of AWS.
//! See <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use regorus::Value;
use sha2::{Digest, Sha256};

use super::crypto::hex;
use super::operand::{Answer, Failure, failed, fields, integer, kind, text};
use super::time::stamp;
use super::uri::Address;

/// The headers that are not signed, since proxies change them.
const IGNORED: [&str; 3] = ["authorization", "user-agent", "x-amzn-trace-id"];

/// Implements `providers.aws.sign_req`.
pub(super) fn sign(values: &[Value]) -> Answer {
    let request: BTreeMap<Value, Value> = fields(values, 0)?.into_iter().collect();
    let config: BTreeMap<Value, Value> = fields(values, 1)?.into_iter().collect();
    let nanoseconds = integer(values, 2)?;
    if nanoseconds < 0 {
        return failed("operand 3 could not convert time_ns value into a unix timestamp");
    }
    let credentials = Credentials::read(&config)?;
    let method = required(&request, "method", 1)?;
    let url = Address::parse(required(&request, "url", 1)?).map_err(Failure::Failed)?;
    let mut headers = match request.get(&Value::from("headers")) {
        None => BTreeMap::new(),
        Some(headers) => fields(std::slice::from_ref(headers), 0)?
            .into_iter()
            .collect(),
    };
    let body = body(&request)?;
    let unsigned = match config.get(&Value::from("disable_payload_signing")) {
        None => false,
        Some(Value::Bool(disabled)) => *disabled,
        Some(_) => {
            return failed("operand 2 invalid value for 'disable_payload_signing' in AWS config");
        }
    };
    let digest = match unsigned {
        true => "UNSIGNED-PAYLOAD".to_owned(),
        false => hex(&Sha256::digest(&body)),
    };
    let instant = stamp(nanoseconds)?;
    let mut added = BTreeMap::from([
        ("host".to_owned(), url.host.clone()),
        ("x-amz-date".to_owned(), instant.clone()),
    ]);
    if matches!(credentials.service, "s3" | "glacier") {
        added.insert("x-amz-content-sha256".to_owned(), digest.clone());
    }
    if let Some(token) = credentials.token {
        added.insert("x-amz-security-token".to_owned(), token.to_owned());
    }
    let mut signed = added.clone();
    for (name, value) in &headers {
        let name = text(std::slice::from_ref(name), 0)
            .unwrap_or_default()
            .to_lowercase();
        if !IGNORED.contains(&name.as_str()) {
            let value = text(std::slice::from_ref(value), 0).unwrap_or_default();
            signed.insert(name, value.to_owned());
        }
    }
    let authorization = credentials.authorization(method, &url, &signed, &digest, &instant)?;
    let mut set = |name: &str, value: &str| headers.insert(Value::from(name), Value::from(value));
    set("Authorization", &authorization);
    for (name, value) in &added {
        set(name, value);
    }
    let mut request = request;
    request.insert(Value::from("headers"), Value::from(headers));
    Ok(Value::from(request))
}

struct Credentials<'a> {
    service: &'a str,
    region: &'a str,
    access_key: &'a str,
    secret: &'a str,
    token: Option<&'a str>,
}

impl<'a> Credentials<'a> {
    fn read(config: &'a BTreeMap<Value, Value>) -> Result<Self, Failure> {
        let token = config.get(&Value::from("aws_session_token"));
        Ok(Self {
            service: required(config, "aws_service", 2)?,
            region: required(config, "aws_region", 2)?,
            access_key: required(config, "aws_access_key", 2)?,
            secret: required(config, "aws_secret_access_key", 2)?,
            token: token
                .and_then(|token| token.as_string().ok())
                .map(AsRef::as_ref)
                .filter(|token: &&str| !token.is_empty()),
        })
    }

    fn authorization(
        &self,
        method: &str,
        url: &Address,
        headers: &BTreeMap<String, String>,
        digest: &str,
        instant: &str,
    ) -> Result<String, Failure> {
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let names = headers
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(";");
        let (path, query) = (&url.path, &url.query);
        let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}");
        let day = instant.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let request = hex(&Sha256::digest(request));
        let text = format!("AWS4-HMAC-SHA256\n{instant}\n{scope}\n{request}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day, self.region, self.service, "aws4_request", &text] {
            key = keyed(&key, part)?;
        }
        Ok(format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={}",
            self.access_key,
            hex(&key)
        ))
    }
}

fn keyed(key: &[u8], text: &str) -> Result<Vec<u8>, Failure> {
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        return failed("the key is not usable");
    };
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

/// Returns a text that an operand must have.
fn required<'a>(
    fields: &'a BTreeMap<Value, Value>,
    name: &str,
    operand: usize,
) -> Result<&'a str, Failure> {
    match fields.get(&Value::from(name)) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => failed(format!(
            "operand {operand} invalid value for {name}: {}",
            kind(other)
        )),
        None => failed(format!(
            "operand {operand} missing required parameter {name}"
        )),
    }
}

/// Returns the bytes of the request's body.
fn body(request: &BTreeMap<Value, Value>) -> Result<Vec<u8>, Failure> {
    if let Some(raw) = request.get(&Value::from("raw_body")) {
        return Ok(raw
            .as_string()
            .map(|text| text.as_bytes().to_vec())
            .unwrap_or_default());
    }
    match request.get(&Value::from("body")) {
        None => Ok(Vec::new()),
        Some(body) => match super::interpreter::call("json.marshal", std::slice::from_ref(body))? {
            Value::String(text) => Ok(text.as_bytes().to_vec()),
            _ => Err(Failure::Undefined),
        },
    }
}
