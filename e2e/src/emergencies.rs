//! Emergencies and their reviews by users, through the API only.

use anyhow::Result;
use oz_api::{
    AccessConfig, AccessReview, EmergencyConfig, ExecAccessRequest, ExecAccessTemplate, Finding,
    ReviewConfig,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::approvals::{Person, approval_rule, approved_template};
use crate::{Scene, exec_request};

/// The plural of reviews.
pub const REVIEWS: &str = "accessreviews";

/// Returns a template that requires bob's approval, except for an emergency of the group `oncall`, which the
/// group `security` must review within `within`.
#[must_use]
pub fn emergency_template(name: &str, within: &str, open_reviews: i32) -> ExecAccessTemplate {
    let rules = vec![approval_rule("security", &["bob"], &[], 1)];
    let mut template = approved_template(name, rules, "10m");
    template.spec.access_config = AccessConfig {
        emergency: Some(EmergencyConfig {
            groups: vec!["oncall".to_owned()],
            users: Vec::new(),
            max_duration: "5m".to_owned(),
            review: ReviewConfig {
                deadline: within.to_owned(),
                groups: vec!["security".to_owned()],
                users: Vec::new(),
            },
            open_reviews,
        }),
        ..template.spec.access_config
    };
    template
}

/// Returns a request that declares an emergency.
#[must_use]
pub fn emergency_request(name: &str, template: &str) -> ExecAccessRequest {
    let mut request = exec_request(name, template, "4m");
    request.spec.emergency = Some(true);
    request.spec.reason = Some("INC-42".to_owned());
    request
}

/// Returns the finding of a reviewer, as a change of a review.
#[must_use]
pub fn found(finding: Finding) -> Value {
    json!({ "spec": { "finding": finding, "reason": "seen INC-42" } })
}

impl Person {
    /// Declares an emergency in a scene.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn has_emergency(
        self,
        scene: &Scene,
        name: &str,
        template: &str,
    ) -> kube::Result<()> {
        let request = emergency_request(name, template);
        let created = self.create(&scene.admin, scene.name(), "execaccessrequests", &request);
        created.await.map(drop)
    }

    /// Changes a review.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn reviews(self, scene: &Scene, name: &str, change: &Value) -> kube::Result<Value> {
        self.patch(&scene.admin, scene.name(), REVIEWS, name, change)
            .await
    }
}

impl Scene {
    /// Waits for the review of the request of this name, and returns it.
    ///
    /// # Errors
    /// When the review is not created in time.
    pub async fn review_of(&self, request: &str) -> Result<AccessReview> {
        let reviews = self.api::<AccessReview>();
        let what = format!("the review of {request}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let all = reviews.list(&Default::default()).await?;
            let mut its = all.items.into_iter().filter(|review| {
                let about = review.spec.access_request_ref.as_ref();
                about.is_some_and(|about| about.name == request)
            });
            Ok(its.next())
        })
        .await
    }
}
