//! `cache_control` marks for prompt caching. The comments below name each rule and quote the API's
//! error for it.

use super::Node;
use crate::node::Refusals;

/// Maximum number of blocks with `cache_control` in a request.
const MARKS_MAX: usize = 4;

/// `cache-type`: "cache_control.type: Input should be 'ephemeral'".
/// `cache-ttl`: "Input should be '5m' or '1h'".
pub(super) fn check_mark(block: &Node, out: &mut Refusals) {
    let Some(mark) = block.find("cache_control") else {
        return;
    };
    if !mark.check_object(&["type", "ttl"], out) {
        return;
    }
    if mark
        .need_text("type", out)
        .is_some_and(|kind| kind != "ephemeral")
    {
        mark.refuse(out, "cache-type", "Input should be 'ephemeral'");
    }
    let ttl = mark.find("ttl").and_then(|ttl| ttl.text(out));
    if ttl.is_some_and(|ttl| !matches!(ttl, "5m" | "1h")) {
        mark.refuse(out, "cache-ttl", "ttl: Input should be '5m' or '1h'");
    }
}

/// `cache-count`: "A maximum of 4 blocks with cache_control may be provided. Found 5."
/// `cache-order`: "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control
/// block".
pub(super) fn check_limits(body: &Node, messages: &[Node], out: &mut Refusals) {
    let system = body.each_of("system").into_iter();
    let in_messages = messages
        .iter()
        .flat_map(|message| message.each_of("content"));
    // The blocks inside a result come before the mark of the result itself, which is at the
    // result's end.
    let blocks = system.chain(in_messages).flat_map(|block| {
        let inner = if block.str_of("type") == Some("tool_result") {
            block.each_of("content")
        } else {
            Vec::new()
        };
        inner.into_iter().chain([block])
    });
    let marks: Vec<_> = blocks
        .filter_map(|block| block.find("cache_control"))
        .collect();
    if let Some(mark) = marks.get(MARKS_MAX) {
        let found = marks.len();
        let says = format!(
            "A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {found}."
        );
        mark.refuse(out, "cache-count", says);
    }
    let is_long = |mark: &Node| mark.str_of("ttl") == Some("1h");
    for mark in marks
        .iter()
        .skip_while(|mark| is_long(mark))
        .filter(|mark| is_long(mark))
    {
        mark.refuse(
            out,
            "cache-order",
            "a ttl='1h' block must not come after a ttl='5m' block",
        );
    }
}
