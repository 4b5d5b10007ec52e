//! Registers the hooks of `serve.rs` and exits, as an installer or a Job would.
#![allow(clippy::print_stdout)]

mod extensions;

use extensions::{Arguments, Failure, env_injector, no_moving_tags};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("split", &arguments)
        .await?
        .hook(env_injector::hook(&arguments))
        .hook(no_moving_tags::hook(&arguments))
        .build()?;
    let registration = manager.register().await?;
    println!(
        "registered {} mutating, {} validating",
        registration.mutating, registration.validating
    );
    Ok(())
}
