//! A watcher without a webhook: see `extensions/pod_diary.rs`.

mod extensions;

use extensions::{Arguments, Failure, pod_diary};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let manager = extensions::manager("watch", &arguments).await?;
    extensions::run(manager.watcher(pod_diary::watcher(&arguments))).await
}
