//! Stores and reads what providers' errors say about their models: windows and token ratios. These
//! are hints, so a failure to store or read one is only logged.

use anneal_core::{caller::Caller, tokens::Tokens, usage::Usage};
use tracing::warn;

use crate::state::ServerState;

/// The smallest limit in an error that is taken for a model's window. No model has a smaller one.
pub(crate) const MIN_WINDOW: Tokens = Tokens::new(512);

/// Stores a window that an error has named, unless it is below [`MIN_WINDOW`].
pub(crate) async fn store_window(state: &ServerState, caller: Caller, model: &str, window: Tokens) {
    if window < MIN_WINDOW {
        return;
    }
    if let Err(error) = state.store.learn_window(caller, model, window).await {
        state.store.log_failure(&error, || {
            warn!("could not store the window of {model}, {window} tokens: {error}");
        });
    }
}

/// The smaller one of a model's known window and the one that an error has named. None: neither is
/// there, or it could not be read.
pub(crate) async fn find_window(
    state: &ServerState,
    caller: Caller,
    model: &str,
) -> Option<Tokens> {
    let found = state.store.find_window(caller, model).await;
    found.unwrap_or_else(|error| {
        state.store.log_failure(&error, || {
            warn!("could not read the window of {model}: {error}");
        });
        None
    })
}

/// Stores the ratio of two token counts of one request: the count that an error names, and ours.
/// Returns the ratio, also if it could not be stored. None: the request is too small to compare, or
/// the ratio is too far from 1 to come from different ways of counting, so nothing is stored.
pub(crate) async fn store_ratio(
    state: &ServerState,
    caller: Caller,
    model: &str,
    named_tokens: Tokens,
    own_tokens: Tokens,
) -> Option<f64> {
    let ratio = Usage {
        input: named_tokens,
        context: own_tokens,
        ..Usage::default()
    }
    .ratio()?;
    if let Err(error) = state.store.learn_ratio(caller, model, ratio).await {
        state.store.log_failure(&error, || {
            warn!("could not store the token ratio of {model}, {ratio:.2}: {error}");
        });
    }
    Some(ratio)
}
