//! Shutdown: the first SIGTERM or Ctrl-C asks all tasks to finish, the second one ends the process.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Listens for signals. Returns a token that is cancelled at the first SIGTERM or SIGINT; at the
/// second one the process exits at once.
pub fn cancel_on_signals() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let shutdown = token.clone();
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked {
                warn!("asked a second time to stop, exiting at once");
                // 130: what shells report for a program that Ctrl-C has ended.
                std::process::exit(130);
            }
            asked = true;
            info!("asked to stop, finishing the work under way");
            shutdown.cancel();
        }
    });
    Ok(token)
}
