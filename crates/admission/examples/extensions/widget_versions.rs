//! Converting: a custom resource that renames `spec.size` to `spec.replicas` in its second version.

use oz_admission::{Conversion, Convert, ConvertError, Cx};
use serde_json::Value;

use super::Arguments;

pub struct WidgetVersions;

impl Convert for WidgetVersions {
    async fn convert(&self, _: &Cx, mut widget: Value, to: &str) -> Result<Value, ConvertError> {
        let (old, new) = if to.ends_with("/v2") {
            ("size", "replicas")
        } else {
            ("replicas", "size")
        };
        let spec = widget["spec"].as_object_mut().ok_or("it has no spec")?;
        if let Some(count) = spec.remove(old) {
            if !count.is_u64() {
                return Err(format!("spec.{old} is no number: {count}").into());
            }
            spec.insert(new.to_owned(), count);
        }
        Ok(widget)
    }
}

/// Returns the conversion of the Widgets in the group that is named after the namespace.
pub fn conversion(arguments: &Arguments) -> Conversion {
    let definition = format!("widgets.{}.example.com", arguments.namespace);
    Conversion::new(&definition, WidgetVersions)
}
