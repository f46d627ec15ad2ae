//! Responses: turns, and what is stored of them.

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[];
