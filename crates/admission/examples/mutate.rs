//! A mutating extension: see `extensions/env_injector.rs`.

mod extensions;

use extensions::{Arguments, Failure, env_injector};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("mutate", &arguments).await?;
    extensions::run(manager.hook(env_injector::hook(&arguments))).await
}
