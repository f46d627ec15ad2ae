//! The page in a real browser. `harness`: the browser itself, on a page that the test serves.

mod harness;
