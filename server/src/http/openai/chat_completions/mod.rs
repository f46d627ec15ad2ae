//! Turns in the form of chat completions.

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[];
