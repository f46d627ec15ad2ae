//! A load that runs at the lowest priority, on threads of its own. It uses only the CPU time that
//! the measured processes leave, like callers on other machines.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

/// The lowest priority on Linux.
const LOWEST_PRIORITY: i32 = 19;

/// A runtime whose threads all have the lowest priority.
pub(crate) struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts the runtime, with a worker thread for each core.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let lower_priority = || {
            let _ = rustix::process::nice(LOWEST_PRIORITY);
        };
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .on_thread_start(lower_priority)
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Polls `work` itself in the caller's task, on the caller's thread. What `work` spawns (calls,
    /// connections, the blocking thread on which an open loop keeps its schedule) runs on threads
    /// of this runtime, all of the lowest priority.
    pub(crate) async fn run<W: Future>(&self, work: W) -> W::Output {
        TokioContext::new(work, self.handle.clone()).await
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which is not allowed in asynchronous code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
