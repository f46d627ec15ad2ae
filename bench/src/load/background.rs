//! A load that takes what others leave of the cores, as callers on machines of their own would: at the lowest priority, on
//! threads of its own.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

/// As little as Linux gives.
const LOWEST_PRIORITY: i32 = 19;

/// The threads.
pub(crate) struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts them, one for each core.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let give_way = || {
            let _ = rustix::process::nice(LOWEST_PRIORITY);
        };
        let runtime = Builder::new_multi_thread().enable_all().on_thread_start(give_way).build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Everything that this work begins (calls, connections, the threads of an open loop) is theirs.
    pub(crate) async fn run<W: Future>(&self, work: W) -> W::Output {
        TokioContext::new(work, self.handle.clone()).await
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Dropped as it is, it would wait for its threads, which nobody may in asynchronous code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
