//! The extra attributes of a requester as access policies read them: those in the stamp of an existing object, and
//! otherwise those that the webhook would stamp now.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_core::access::decide::Rule;
use oz_core::access::denial::Denial;
use oz_core::access::extra::{Extra, ExtraTooLarge, TOO_LARGE};
use oz_core::access::stamp;

use super::operator::{Configured, Source};

/// The extra attributes, or the reason why there are none here.
pub type Known = Result<Extra, NoExtra>;

/// The reason why the extra attributes of a requester are not known, or not stamped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExtra {
    /// The user could not read the configuration.
    #[error("the configuration, which names the keys, is not known: {0}")]
    Configuration(String),
    /// The requester is another user.
    #[error("only the API server knows the extra attributes of another user")]
    AnotherUser,
    /// The webhook would deny the request.
    #[error(transparent)]
    TooLarge(#[from] ExtraTooLarge),
}

/// Returns the extra attributes that the webhook would stamp. `all` are those of the requester, if they are known.
///
/// # Errors
/// The reason why they are not known, or not stamped.
pub fn selected(configured: &Configured, all: Option<&Extra>) -> Known {
    if let Source::Defaults(why) = &configured.source {
        return Err(NoExtra::Configuration(why.clone()));
    }
    let keys = configured.config.extra_keys();
    if keys.is_empty() {
        return Ok(Extra::new());
    }
    let all = all.ok_or(NoExtra::AnotherUser)?;
    Ok(keys.select(all)?)
}

/// Returns the extra attributes in the stamp of an object. Only the operator can verify the stamp.
pub fn sealed(metadata: &ObjectMeta) -> Extra {
    let stamp = stamp::parse_unverified(metadata);
    stamp.into_iter().flat_map(|stamp| stamp.extra).collect()
}

/// Returns the failed rule if the webhook would deny the request because of its requester's extra attributes.
pub(super) fn denied(extra: &Known) -> Option<Rule> {
    let Err(NoExtra::TooLarge(why)) = extra else {
        return None;
    };
    Some(Rule {
        name: "extra attributes",
        verdict: Err(Denial::new(TOO_LARGE, why.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use oz_config::OzConfiguration;

    use super::*;

    fn configured(keys: &[&str], source: Source) -> Configured {
        let mut config = OzConfiguration::default();
        let keys = keys.iter().map(|key| oz_config::Text(key.parse().unwrap()));
        config.webhook.requester_extra = keys.collect();
        Configured {
            settings: config.settings("oz-system"),
            config,
            source,
        }
    }

    #[test]
    fn unreadable_attributes_are_not_assumed_absent() {
        let all = Extra::from([
            ("acr".to_owned(), vec!["mfa".to_owned()]),
            ("token".to_owned(), vec!["secret".to_owned()]),
        ]);
        let acr = Extra::from([("acr".to_owned(), vec!["mfa".to_owned()])]);
        let map = || Source::ConfigMap("oz-system/oz".to_owned());
        let large = Extra::from([("acr".to_owned(), vec!["x".repeat(4096)])]);
        let unread = || Source::Defaults("alice may not list configmaps".to_owned());
        let unknown = NoExtra::Configuration("alice may not list configmaps".to_owned());
        for (keys, source, all, expected) in [
            (&["acr"][..], map(), Some(&all), Ok(acr)),
            (&["acr"], map(), None, Err(NoExtra::AnotherUser)),
            (&[], map(), None, Ok(Extra::new())),
            (&[], map(), Some(&large), Ok(Extra::new())),
            (&[], unread(), Some(&all), Err(unknown.clone())),
            (&[], unread(), None, Err(unknown)),
        ] {
            let found = selected(&configured(keys, source), all);
            assert_eq!(found, expected, "{keys:?}");
            assert!(denied(&found).is_none(), "{keys:?}");
        }
        let found = selected(&configured(&["acr"], map()), Some(&large));
        let rule = denied(&found).unwrap();
        assert_eq!(rule.verdict.unwrap_err().reason, TOO_LARGE);
    }
}
