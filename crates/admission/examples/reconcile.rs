//! A reconciler, on the leader only: see `extensions/annotator.rs`.

mod extensions;

use extensions::{Arguments, Failure, annotator::Annotator};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let task = Annotator {
        namespace: arguments.namespace.clone(),
    };
    let manager = extensions::manager("reconcile", &arguments).await?;
    extensions::run(manager.task("annotator", task)).await
}
