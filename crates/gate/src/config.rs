//! The names in the gate's certificate, and its recordings, by the configuration.

use std::path::Path;

use anyhow::bail;
use oz_config::{Component, OzConfiguration, Recordings};
use oz_outbound::Proxies;
use oz_recording::age::{KeyError, MAX_RECIPIENTS, Recipient};

use crate::spool::{SpoolMeters, SpoolOptions};
use crate::storage::{S3Options, Storage};

/// The number of characters of an invalid recipient that an error quotes.
const SHOWN: usize = 80;

/// Returns the names for which the certificate of a gate in `namespace` is valid.
pub(crate) fn certificate_names(config: &OzConfiguration, namespace: &str) -> Vec<String> {
    let name = config.installation.component_name(Component::Gate.name());
    vec![
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
    ]
}

/// Returns the spool and the store of recordings, with Secrets in a directory and through these proxies; `None` if no session is recorded.
///
/// # Errors
/// When recordings cannot be stored in the given place, or a recipient is not valid.
pub(crate) fn open(
    recordings: &Recordings,
    secrets: &Path,
    proxies: &Proxies,
    meters: &SpoolMeters,
) -> anyhow::Result<Option<(SpoolOptions, Storage)>> {
    let recipients = recipients(&recordings.recipients)?;
    if recordings.url.is_empty() {
        return Ok(None);
    }
    let options = SpoolOptions {
        directory: recordings.spool.directory.clone(),
        limit: recordings.spool.mebibytes.get() << 20,
        recipients,
        meters: meters.clone(),
    };
    let s3 = S3Options::new(recordings, secrets, proxies);
    Ok(Some((options, Storage::new(&recordings.url, &s3)?)))
}

/// Returns the recipients, each once.
fn recipients(texts: &[String]) -> anyhow::Result<Vec<Recipient>> {
    let mut recipients: Vec<Recipient> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let at = format!("invalid configuration: gate.recordings.recipients[{number}]");
        let recipient = match text.parse() {
            Ok(recipient) => recipient,
            // The value may be secret.
            Err(why @ KeyError::Secret) => bail!("{at} is not a recipient: {why}"),
            Err(why) => bail!(
                "{at}, {:?}, is not a recipient: {why}; `age-keygen -y FILE` prints the recipient \
                    of an identity",
                text.chars().take(SHOWN).collect::<String>()
            ),
        };
        if !recipients.contains(&recipient) {
            recipients.push(recipient);
        }
    }
    if recipients.len() > MAX_RECIPIENTS {
        bail!(
            "invalid configuration: gate.recordings.recipients: there are {}, and the maximum is \
             {MAX_RECIPIENTS}; let several auditors share one identity, or encrypt the identity to \
             them",
            recipients.len()
        );
    }
    Ok(recipients)
}

#[cfg(test)]
mod tests {
    use oz_recording::age::Identity;

    use super::*;

    /// Returns recordings in a temporary directory.
    fn stored(directory: &Path) -> Recordings {
        let mut recordings = Recordings {
            url: format!("file://{}/store", directory.display()),
            ..Recordings::default()
        };
        recordings.spool.directory = directory.to_owned();
        recordings
    }

    #[test]
    fn no_session_is_recorded_without_url() {
        let directory = tempfile::tempdir().unwrap();
        let secrets = Path::new("/etc/oz");
        let (proxies, meters) = (Proxies::default(), SpoolMeters::default());
        let without = open(&Recordings::default(), secrets, &proxies, &meters);
        assert!(without.unwrap().is_none());
        let (options, _) = open(&stored(directory.path()), secrets, &proxies, &meters)
            .unwrap()
            .unwrap();
        assert_eq!(options.limit, 1 << 30);
    }

    #[test]
    fn invalid_recipient_stops_start_without_quoting_secret() {
        let directory = tempfile::tempdir().unwrap();
        let open = |recipients: &[String]| {
            let mut recordings = stored(directory.path());
            recordings.recipients = recipients.to_vec();
            let (proxies, meters) = (Proxies::default(), SpoolMeters::default());
            let opened = open(&recordings, Path::new("/etc/oz"), &proxies, &meters);
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
        let twice = [texts[0].clone(), texts[1].clone(), texts[0].clone()];
        assert_eq!(open(&twice).unwrap(), two, "each is counted once");
        assert_eq!(open(&texts[..16]).unwrap().len(), 16);
        let refused = |recipients: &[String]| open(recipients).unwrap_err().to_string();
        assert!(refused(&texts).contains("there are 17"));
        let cut = refused(&[texts[0].clone(), texts[1][..50].to_owned()]);
        assert!(
            cut.contains("recipients[1], \"age1") && cut.contains("checksum"),
            "{cut}"
        );
        let other = refused(&["ssh-ed25519 AAAA".to_owned()]);
        assert!(other.contains("kind ssh-ed25519"), "{other}");
        assert!(refused(&[String::new()]).contains("recipients[0]"));
        let secret = refused(&[keys[0].1.to_string()]);
        assert!(
            secret.contains("secret") && !secret.contains(&keys[0].1[20..]),
            "{secret}"
        );
    }

    #[test]
    fn certificate_and_account_are_of_namespace_of_gate() {
        let mut config = OzConfiguration::default();
        config.installation.name = "team-oz".to_owned();
        assert_eq!(
            certificate_names(&config, "oz"),
            ["team-oz-gate.oz.svc", "team-oz-gate.oz.svc.cluster.local"]
        );
        assert_eq!(config.gate_account("oz").to_string(), "oz/team-oz-gate");
    }
}
