//! The threads for ordinary passes. Their computations, such as the rendering of a pod from a
//! template that a user wrote to be slow, take no thread from due passes; the system shares the
//! cores between both.

use tokio::runtime::{Builder, Handle, Runtime};

/// The minimum number of threads: with it, one slow pass does not delay the others.
const LEAST_THREADS: usize = 2;

/// The threads, which end when this is dropped.
pub(crate) struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    pub(crate) fn start() -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.max(LEAST_THREADS))
            .thread_name("ordinary")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not block: code that a runtime polls must not block.
            runtime.shutdown_background();
        }
    }
}
