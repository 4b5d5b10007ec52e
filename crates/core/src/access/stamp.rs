//! The stamp of a request. The webhook stamps every request with the user that the API server authenticated, sealed
//! together with all data that identifies the request at that moment; the operator trusts no other data about the
//! requester. At mutating admission an object has no UID and no creation time, and with `generateName` no name either,
//! so the stamp binds the data that exists and [`verify`] checks the rest.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Requester, encode, labels};
use serde::{Deserialize, Serialize};

use super::denial::Denial;
use super::extra::Extra;
use super::policy::Judgement;
use crate::controller::Failure;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};

const PURPOSE: Purpose = Purpose::Stamp;
/// Reason of a stamp that was made for another object, or for another user.
const ANOTHER_REQUEST: &str = "StampOfAnotherRequest";

/// The maximum distance between the instant of the stamp and the creation time that the API server wrote: admission
/// takes at most seconds, and creation times are whole seconds.
pub const MAX_DISTANCE: SignedDuration = SignedDuration::from_secs(20);

/// The maximum length of a prefix that the API server keeps in a generated name.
const GENERATED_PREFIX: usize = 58;

/// The stamp: a requester, and the one request for which it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stamp {
    /// The requester.
    #[serde(flatten)]
    pub requester: Requester,
    /// The users who changed the object later, for kinds that other users may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Requester>,
    /// The extra attributes of the requester that the configuration names. A stamp without any is the same text as one of
    /// a release that knew none.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
    /// UID of the object, if it had one at that time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object_uid: String,
    /// Kind of the request.
    pub kind: String,
    /// Namespace of the request.
    pub namespace: String,
    /// Name, unless the API server generates it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix of the name to be generated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Digest of the defaulted spec, see [`oz_api::encode::digest`].
    pub spec_digest: String,
    /// Time at which the stamp was made.
    pub at: Timestamp,
    /// Random value; no two requests carry the same.
    pub nonce: String,
    /// The judgement of the access policies, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
}

impl Stamp {
    /// Returns the value of the annotation.
    ///
    /// # Errors
    /// Only if the stamp does not serialise, which its types rule out.
    pub fn seal(&self, keys: &Keys) -> Result<String, SealError> {
        seal::seal(keys, PURPOSE, self)
    }
}

/// The reason why a request's stamp is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// The request has no stamp.
    #[error(
        "the request has no stamp: oz's admission webhook was not called, or the request is older \
         than oz. It gives no access, and access that it gave was revoked; check that the webhook \
         is registered and running, then create the request again"
    )]
    Missing,
    /// The webhook did not make the stamp, or the stamp was changed later.
    #[error("the stamp was not made by oz's webhook ({0}); create the request again")]
    Seal(SealError),
    /// The webhook of an earlier release made the stamp, with a key that is no longer valid.
    #[error("the stamp was made by the webhook of an earlier release; create the request again")]
    Retired,
    /// No public key of the webhook is known yet.
    #[error("the stamp is not verified yet: {0}; it is when the webhook has published its keys")]
    Unverified(SealError),
    /// The stamp was made for another request.
    #[error("the stamp was made for another request: {0} differs; create the request again")]
    OtherRequest(&'static str),
    /// The stamp was made at another time than the request.
    #[error(
        "the stamp was made {0:#} away from the creation of the request; \
         check the clocks of webhook and API server, then create the request again"
    )]
    OtherTime(SignedDuration),
    /// Another request carries the same stamp.
    #[error("request {0} has the same stamp; create the request again")]
    Replayed(String),
}

impl StampError {
    /// Returns the reason for conditions, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "NotStamped",
            Self::Seal(_) => "StampForged",
            Self::Retired => "StampRetired",
            Self::Unverified(_) => "StampUnverified",
            Self::OtherRequest(_) => ANOTHER_REQUEST,
            Self::OtherTime(_) => "StampTimeMismatch",
            Self::Replayed(_) => "StampReplayed",
        }
    }
}

impl From<SealError> for StampError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Retired => Self::Retired,
            error if error.may_pass() => Self::Unverified(error),
            error => Self::Seal(error),
        }
    }
}

impl StampError {
    /// Returns the failure of an operation that needs the stamp.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Unverified(_) => Failure::transient(self.reason(), self.to_string()),
            _ => Failure::invalid(self.reason(), self.to_string()),
        }
    }
}

/// Returns the stamp as it is stored on an object.
#[must_use]
pub fn read(metadata: &ObjectMeta) -> Option<&str> {
    metadata
        .annotations
        .as_ref()?
        .get(labels::REQUESTER)
        .map(String::as_str)
}

/// Returns the content of an object's stamp without verification: for readers without a key, and never for a decision.
#[must_use]
pub fn parse_unverified(metadata: &ObjectMeta) -> Option<Stamp> {
    let text = read(metadata).filter(|text| text.len() <= seal::MAX_LENGTH)?;
    serde_json::from_str(text).ok()
}

/// Returns the flow of an object for taking turns, see [`crate::controller::Controller::flow`]: the user that the stamp
/// names. A forged stamp gains one turn at most, which precedes the check of the stamp.
#[must_use]
pub fn flow(metadata: &ObjectMeta) -> String {
    parse_unverified(metadata).map_or_else(String::new, |stamp| stamp.requester.user)
}

/// Returns the digest of the stamp as it is stored on an object, which identifies the stamp after its key is gone.
#[must_use]
pub fn digest(metadata: &ObjectMeta) -> Option<String> {
    read(metadata).map(|text| encode::digest(&text))
}

/// Returns the user who created the request of this kind, metadata and spec digest; the stamp is valid only if it was
/// sealed for this request at the time of its creation.
///
/// # Errors
/// A [`StampError`] with the reason.
pub fn verify(
    keys: &Keys,
    kind: &str,
    metadata: &ObjectMeta,
    spec_digest: &str,
) -> Result<Requester, StampError> {
    let stamp = open(keys, kind, metadata, spec_digest)?;
    Ok(stamp.requester)
}

/// Checks whether a new object was stamped for the user who creates it; `stamped` is the requester by the stamp, and `again`
/// the next step of the user, such as `create the request`.
///
/// # Errors
/// The denial: the stamp is not valid, or names another user.
pub fn is_of_creator(
    stamped: Result<&Requester, &StampError>,
    creator: &Requester,
    again: &str,
) -> Result<(), Denial> {
    let stamped = stamped.map_err(|error| Denial::new(error.reason(), error.to_string()))?;
    if stamped == creator {
        return Ok(());
    }
    let message = format!(
        "the stamp names {}, not {}; {again} again",
        stamped.user, creator.user
    );
    Err(Denial::new(ANOTHER_REQUEST, message))
}

/// Verifies like [`verify`], and returns all authors of the object's content, beginning with the user who created it.
///
/// # Errors
/// A [`StampError`] with the reason why the authors are not known.
pub fn authors(
    keys: &Keys,
    kind: &str,
    metadata: &ObjectMeta,
    spec_digest: &str,
) -> Result<Vec<Requester>, StampError> {
    let stamp = open(keys, kind, metadata, spec_digest)?;
    let first = std::iter::once(stamp.requester);
    Ok(first.chain(stamp.also).collect())
}

/// Opens the stamp of an object, if it was sealed for this object.
///
/// # Errors
/// The reason why the stamp is not valid.
pub fn open(
    keys: &Keys,
    kind: &str,
    metadata: &ObjectMeta,
    spec_digest: &str,
) -> Result<Stamp, StampError> {
    let text = read(metadata).ok_or(StampError::Missing)?;
    let stamp: Stamp = seal::open(keys, PURPOSE, text)?;
    if stamp.kind != kind {
        return Err(StampError::OtherRequest("the kind"));
    }
    // Cluster-scoped objects have no namespace.
    let namespace = Some(stamp.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    if namespace != metadata.namespace.as_deref() {
        return Err(StampError::OtherRequest("the namespace"));
    }
    if !names(&stamp, metadata) {
        return Err(StampError::OtherRequest("the name"));
    }
    if stamp.spec_digest != spec_digest {
        return Err(StampError::OtherRequest("the spec"));
    }
    if stamp.object_uid.is_empty() {
        let created = metadata.creation_timestamp.as_ref();
        let created = created.ok_or(StampError::OtherRequest("the creation time"))?;
        let distance = created.0.duration_since(stamp.at).abs();
        if distance > MAX_DISTANCE {
            return Err(StampError::OtherTime(distance));
        }
    } else if metadata.uid.as_ref() != Some(&stamp.object_uid) {
        return Err(StampError::OtherRequest("the UID"));
    }
    let mut authors = std::iter::once(&stamp.requester).chain(&stamp.also);
    if authors.any(|author| author.user.is_empty()) {
        return Err(StampError::OtherRequest("the user"));
    }
    Ok(stamp)
}

fn names(stamp: &Stamp, metadata: &ObjectMeta) -> bool {
    let Some(name) = metadata.name.as_deref() else {
        return false;
    };
    if !stamp.name.is_empty() {
        return name == stamp.name;
    }
    // The API server truncates a long prefix and adds random letters.
    let prefix: String = stamp.generate_name.chars().take(GENERATED_PREFIX).collect();
    !prefix.is_empty()
        && name.len() > prefix.len()
        && name.starts_with(&prefix)
        && metadata.generate_name.as_deref() == Some(stamp.generate_name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::controller::FailureClass;

    const CREATED: &str = "2026-01-01T12:00:00Z";

    fn keys() -> Keys {
        Keys::with_every_owner([[9; 32]])
    }

    fn stamp() -> Stamp {
        Stamp {
            requester: Requester {
                user: "alice".into(),
                uid: String::new(),
                groups: vec!["devs".into()],
            },
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "debug".into(),
            generate_name: String::new(),
            spec_digest: "sha256:1".into(),
            at: "2026-01-01T12:00:00.7Z".parse().unwrap(),
            nonce: "n".into(),
            ..Stamp::default()
        }
    }

    fn metadata(sealed: Option<String>) -> ObjectMeta {
        ObjectMeta {
            name: Some("debug".into()),
            namespace: Some("shop".into()),
            creation_timestamp: Some(Time(CREATED.parse().unwrap())),
            annotations: sealed.map(|text| BTreeMap::from([(labels::REQUESTER.to_owned(), text)])),
            ..ObjectMeta::default()
        }
    }

    fn sealed(stamp: &Stamp) -> String {
        stamp.seal(&keys()).unwrap()
    }

    fn check(stamp: &Stamp, change: impl FnOnce(&mut ObjectMeta)) -> Result<Requester, StampError> {
        let mut metadata = metadata(Some(sealed(stamp)));
        change(&mut metadata);
        verify(&keys(), "ExecAccessRequest", &metadata, "sha256:1")
    }

    #[test]
    fn stamp_names_requester_of_its_request() {
        assert_eq!(check(&stamp(), |_| ()).unwrap(), stamp().requester);
    }

    #[test]
    fn stamp_without_extra_attributes_is_as_in_earlier_releases() {
        let text = sealed(&stamp());
        let members: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = members.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "at",
                "groups",
                "kind",
                "name",
                "namespace",
                "nonce",
                "sig",
                "specDigest",
                "user"
            ]
        );
        let read = parse_unverified(&metadata(Some(text))).unwrap();
        assert!(read.extra.is_empty());
    }

    #[test]
    fn extra_attributes_are_sealed_with_the_requester() {
        let values = vec!["mfa".to_owned(), "otp".to_owned()];
        let stamp = Stamp {
            extra: Extra::from([("acr".to_owned(), values)]),
            ..stamp()
        };
        let text = sealed(&stamp);
        let open = |text: String| {
            let metadata = metadata(Some(text));
            super::open(&keys(), "ExecAccessRequest", &metadata, "sha256:1")
        };
        assert_eq!(open(text.clone()), Ok(stamp));
        let removed = text.replacen("\"extra\":{\"acr\":[\"mfa\",\"otp\"]},", "", 1);
        assert_ne!(removed, text);
        for forged in [removed, text.replacen("mfa", "pwd", 1)] {
            assert_eq!(open(forged).unwrap_err().reason(), "StampForged");
        }
    }

    #[test]
    fn a_stamp_for_anything_else_is_not_believed() {
        type Change = fn(&mut Stamp);
        let cases: [(&str, Change); 5] = [
            ("the kind", |stamp| stamp.kind = "PodAccessRequest".into()),
            ("the namespace", |stamp| stamp.namespace = "other".into()),
            ("the name", |stamp| stamp.name = "other".into()),
            ("the spec", |stamp| stamp.spec_digest = "sha256:2".into()),
            ("the user", |stamp| stamp.requester.user.clear()),
        ];
        for (what, change) in cases {
            let mut stamp = stamp();
            change(&mut stamp);
            assert_eq!(check(&stamp, |_| ()), Err(StampError::OtherRequest(what)));
        }
    }

    #[test]
    fn a_generated_name_starts_with_the_stamped_prefix() {
        let mut stamp = stamp();
        stamp.name.clear();
        stamp.generate_name = "alice-".into();
        let named = |name: &'static str, prefix: &'static str| {
            move |metadata: &mut ObjectMeta| {
                metadata.name = Some(name.to_owned());
                metadata.generate_name = Some(prefix.to_owned());
            }
        };
        assert!(check(&stamp, named("alice-x7k2p", "alice-")).is_ok());
        assert!(check(&stamp, named("alice-", "alice-")).is_err());
        assert!(check(&stamp, named("bob-x7k2p", "alice-")).is_err());
        assert!(check(&stamp, named("alice-x7k2p", "ali")).is_err());
        stamp.generate_name.clear();
        assert!(check(&stamp, named("alice-x7k2p", "")).is_err());
    }

    #[test]
    fn a_stamp_is_taken_only_near_the_creation_of_its_request() {
        let created: Timestamp = CREATED.parse().unwrap();
        for (at, believed) in [
            (created - MAX_DISTANCE, true),
            (created + MAX_DISTANCE, true),
            (
                created - MAX_DISTANCE - SignedDuration::from_nanos(1),
                false,
            ),
            (
                created + MAX_DISTANCE + SignedDuration::from_nanos(1),
                false,
            ),
        ] {
            let mut stamp = stamp();
            stamp.at = at;
            assert_eq!(check(&stamp, |_| ()).is_ok(), believed, "{at}");
        }
    }

    #[test]
    fn missing_stamp_is_distinguished_from_forged_stamp() {
        let kind = "ExecAccessRequest";
        assert_eq!(
            verify(&keys(), kind, &metadata(None), "sha256:1")
                .unwrap_err()
                .reason(),
            "NotStamped"
        );
        let forged = stamp().seal(&Keys::with_every_owner([[1; 32]])).unwrap();
        assert_eq!(
            verify(&keys(), kind, &metadata(Some(forged)), "sha256:1")
                .unwrap_err()
                .reason(),
            "StampForged"
        );
    }

    #[test]
    fn stamp_of_an_earlier_release_is_retired_and_one_without_known_keys_waits() {
        let kind = "ExecAccessRequest";
        let text = r#"{"kind":"ExecAccessRequest","mac":"AAAA","user":"alice"}"#.to_owned();
        let error = verify(&keys(), kind, &metadata(Some(text)), "sha256:1").unwrap_err();
        assert_eq!(error.failure().class, FailureClass::Invalid);
        assert_eq!(error.reason(), "StampRetired");
        assert!(error.to_string().ends_with("create the request again"));
        let metadata = metadata(Some(sealed(&stamp())));
        let error = verify(&Keys::default(), kind, &metadata, "sha256:1").unwrap_err();
        assert_eq!(error.failure().class, FailureClass::Transient);
        assert_eq!(error.reason(), "StampUnverified");
    }

    #[test]
    fn service_accounts_are_recognised_by_their_user_name() {
        let user = |name: &str| Requester {
            user: name.into(),
            ..Requester::default()
        };
        assert_eq!(
            user("system:serviceaccount:ci:deployer").service_account(),
            Some(("ci", "deployer"))
        );
        assert_eq!(user("alice").service_account(), None);
    }
}
