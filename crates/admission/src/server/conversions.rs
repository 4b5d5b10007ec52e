//! The served conversions, by their paths, and their capacity.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Limits,
    capacity::{Capacity, Share},
};
use crate::conversion::Conversion;

/// The time for which a conversion waits for each kind of memory.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// The time limit of a conversion: an API server waits for 30 s, and gets a response before its timeout.
pub(super) const LIMIT: Duration = Duration::from_secs(27);

pub(super) struct Served {
    pub(super) conversion: Conversion,
    pub(super) definition: Arc<str>,
}

/// The conversions by their paths. They have a separate capacity: a read of an object waits for no review,
/// since the review may itself wait for such a read.
pub(crate) struct Conversions {
    served: HashMap<String, Served>,
    capacity: Capacity,
}

impl Conversions {
    pub(crate) fn new(conversions: &[Conversion], limits: &Limits) -> Self {
        let served = |conversion: &Conversion| Served {
            definition: conversion.definition.as_str().into(),
            conversion: conversion.clone(),
        };
        let served = conversions
            .iter()
            .map(|conversion| (conversion.served_path(), served(conversion)));
        Self {
            served: served.collect(),
            capacity: Capacity::new(limits),
        }
    }

    pub(super) fn share(&self) -> Share<'_> {
        Share::of_all(&self.capacity)
    }

    pub(super) fn find_by_path(&self, path: &str) -> Option<&Served> {
        self.served.get(path)
    }
}
