//! Serves the hooks that `register.rs` registers, and requires no right to register.

mod extensions;

use extensions::{Arguments, Failure, env_injector, no_moving_tags};
use oz_admission::RegistrationMode;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("split", &arguments)
        .await?
        .registration(RegistrationMode::Never)
        .hook(env_injector::hook(&arguments))
        .hook(no_moving_tags::hook(&arguments));
    extensions::run(manager).await
}
