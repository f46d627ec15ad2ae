//! Conversations and their items.

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[];
