//! Validating: an image must be pinned, so that a restart runs the tested image.

use k8s_openapi::api::core::v1::Pod;
use oz_admission::{Cx, Hook, Notes, Operation, Rejection, Review, Validate};

use super::Arguments;

pub struct NoMovingTags;

impl Validate for NoMovingTags {
    type Object = Pod;

    async fn validate(&self, _: &Cx, review: &Review<Pod>) -> Result<Notes, Rejection> {
        let containers = review
            .object
            .iter()
            .filter_map(|pod| pod.spec.as_ref())
            .flat_map(|spec| &spec.containers);
        for (index, container) in containers.enumerate() {
            let image = container.image.as_deref().unwrap_or_default();
            if image.ends_with(":latest") || !image.contains([':', '@']) {
                let message = format!("image {image:?} may change under its tag; pin a version");
                return Err(Rejection::invalid("MovingTag", &message).cause(
                    format!("spec.containers[{index}].image"),
                    "FieldValueInvalid",
                    message,
                ));
            }
        }
        Ok(Notes::none())
    }
}

pub fn hook(arguments: &Arguments) -> Hook {
    Hook::validating("no-moving-tags", NoMovingTags)
        .on([Operation::Create, Operation::Update])
        .namespaces(arguments.here())
}
