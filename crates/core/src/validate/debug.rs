//! Validation of `spec.accessConfig.debug`: the containers that users may add to a pod.

use oz_api::{AccessConfig, Operation, Sessions};

use super::Found;
use crate::gate::image::{MAX_IMAGE, MAX_IMAGES, Pattern};

const FIELD: &str = "spec.accessConfig.debug";

/// Checks that the operation Debug, the gate and the list of images are set together or not at all.
pub(super) fn check(config: &AccessConfig, found: &mut Found) {
    let granted = config.operations.contains(&Operation::Debug);
    if granted && config.sessions != Sessions::Gate {
        let message =
            "must be Gate with the operation Debug: only the gate checks the debug container";
        found.add("spec.accessConfig.sessions", message);
    }
    match &config.debug {
        None if granted => {
            let message =
                "must name images with the operation Debug, such as registry.example.com/tools/*";
            found.add(&format!("{FIELD}.images"), message);
        }
        Some(_) if !granted => {
            let message = "must be omitted unless spec.accessConfig.operations has Debug";
            found.add(FIELD, message);
        }
        _ => {}
    }
    let images = config.debug.iter().flat_map(|debug| &debug.images);
    let images: Vec<&String> = images.collect();
    if config.debug.is_some() && !(1..=MAX_IMAGES).contains(&images.len()) {
        let message = format!("must name 1 to {MAX_IMAGES} images");
        found.add(&format!("{FIELD}.images"), message);
    }
    for (index, image) in images.iter().enumerate() {
        let field = format!("{FIELD}.images[{index}]");
        if Pattern::read(image).is_none() {
            let message = format!(
                "must be an image of at most {MAX_IMAGE} letters, or end in /*, :* or @*, with an image or the \
                 beginning of one before that"
            );
            found.check(&field, image.as_str(), Err::<(), _>(message));
        } else if images[..index].contains(image) {
            found.check(
                &field,
                image.as_str(),
                Err::<(), _>("must not be named twice"),
            );
        }
    }
}
