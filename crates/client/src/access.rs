//! The access of a granted request.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use oz_api::RequestStatus;
use oz_core::access::emergency;
use oz_core::kinds::{AccessRequest, AccessTemplate};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::names;
use crate::request::{self, Ask, Clock};

/// The usable access of a granted request.
#[derive(Clone, Debug)]
pub struct Access {
    /// Name of the request.
    pub request: String,
    /// The pod.
    pub pod: String,
    /// The container, if the access is for a particular one.
    pub container: Option<String>,
    /// The expiry of the access.
    pub until: Option<Timestamp>,
    /// The message of the template about the use of the access, if it has one.
    pub message: Option<String>,
    /// The API server's time.
    pub clock: Clock,
    /// True if the access leads through the gate.
    gate: bool,
}

/// The reason why the access of a request cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The request cannot be read, or is not ready.
    #[error(transparent)]
    Request(#[from] Failure),
    /// The request names no pod.
    #[error("request {0} is ready, but names no pod")]
    NoPod(String),
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Request(failure) => failure,
            error @ AccessError::NoPod(_) => Self::new(error.to_string()).next(
                "the cluster runs another version of oz than ozctl supports: `ozctl doctor` \
                    compares them",
            ),
        }
    }
}

/// An expiry sooner than the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortened {
    /// The expiry.
    pub until: Timestamp,
    /// The template.
    pub template: String,
    /// The longest duration that the template allows.
    pub most: String,
}

impl Access {
    /// Returns the access of a request that is ready.
    ///
    /// # Errors
    /// The status names no pod.
    pub fn new(
        request: &str,
        status: RequestStatus,
        container: Option<String>,
        clock: Clock,
    ) -> Result<Self, AccessError> {
        let no_pod = || AccessError::NoPod(request.to_owned());
        let pod = status.pod_name.ok_or_else(no_pod)?;
        Ok(Self {
            request: request.to_owned(),
            pod,
            container,
            until: status.expires_at,
            message: status.access_message,
            clock,
            gate: status.gate,
        })
    }

    /// Returns the access of an existing request, in the container that it names if `container` names none.
    ///
    /// # Errors
    /// The request does not exist, or is not ready.
    pub async fn existing<R: AccessRequest>(
        cluster: &Cluster,
        name: &str,
        container: Option<&str>,
    ) -> Result<Self, AccessError> {
        let api = cluster.api::<R>();
        let found = cluster.answer(api.get(names::checked(name)?));
        let found: R = found
            .await
            .map_err(|failure| match failure.is_not_found() {
                true => failure.next("`ozctl requests` lists the existing requests"),
                false => failure,
            })?;
        let status = request::status(&found);
        if !status.ready {
            return Err(request::over(name, &status).into());
        }
        let container = container.map(str::to_owned);
        let container = container.or_else(|| Ask::from_request(&found).container);
        let clock = Clock::of_server(cluster).await;
        Self::new(name, status, container, clock)
    }

    /// Checks whether the access expires sooner than the request, created at `created`, asked for.
    pub fn shortened<T: AccessTemplate>(
        &self,
        created: Option<Timestamp>,
        asked: Option<&str>,
        emergency: bool,
        template: &T,
    ) -> Option<Shortened> {
        let until = self.until?;
        let asked = SignedDuration::try_from(request::go_duration(asked?)?).ok()?;
        let wanted = created?.checked_add(asked).unwrap_or(Timestamp::MAX);
        let config = template.config();
        let longest = config.max_duration.parse().ok()?;
        let most = match emergency {
            true => emergency::longest(config, true, longest).to_string(),
            false => config.max_duration.clone(),
        };
        (wanted > until).then(|| Shortened {
            until,
            template: template.name().to_owned(),
            most,
        })
    }

    /// Returns the cluster with the route to the pod: through the gate if the access requires it.
    #[must_use]
    pub fn reached(&self, cluster: &Cluster) -> Cluster {
        match self.gate {
            true => cluster.through_gate(&self.request),
            false => cluster.clone(),
        }
    }

    /// Returns the remaining time of the access.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.until.map(|until| self.clock.left(until))
    }
}
