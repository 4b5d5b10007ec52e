//! Where ordinary passes run: on threads of their own. What they compute, such as a pod that is
//! rendered by a template which somebody wrote to be slow, takes no thread from what is due; the
//! system shares the cores between both.

use tokio::runtime::{Builder, Handle, Runtime};

/// How many threads at least: one slow pass alone holds up no other.
const LEAST_THREADS: usize = 2;

/// The threads, which end with this.
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
            // Waits for nothing, which nobody may who is polled by a runtime.
            runtime.shutdown_background();
        }
    }
}
