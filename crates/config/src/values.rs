//! The types of single values. Each rejects what the component that uses it could not use, when the configuration is
//! read.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use oz_api::duration::{GoDuration, not_negative, positive};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The pattern of durations, such as `1h30m`.
const DURATION: &str = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$";
/// The pattern of names of namespaces, and of other labels of DNS.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The pattern of names of most objects.
pub(crate) const SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
/// The pattern of URLs that may be empty.
pub(crate) const URL: &str = "^$|^https?://[^ ]+$";
/// The pattern of names of keys in Secrets that may be empty.
pub(crate) const KEY: &str = "^[-._a-zA-Z0-9]*$";

/// A value that is written as text, such as the name of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// A number from a minimum to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Number<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    /// Creates a default.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of objects in memory.
    #[must_use]
    pub fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        match (MIN..=MAX).contains(&number) {
            true => Ok(Self(number)),
            false => Err(D::Error::custom(format!("must be {MIN} to {MAX}"))),
        }
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Number<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A duration that is longer than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positive(pub SignedDuration);

/// A duration that may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNegative(pub SignedDuration);

/// A duration from zero to a maximum, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost<const SECONDS: i64>(pub SignedDuration);

impl Positive {
    /// Creates a duration of that many seconds.
    pub(crate) const fn seconds(seconds: i64) -> Self {
        Self(SignedDuration::from_secs(seconds))
    }
}

impl NotNegative {
    /// Creates a duration of that many seconds.
    pub(crate) const fn seconds(seconds: i64) -> Self {
        Self(SignedDuration::from_secs(seconds))
    }

    /// Returns the duration of a wait.
    #[must_use]
    pub const fn wait(self) -> Duration {
        self.0.unsigned_abs()
    }
}

impl<const SECONDS: i64> AtMost<SECONDS> {
    /// Returns the duration of a wait.
    #[must_use]
    pub const fn wait(self) -> Duration {
        self.0.unsigned_abs()
    }
}

/// Implements the text form of a duration.
macro_rules! duration {
    ([$($parameters:tt)*] $type:ty, $name:literal, $read:expr) => {
        impl<'de, $($parameters)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $read(&text).map_err(D::Error::custom)
            }
        }

        impl<$($parameters)*> Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                GoDuration::from(self.0).fmt(formatter)
            }
        }

        impl<$($parameters)*> Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<$($parameters)*> JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": DURATION })
            }
        }
    };
}

duration!([] Positive, "Positive", |text| positive(text).map(Self));
duration!([] NotNegative, "NotNegative", |text| not_negative(text).map(Self));
duration!([const SECONDS: i64] AtMost<SECONDS>, "AtMost", |text| {
    let duration = not_negative(text).map_err(|error| error.to_string())?;
    let maximum = SignedDuration::from_secs(SECONDS);
    match duration <= maximum {
        true => Ok(Self(duration)),
        false => Err(format!("must not be longer than {}", GoDuration::from(maximum))),
    }
});
