//! The flags for a bucket.

use std::path::PathBuf;

/// The flags of the [module](self).
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct S3Args {
    /// Server of the bucket, as a URL; Amazon's of the region by default.
    #[arg(
        long = "recordings-endpoint",
        value_name = "URL",
        requires = "recordings"
    )]
    pub(super) endpoint: Option<String>,

    /// Region of the bucket.
    #[arg(
        long = "recordings-region",
        default_value = "us-east-1",
        value_name = "REGION"
    )]
    pub(super) region: String,

    /// Put the bucket into the path of URLs, not into their host, as most servers other than Amazon's require.
    #[arg(long = "recordings-path-style", requires = "recordings")]
    pub(super) path_style: bool,

    /// Directory with the files access-key-id and secret-access-key, and session-token if there is one; read for each
    /// call.
    #[arg(
        long = "recordings-credentials",
        id = "recordings_credentials",
        value_name = "DIRECTORY",
        requires = "recordings"
    )]
    pub(super) credentials: Option<PathBuf>,

    /// Role for the credentials, as its server names it (ARN): the token of --recordings-web-identity-token is
    /// exchanged for them. Replaces --recordings-credentials.
    #[arg(
        long = "recordings-role",
        value_name = "ROLE",
        requires = "recordings_token",
        conflicts_with = "recordings_credentials"
    )]
    pub(super) role: Option<String>,

    /// File with a token of the pod's service account, with an audience that the server of --recordings-sts-endpoint
    /// accepts.
    #[arg(
        long = "recordings-web-identity-token",
        id = "recordings_token",
        value_name = "FILE",
        requires = "recordings"
    )]
    pub(super) web_identity_token: Option<PathBuf>,

    /// Server that exchanges tokens for credentials (STS), as a URL; Amazon's of the region by default.
    #[arg(
        long = "recordings-sts-endpoint",
        value_name = "URL",
        requires = "recordings"
    )]
    pub(super) sts_endpoint: Option<String>,

    /// CA bundle (PEM) to verify the server of the bucket, and the server of --recordings-sts-endpoint.
    #[arg(long = "recordings-ca", value_name = "FILE", requires = "recordings")]
    pub(super) ca: Option<PathBuf>,

    /// Number of days for which no user can delete stored recordings, including the bucket's owner (Object Lock, mode
    /// COMPLIANCE). The bucket must have Object Lock.
    #[arg(
        long = "recordings-retention",
        value_name = "DAYS",
        requires = "recordings",
        value_parser = clap::value_parser!(u32).range(1..=36_500)
    )]
    pub(super) retention: Option<u32>,
}

impl S3Args {
    pub(super) fn endpoint(&self) -> String {
        let amazon = || format!("https://s3.{}.amazonaws.com", self.region);
        self.endpoint.clone().unwrap_or_else(amazon)
    }

    pub(super) fn sts_endpoint(&self) -> String {
        let amazon = || format!("https://sts.{}.amazonaws.com/", self.region);
        self.sts_endpoint.clone().unwrap_or_else(amazon)
    }
}
