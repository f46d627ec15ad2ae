//! Checks what every BuildContext answer states about its unchanged beginning against what was
//! actually sent.

use anneal_testkit::Built;
use anneal_transcripts::pb;
use anyhow::ensure;

/// Checks the answers of one conversation.
#[derive(Default)]
pub(super) struct AnswerChecks {
    /// Hash of the beginning in the newest answer.
    last_hash: Option<Vec<u8>>,
    /// Sum of the tokens that the answers expected to be in the cache.
    pub(super) expected_cached_tokens: u64,
}

impl AnswerChecks {
    /// Checks an answer. `broke` says whether its context does not begin with everything that the
    /// previous call sent.
    pub(super) fn check(
        &mut self,
        built: &pb::BuildContextResponse,
        broke: bool,
    ) -> anyhow::Result<()> {
        self.expected_cached_tokens += built.expected_cached_tokens;
        let Some(last_hash) = self.last_hash.replace(built.prefix_hash.clone()) else {
            ensure!(
                built.cache_break.is_none(),
                "the first context reports a break: {:?}",
                built.cache_break
            );
            return Ok(());
        };
        let last_id = built.last_message_id;
        let is_new = built.prefix_hash != last_hash;
        ensure!(
            is_new == built.cache_break.is_some(),
            "at message {last_id}: hash is new: {is_new}, reported break: {:?}",
            built.cache_break
        );
        ensure!(
            is_new == broke,
            "at message {last_id}: hash is new: {is_new}, sent beginning is new: {broke}"
        );
        Ok(())
    }
}

/// Whether this answer is requested twice: if it belongs to the sample (every fifth call), or if it
/// reports that its beginning changed.
pub(super) fn is_requested_twice(call: usize, built: &pb::BuildContextResponse) -> bool {
    call.is_multiple_of(5) || built.cache_break.is_some()
}

/// Checks that a repeated request, without any append in between, returns the same context and
/// reports no break. The fields about the previous call and its cache may differ: `Built` does not
/// compare them.
pub(super) fn ensure_same(
    first: &pb::BuildContextResponse,
    repeated: &pb::BuildContextResponse,
) -> anyhow::Result<()> {
    ensure!(
        Built(first.clone()) == Built(repeated.clone()),
        "at message {}: a repeated request gives another context",
        first.last_message_id
    );
    ensure!(
        repeated.cache_break.is_none(),
        "at message {}: a repeated request reports a break again",
        first.last_message_id
    );
    Ok(())
}
