//! The gate's flags. Flags that the operator and the webhook also have use the same names.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use oz_api::duration::wait;
use oz_api::names;
use oz_audit::{AuditArgs, SealKeyArgs};
use oz_core::gate::GateAccount;
use oz_recording::age::{KeyError, MAX_RECIPIENTS, Recipient};
use oz_runtime::{Address, Common};

use crate::spool::{SpoolMeters, SpoolOptions};
use crate::storage::{S3Args, Storage};

/// The number of characters of an invalid recipient that an error quotes.
const SHOWN: usize = 80;

/// Opens sessions to the pods of grants, through the API server, and ends them with the grant.
#[derive(Clone, Debug, Parser)]
// The last value of a repeated flag applies: charts and manifests append flags.
#[command(name = names::GATE, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Address to serve the API server on, as IP:PORT or :PORT.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Address to serve /healthz, /readyz and /metrics on, as IP:PORT or :PORT; 0 to serve none of them.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Name of the Service, in oz's namespace, that the APIService names; the certificate is for this name.
    #[arg(long, default_value = names::GATE, value_name = "NAME")]
    pub(crate) service_name: String,

    /// Name of the gate's service account, in oz's namespace.
    #[arg(long, default_value = names::GATE, value_name = "NAME")]
    service_account: String,

    /// Maximum number of open sessions of all users.
    #[arg(long, default_value_t = 500, value_name = "COUNT")]
    pub(crate) max_sessions: usize,

    /// Maximum number of open sessions of one user. Each connection to a forwarded port counts as one.
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub(crate) max_sessions_per_user: usize,

    #[command(flatten)]
    pub(crate) seal_keys: SealKeyArgs,

    #[command(flatten)]
    pub(crate) audit: AuditArgs,

    #[command(flatten)]
    pub(crate) recording: RecordingArgs,

    /// Maximum time for which sessions continue after a signal.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = wait)]
    pub(crate) session_drain: Duration,

    /// Time after a signal in which sessions are still opened, since the API server does not know at once that the
    /// process stops. The process does not stop before.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = wait)]
    pub(crate) drain: Duration,
}

impl Args {
    /// Returns the names for which the certificate is valid.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        let (name, namespace) = (&self.service_name, &self.common.namespace);
        vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    }

    /// Returns the account with which sessions are opened.
    pub(crate) fn account(&self) -> GateAccount {
        GateAccount {
            namespace: self.common.namespace.clone(),
            name: self.service_account.clone(),
        }
    }
}

/// The flags for recordings of sessions.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recordings")]
pub(crate) struct RecordingArgs {
    /// Store of the recordings of sessions: s3://BUCKET/PREFIX or file:///DIRECTORY. Without it, no session is
    /// recorded.
    #[arg(
        long = "recordings",
        id = "recordings",
        value_name = "URL",
        requires = "spool"
    )]
    url: Option<String>,

    #[command(flatten)]
    s3: S3Args,

    /// Directory that holds recordings until they are stored. No other process may use it.
    #[arg(long = "recording-spool", value_name = "DIRECTORY", id = "spool")]
    spool: Option<PathBuf>,

    /// Maximum size of the recordings in this directory. When it is full, nothing is recorded. When recordings of one
    /// user take an eighth of it, the user's sessions are slowed down until some are stored.
    #[arg(
        long = "recording-spool-bytes",
        default_value_t = 1 << 30,
        value_name = "BYTES",
        value_parser = clap::value_parser!(u64).range(16 << 20..)
    )]
    spool_bytes: u64,

    /// Recipients of the encryption of recordings: public keys of age (age1…), up to 16. Only their identities can then
    /// play the recordings.
    // Parsed later: an error does not quote an identity that was given by mistake.
    #[arg(
        long = "recording-recipients",
        id = "recipients",
        value_delimiter = ',',
        value_name = "RECIPIENTS",
        requires = "recordings"
    )]
    recipients: Vec<String>,
}

impl RecordingArgs {
    /// Returns the spool and the store of recordings; `None` if no session is recorded.
    ///
    /// # Errors
    /// When recordings cannot be stored in the given place, or a recipient is not valid.
    pub(crate) fn open(
        &self,
        meters: &SpoolMeters,
    ) -> anyhow::Result<Option<(SpoolOptions, Storage)>> {
        let (Some(url), Some(directory)) = (&self.url, &self.spool) else {
            return Ok(None);
        };
        let options = SpoolOptions {
            directory: directory.clone(),
            limit: self.spool_bytes,
            recipients: self.recipients()?,
            meters: meters.clone(),
        };
        Ok(Some((options, Storage::new(url, &self.s3)?)))
    }

    /// Returns the recipients, each once.
    fn recipients(&self) -> anyhow::Result<Vec<Recipient>> {
        let mut recipients: Vec<Recipient> = Vec::new();
        for (text, number) in self.recipients.iter().zip(1..) {
            let recipient = match text.parse() {
                Ok(recipient) => recipient,
                // The value may be secret.
                Err(why @ KeyError::Secret) => {
                    bail!("--recording-recipients: value {number} is no recipient: {why}")
                }
                Err(why) => bail!(
                    "--recording-recipients: value {number}, {:?}, is no recipient: {why}; `age-keygen -y FILE` shows \
                     the recipient of an identity",
                    text.chars().take(SHOWN).collect::<String>()
                ),
            };
            if !recipients.contains(&recipient) {
                recipients.push(recipient);
            }
        }
        if recipients.len() > MAX_RECIPIENTS {
            bail!(
                "--recording-recipients: there are {}, and {MAX_RECIPIENTS} are the most; have several people share one \
                 identity, or encrypt it to them",
                recipients.len()
            );
        }
        Ok(recipients)
    }
}

#[cfg(test)]
mod tests {
    use oz_recording::age::Identity;

    use super::*;

    #[test]
    fn recordings_need_a_spool() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("--recordings=file://{}/store", directory.path().display());
        let spool = format!("--recording-spool={}", directory.path().display());
        let parse =
            |flags: &[&str]| Args::try_parse_from([&["oz-gate", "--namespace=oz"], flags].concat());
        let open = |flags: &[&str]| {
            let opened = parse(flags)
                .unwrap()
                .recording
                .open(&SpoolMeters::default());
            opened.unwrap()
        };
        assert!(open(&[]).is_none());
        assert!(open(&[&spool]).is_none());
        assert!(parse(&[&url]).is_err());
        let (options, _) = open(&[&url, &spool]).unwrap();
        assert_eq!(options.limit, 1 << 30);
        assert!(parse(&[&url, &spool, "--recording-spool-bytes=1000"]).is_err());
    }

    #[test]
    fn recipients_are_read_and_those_that_are_none_keep_the_gate_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("--recordings=file://{}/store", directory.path().display());
        let spool = format!("--recording-spool={}", directory.path().display());
        let open = |recipients: &[String]| {
            let flags: Vec<String> = recipients
                .iter()
                .map(|one| format!("--recording-recipients={one}"))
                .collect();
            let mut all = vec!["oz-gate", "--namespace=oz", &url, &spool];
            all.extend(flags.iter().map(String::as_str));
            let args = Args::try_parse_from(all).unwrap();
            let opened = args.recording.open(&SpoolMeters::default());
            opened.map(|opened| opened.unwrap().0.recipients)
        };
        let keys: Vec<_> = (0..17).map(|_| Identity::generate().unwrap()).collect();
        let texts: Vec<String> = keys
            .iter()
            .map(|key| key.0.recipient().to_string())
            .collect();
        assert_eq!(open(&[]).unwrap(), []);
        let two = [keys[0].0.recipient(), keys[1].0.recipient()];
        assert_eq!(open(&texts[..2]).unwrap(), two);
        assert_eq!(open(&[texts[..2].join(",")]).unwrap(), two);
        let twice = [texts[0].clone(), texts[1].clone(), texts[0].clone()];
        assert_eq!(open(&twice).unwrap(), two, "each is counted once");
        assert_eq!(open(&texts[..16]).unwrap().len(), 16);
        let refused = |recipients: &[String]| open(recipients).unwrap_err().to_string();
        assert!(refused(&texts).contains("there are 17"));
        let cut = refused(&[texts[0].clone(), texts[1][..50].to_owned()]);
        assert!(
            cut.contains("value 2, \"age1") && cut.contains("checksum"),
            "{cut}"
        );
        let other = refused(&["ssh-ed25519 AAAA".to_owned()]);
        assert!(other.contains("kind ssh-ed25519"), "{other}");
        assert!(refused(&[String::new()]).contains("value 1"));
        let secret = refused(&[keys[0].1.to_string()]);
        assert!(
            secret.contains("secret") && !secret.contains(&keys[0].1[20..]),
            "{secret}"
        );
        let alone = ["oz-gate", "--namespace=oz", "--recording-recipients=age1"];
        assert!(Args::try_parse_from(alone).is_err());
    }

    #[test]
    fn certificate_and_account_are_of_the_namespace_that_the_gate_runs_in() {
        let flags = [
            "oz-gate",
            "--namespace=oz",
            "--service-name=team-oz-gate",
            "--service-account=team-gate",
        ];
        let args = Args::try_parse_from(flags).unwrap();
        assert_eq!(
            args.certificate_names(),
            ["team-oz-gate.oz.svc", "team-oz-gate.oz.svc.cluster.local"]
        );
        assert_eq!(args.account().to_string(), "oz/team-gate");
        assert!(Args::try_parse_from(["oz-gate", "--session-drain=-1s"]).is_err());
    }
}
