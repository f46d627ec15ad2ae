//! Stores what providers' errors tell about their models: windows and token ratios. These are
//! hints, so a failure to store one is only logged.

use anneal_core::{caller::Caller, tokens::Tokens, usage::Usage};
use tracing::warn;

use crate::state::ServerState;

/// A smaller limit in an error is not a model's window.
pub(crate) const MIN_WINDOW: Tokens = Tokens::new(512);

/// Stores a window that an error has named.
pub(crate) async fn store_window(state: &ServerState, caller: Caller, model: &str, window: Tokens) {
    if window < MIN_WINDOW {
        return;
    }
    if let Err(error) = state.store.learn_window(caller, model, window).await {
        warn!("could not remember a window of {window} tokens: {error}");
    }
}

/// Stores the ratio of the tokens that an error has counted to the tokens counted here. Returns it,
/// or None if it is outside the range that counting can explain.
pub(crate) async fn store_ratio(
    state: &ServerState,
    caller: Caller,
    model: &str,
    counted: Tokens,
    own_tokens: Tokens,
) -> Option<f64> {
    let ratio = Usage {
        input: counted,
        context: own_tokens,
        ..Usage::default()
    }
    .ratio()?;
    if let Err(error) = state.store.learn_ratio(caller, model, ratio).await {
        warn!("could not remember that {model} counts {ratio:.2} tokens for one: {error}");
    }
    Some(ratio)
}
