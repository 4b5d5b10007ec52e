//! The conversions that are served, by their paths, and what they may take.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Limits,
    capacity::{Capacity, Share},
};
use crate::conversion::Conversion;

/// How long a conversion waits for each kind of memory.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// An API server waits for 30 s for a conversion; it gets an answer before it gives up.
pub(super) const LIMIT: Duration = Duration::from_secs(27);

pub(super) struct Served {
    pub(super) conversion: Conversion,
    pub(super) definition: Arc<str>,
}

/// The conversions by their paths. What they may take is theirs alone: who reads an object waits for no
/// review, which may itself wait for somebody to read it.
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

    pub(super) fn at(&self, path: &str) -> Option<&Served> {
        self.served.get(path)
    }
}
