//! A conversion between the versions of a custom resource: see `extensions/widget_versions.rs`.

mod extensions;

use extensions::{Arguments, Failure, widget_versions};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("convert", &arguments).await?;
    extensions::run(manager.conversion(widget_versions::conversion(&arguments))).await
}
