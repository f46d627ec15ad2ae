//! Keys that write no character, as texts for [`BrowserPage::press`](super::BrowserPage::press).

/// Enter.
pub const ENTER: &str = "\u{e007}";
/// Tab.
pub const TAB: &str = "\u{e004}";
/// Control, on the left.
pub const CONTROL: &str = "\u{e009}";
/// Escape.
pub const ESCAPE: &str = "\u{e00c}";
/// End.
pub const END: &str = "\u{e010}";
