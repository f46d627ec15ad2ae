//! The door of the AI SDK: its UI message stream, version 1.

use super::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[];
