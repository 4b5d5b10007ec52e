//! All four kinds of extension in one manager.

mod extensions;

use extensions::{
    Arguments, Failure, annotator::Annotator, env_injector, no_moving_tags, pod_diary,
};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let task = Annotator {
        namespace: arguments.namespace.clone(),
    };
    let manager = extensions::manager("all", &arguments)
        .await?
        .hook(env_injector::hook(&arguments))
        .hook(no_moving_tags::hook(&arguments))
        .watcher(pod_diary::watcher(&arguments))
        .task("annotator", task);
    extensions::run(manager).await
}
