//! The features of an API server that depend on its version, for tests that depend on them. See
//! docs/reference/kubernetes.md.

use anyhow::Result;

use crate::cluster::Cluster;
use crate::components::FORWARDS_UIDS;
use crate::kubernetes::minor;

/// The first minor version with `pods/resize`.
const RESIZES_PODS: u32 = 33;

impl Cluster {
    /// Checks whether the API server passes the UID of a user on to the servers behind it, as Kubernetes does from
    /// 1.33 on.
    ///
    /// # Errors
    ///
    /// Fails when the version of the API server cannot be read.
    pub fn forwards_uids(&self) -> Result<bool> {
        Ok(minor(self.version())? >= FORWARDS_UIDS)
    }

    /// Checks whether the API server has `pods/resize`, as Kubernetes has from 1.33 on.
    ///
    /// # Errors
    ///
    /// Fails when the version of the API server cannot be read.
    pub fn resizes_pods(&self) -> Result<bool> {
        Ok(minor(self.version())? >= RESIZES_PODS)
    }
}
