//! What providers' errors teach of their models. Hints: nobody waits for them, nothing fails without them.

use anneal_core::{caller::Caller, tokens::Tokens, usage::Usage};
use tracing::warn;

use crate::house::House;

/// A smaller limit is no model's window.
pub(crate) const LEAST_WINDOW: Tokens = Tokens::new(512);

/// Remembers a window that an error has named.
pub(crate) async fn window(house: &House, caller: Caller, model: &str, window: Tokens) {
    if window < LEAST_WINDOW {
        return;
    }
    if let Err(error) = house.store.learn_window(caller, model, window).await {
        warn!("could not remember a window of {window} tokens: {error}");
    }
}

/// Takes in how an error has counted a context that counts `own` here. Returns the ratio, unless it comes from something
/// else than counting.
pub(crate) async fn ratio(house: &House, caller: Caller, model: &str, counted: Tokens, own: Tokens) -> Option<f64> {
    let ratio = Usage { input: counted, context: own, ..Usage::default() }.ratio()?;
    if let Err(error) = house.store.learn_ratio(caller, model, ratio).await {
        warn!("could not remember that {model} counts {ratio:.2} tokens for one: {error}");
    }
    Some(ratio)
}
