//! The responses of the server, in memory.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt as _;
use hyper::body::Bytes;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, dto, s3_error};
use sha2::{Digest as _, Sha256};

use crate::{Fault, Object, Shared};

/// The maximum number of names on a page: fewer than a client requests, so that it requests another page.
const PAGE: i32 = 3;

pub(crate) struct Backend(pub(crate) Arc<Shared>);

impl Backend {
    async fn fail(&self) -> S3Result<()> {
        match self.0.fault() {
            Fault::None => Ok(()),
            Fault::Denied => Err(s3_error!(AccessDenied, "<Code>Whatever</Code>")),
            Fault::Busy => Err(s3_error!(SlowDown)),
            Fault::Conflict => Err(s3_error!(ConditionalRequestConflict)),
            Fault::NoBucket => Err(s3_error!(NoSuchBucket)),
            Fault::Broken => Err(s3_error!(InternalError)),
            Fault::Full => {
                let mut error = S3Error::new(S3ErrorCode::Custom("StorageFull".into()));
                error.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
                Err(error)
            }
            Fault::Stalls => std::future::pending().await,
        }
    }
}

/// Returns the object of a request. The request must have everything that oz states about each object.
async fn put(input: dto::PutObjectInput) -> S3Result<(String, Object)> {
    let mut bytes = Vec::new();
    let body = input.body.ok_or_else(|| s3_error!(IncompleteBody))?;
    let mut body = body;
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|_| s3_error!(IncompleteBody))?);
    }
    let digest = BASE64_STANDARD.encode(Sha256::digest(&bytes));
    if input.checksum_sha256 != Some(digest) {
        return Err(s3_error!(BadDigest));
    }
    if input.if_none_match.is_none() {
        return Err(s3_error!(InvalidRequest, "it may write over something"));
    }
    let until = input.object_lock_retain_until_date.and_then(|date| {
        let mut text = Vec::new();
        date.format(dto::TimestampFormat::DateTime, &mut text)
            .ok()?;
        String::from_utf8(text).ok()
    });
    let object = Object {
        bytes: Bytes::from(bytes),
        mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
        until,
    };
    Ok((input.key, object))
}

#[async_trait::async_trait]
impl s3s::S3 for Backend {
    async fn put_object(
        &self,
        request: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        let (key, object) = put(request.input).await?;
        if self.0.fault() != Fault::Stalls {
            self.fail().await?;
        }
        {
            let mut objects = self.0.objects();
            if objects.contains_key(&key) {
                return Err(s3_error!(PreconditionFailed));
            }
            objects.insert(key, object);
        }
        self.fail().await?;
        Ok(S3Response::new(dto::PutObjectOutput::default()))
    }

    async fn get_object(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        self.fail().await?;
        let object = self.0.objects().get(&request.input.key).cloned();
        let object = object.ok_or_else(|| s3_error!(NoSuchKey))?;
        let output = dto::GetObjectOutput {
            content_length: i64::try_from(object.bytes.len()).ok(),
            body: Some(s3s::Body::from(object.bytes).into()),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<dto::ListObjectsV2Input>,
    ) -> S3Result<S3Response<dto::ListObjectsV2Output>> {
        self.fail().await?;
        let input = request.input;
        let (prefix, after) = (
            input.prefix.unwrap_or_default(),
            input.start_after.unwrap_or_default(),
        );
        let most = usize::try_from(input.max_keys.unwrap_or(PAGE).min(PAGE)).unwrap_or_default();
        let mut names: Vec<String> = self.0.objects().keys().cloned().collect();
        names.retain(|name| name.starts_with(&prefix) && *name > after);
        let more = names.len() > most;
        names.truncate(most);
        let contents = names.into_iter().map(|name| dto::Object {
            key: Some(name),
            ..Default::default()
        });
        let output = dto::ListObjectsV2Output {
            contents: Some(contents.collect()),
            is_truncated: Some(more),
            next_continuation_token: more.then(|| "next".to_owned()),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }
}
