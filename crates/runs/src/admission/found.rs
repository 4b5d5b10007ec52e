//! The violations found so far, and the checks that more than one kind needs.

use oz_api::duration::GoDuration;
use oz_core::validate::Violation;

use crate::template::positive;
use oz_api::harness::Hosts;

#[derive(Default)]
pub(super) struct Found(pub(super) Vec<Violation>);

impl Found {
    pub(super) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation::new(field, message));
    }

    pub(super) fn value(
        &mut self,
        field: impl Into<String>,
        message: impl ToString,
        value: impl ToString,
    ) {
        let (message, value) = (message.to_string(), value.to_string());
        self.0.push(Violation::of_value(field, message, value));
    }

    /// Reads a duration that must be positive.
    pub(super) fn duration(&mut self, field: &str, text: Option<&String>) -> Option<GoDuration> {
        positive(&mut self.0, field, text.cloned())
    }

    /// Reads a host outside the cluster, or all hosts below a domain.
    pub(super) fn hosts(&mut self, field: &str, text: &str) -> Option<Hosts> {
        match text.parse() {
            Ok(hosts) => return Some(hosts),
            Err(error) => self.value(field, format!("{error}"), text),
        }
        None
    }

    pub(super) fn ports(&mut self, field: &str, ports: &[i32]) {
        for (number, port) in ports.iter().enumerate() {
            if !(0..=65_535).contains(port) {
                let message = "must be from 0 to 65535, where 0 is any port";
                self.value(format!("{field}[{number}]"), message, port);
            }
        }
    }

    /// Checks that each of these occurs once.
    pub(super) fn once<'a>(&mut self, field: &str, name: &str, all: impl Iterator<Item = &'a str>) {
        let mut seen: Vec<&str> = Vec::new();
        for (number, one) in all.enumerate() {
            if seen.contains(&one) {
                self.value(
                    format!("{field}[{number}].{name}"),
                    "must be the only one",
                    one,
                );
            }
            seen.push(one);
        }
    }

    /// Checks the name of an environment variable.
    pub(super) fn variable(&mut self, field: &str, name: &str) {
        let mut bytes = name.bytes();
        let starts = bytes
            .next()
            .is_some_and(|byte| byte == b'_' || byte.is_ascii_alphabetic());
        if !starts || !bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
            let message = "must be the name of an environment variable: letters, digits and _, no digit first";
            self.value(field, message, name);
        }
        if crate::reserved::is_variable(name) {
            self.value(field, "is set by oz alone", name);
        }
    }

    /// Checks that the author accepted a risk, with a reason.
    pub(super) fn accepted(&mut self, field: &str, accepted: bool, reason: &str) {
        if !accepted {
            self.add(
                format!("{field}.accepted"),
                "must be true: leave the field out otherwise",
            );
        }
        if !(20..=500).contains(&reason.trim().chars().count()) {
            self.add(
                format!("{field}.reason"),
                "must have 20 to 500 letters, spaces at its ends apart",
            );
        }
    }
}
