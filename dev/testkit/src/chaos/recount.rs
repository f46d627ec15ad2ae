//! Counts the tokens of messages again, with tiktoken. Counts must equal those of tiktoken exactly;
//! anneal makes them with another tokenizer.

use anneal_core::tokens::MEDIA_TOKENS;
use pb::part::Part;

use super::campaign_state::CampaignState;
use crate::pb;

/// Checks that a count of these parts is exact, unless it is an estimate. `name` is the name of
/// their message.
pub(super) fn check_count(
    state: &CampaignState,
    count: Option<pb::TokenCount>,
    parts: &[pb::Part],
    name: impl FnOnce() -> String,
) {
    let Some(count) = count.filter(|count| !count.estimated) else {
        return;
    };
    let exact = count_parts(parts);
    state.tally.increment("counts checked");
    state
        .findings
        .demand(count.tokens == exact, "exact counts", || {
            format!(
                "{} is counted as {} tokens, and has {exact}",
                name(),
                count.tokens
            )
        });
}

/// The tokens of a message's parts in `o200k_base`, in which the conversations of campaigns are
/// counted.
fn count_parts(parts: &[pb::Part]) -> u64 {
    let parts = parts.iter().filter_map(|part| part.part.as_ref());
    parts.map(count_part).sum()
}

fn count_part(part: &Part) -> u64 {
    match part {
        Part::Text(text) => count_text(&text.text),
        Part::Reasoning(reasoning) => count_text(&reasoning.text),
        Part::ToolUse(call) => count_text(&call.name) + count_text(&call.input),
        Part::ToolResult(result) => {
            count_text(&result.text) + result.media.iter().map(count_media).sum::<u64>()
        }
        Part::Media(media) => count_media(media),
    }
}

fn count_media(media: &pb::MediaPart) -> u64 {
    if media.tokens == 0 {
        MEDIA_TOKENS.get()
    } else {
        u64::from(media.tokens)
    }
}

fn count_text(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use anneal_core::tokens::{Encoding, count_message};

    use super::*;
    use crate::{assistant, call, media, message, parsed, result, user};

    #[test]
    fn only_a_count_that_is_no_estimate_must_be_exact() {
        let parts = user("hello world").parts;
        let cases = [
            (2, false, false),
            (3, false, true),
            (1, false, true),
            (3, true, false),
        ];
        for (tokens, estimated, is_found) in cases {
            let state =
                CampaignState::new(Arc::default(), Vec::new(), String::new(), Duration::ZERO);
            let count = pb::TokenCount { tokens, estimated };
            check_count(&state, Some(count), &parts, || "a message".to_owned());
            assert_eq!(state.findings.all().is_empty(), !is_found, "{count:?}");
            let checked = state.tally.count("counts checked");
            assert_eq!(checked, u64::from(!estimated), "{count:?}");
        }
    }

    #[test]
    fn every_kind_of_part_is_counted_as_anneal_counts_it() {
        let reasoning = pb::ReasoningPart {
            text: "It has rained.".into(),
            signature: "c2lnbmF0dXJl".into(),
            ..Default::default()
        };
        for new in [
            user("What is 冷却?"),
            assistant("The slow loss of heat."),
            call("call-1", r#"{"n": 1e2,  "a":1.0}"#),
            result("call-1", "sunny"),
            media("s3://pictures/1"),
            message(pb::Role::Assistant, vec![Part::Reasoning(reasoning)]),
        ] {
            let expected = count_message(Encoding::O200kBase, &parsed(&new)).get();
            assert_eq!(count_parts(&new.parts), expected, "{new:?}");
        }
    }
}
