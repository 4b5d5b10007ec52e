//! The errors of upkeep.

use std::time::Duration;

use crate::{
    certificate::{authority::Error as CertificateError, store},
    registration::apply,
    rules::MAX_RULES,
};

/// The reason for which certificate or registration are not as declared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// An error of the stored authority.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// An error of a certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// An error of the registration.
    #[error(transparent)]
    Registration(#[from] apply::Error),
    /// The API server did not respond.
    #[error("failed to receive a response of the API server within {0:?}")]
    TimedOut(Duration),
    /// A hook follows more rules than a configuration can hold.
    #[error(
        "failed to use the rules of hook {0}: there are more than {MAX_RULES}; its registration \
            does not change"
    )]
    TooManyRules(String),
    /// The rules of a hook are not known yet.
    #[error(
        "failed to register hook {0}: its rules are not known yet; only a running process follows \
            rules"
    )]
    RulesUnknown(String),
    /// The supplied Secret cannot be read.
    #[error("failed to read Secret {namespace}/{name}")]
    Supplied {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
        /// The error of the call.
        source: Box<kube::Error>,
    },
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use oz_runtime::{ClientError, RuntimeError, with_causes};

    use super::*;
    use crate::manager::run::Error as RunError;

    fn refused() -> Box<kube::Error> {
        let status = Status::failure("maps are forbidden", "Forbidden").with_code(403);
        Box::new(kube::Error::Api(status.boxed()))
    }

    /// Returns one error of each variant that has a source, for every error type of the library.
    fn all() -> Vec<Box<dyn std::error::Error>> {
        let (namespace, name) = ("home".to_owned(), "hooks".to_owned());
        let json = || serde_json::from_str::<u8>("x").unwrap_err();
        let tls = || rustls::Error::General("no such curve".to_owned());
        let store = store::Error::Api {
            verb: "get",
            namespace: namespace.clone(),
            name: name.clone(),
            source: refused(),
        };
        let registration = apply::Error::Api {
            verb: "apply",
            kind: "ValidatingWebhookConfiguration",
            name: name.clone(),
            source: refused(),
        };
        let listen = RuntimeError::Listen {
            address: "0.0.0.0:1".to_owned(),
            error: std::io::Error::other("it is taken"),
        };
        let task = RuntimeError::Task {
            name: "count".into(),
            error: "nothing to count".into(),
        };
        let time = "never".parse::<jiff::Timestamp>().unwrap_err();
        let certificate = CertificateError::Make(rcgen::Error::CouldNotParseCertificate.into());
        vec![
            Box::new(UpkeepError::Store(store)),
            Box::new(UpkeepError::Store(store::Error::Authority(certificate))),
            Box::new(UpkeepError::Certificate(CertificateError::Key(tls()))),
            Box::new(UpkeepError::Certificate(CertificateError::Time(time))),
            Box::new(UpkeepError::Registration(registration)),
            Box::new(apply::Error::Serialise(json())),
            Box::new(UpkeepError::Supplied {
                namespace,
                name,
                source: refused(),
            }),
            Box::new(RunError::Tls(tls())),
            Box::new(RunError::Runtime(listen)),
            Box::new(RunError::Runtime(task)),
            Box::new(ClientError::Build(*refused())),
            Box::new(crate::envelope::Error::Decode {
                kind: "AdmissionReview",
                source: json(),
            }),
        ]
    }

    #[test]
    fn an_error_leaves_what_its_source_says_to_its_source() {
        for error in all() {
            let mut source = error.source();
            assert!(source.is_some(), "{error} has no source");
            while let Some(cause) = source {
                let (said, cause_says) = (error.to_string(), cause.to_string());
                assert!(!said.contains(&cause_says), "{said} says {cause_says}");
                source = cause.source();
            }
            let (said, all) = (error.to_string(), with_causes(error.as_ref()));
            let causes = all
                .strip_prefix(&said)
                .and_then(|rest| rest.strip_prefix(": "));
            let causes = causes.unwrap_or_else(|| panic!("{all} does not begin with {said}"));
            for cause in causes.split(": ") {
                assert_eq!(all.matches(cause).count(), 1, "{all} says {cause} twice");
            }
        }
    }
}
