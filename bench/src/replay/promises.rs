//! What every answer of BuildContext promises of its beginning, held against what was sent.

use anneal_tests::Built;
use anneal_transcripts::pb;
use anyhow::ensure;

/// The answers of one conversation.
#[derive(Default)]
pub(super) struct Promises {
    /// Hash of the beginning of the newest.
    last: Option<Vec<u8>>,
    /// Tokens that the answers expected the cache to hold.
    pub(super) expected: u64,
}

impl Promises {
    /// Looks at an answer; `broke` says whether it begins otherwise than what the call before sent.
    pub(super) fn see(&mut self, built: &pb::BuildContextResponse, broke: bool) -> anyhow::Result<()> {
        self.expected += built.expected_cached_tokens;
        let Some(last) = self.last.replace(built.prefix_hash.clone()) else {
            ensure!(built.cache_break.is_none(), "the first context breaks nothing: {:?}", built.cache_break);
            return Ok(());
        };
        let at = built.last_message_id;
        let is_new = built.prefix_hash != last;
        ensure!(is_new == built.cache_break.is_some(), "at {at}: hash new: {is_new}, break: {:?}", built.cache_break);
        ensure!(is_new == broke, "at {at}: hash new: {is_new}, beginning new: {broke}");
        Ok(())
    }
}

/// Whether an answer is asked for twice: it is one of the sample, or its beginning is new.
pub(super) fn samples(call: usize, built: &pb::BuildContextResponse) -> bool {
    call.is_multiple_of(5) || built.cache_break.is_some()
}

/// The second of two answers with nothing said between says the same, byte by byte; where the first told of a break or
/// was the conversation's first, what the call before has sent is another matter.
pub(super) fn same(first: &pb::BuildContextResponse, again: &pb::BuildContextResponse) -> anyhow::Result<()> {
    ensure!(Built(first.clone()) == Built(again.clone()), "at {}: built twice, two contexts", first.last_message_id);
    ensure!(again.cache_break.is_none(), "at {}: built twice, broken twice", first.last_message_id);
    Ok(())
}
