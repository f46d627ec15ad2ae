//! A load that runs at the lowest priority, on threads of its own. It uses only the CPU time that
//! the measured processes leave, like callers on other machines.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

/// The lowest priority on Linux.
const LOWEST_PRIORITY: i32 = 19;

/// Threads of the lowest priority.
pub(crate) struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts the threads, one for each core.
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

    /// Runs `work` in the caller's task. Everything that it starts (calls, connections, the threads
    /// of an open loop) runs on these threads.
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
