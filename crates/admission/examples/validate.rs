//! A validating extension: see `extensions/no_moving_tags.rs`.

mod extensions;

use extensions::{Arguments, Failure, no_moving_tags};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("validate", &arguments).await?;
    extensions::run(manager.hook(no_moving_tags::hook(&arguments))).await
}
