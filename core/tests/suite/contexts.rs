//! Contexts of arbitrary conversations: the manifest has every message, the budget is kept, a
//! second build gives the same, a clip says what it left out, and every provider accepts the
//! request. Withdrawn messages change nothing but the manifest.

mod checks;
mod clips;
mod histories;

use anneal_core::{
    context::{Body, Context, Reason, Representation, build},
    message::{MessageId, PART_JOIN, Part, part_text, plain_text},
    render::{Format, render},
};
use checks::{
    check_message_ids, contains_text, context_is_paired, count_rendered, covers_every_id, kept_ids,
    refusals, rendered_is_paired,
};
use histories::{Case, case};
use proptest::prelude::*;
use serde_json::Value;

/// The largest budget in the test of clips. It is enough for the prompt, the summary and the clipped
/// newest message, media included.
const MAX_CLIPPING_BUDGET: u64 = 4_000;

/// Why a build without a budget cannot fail.
const NO_BUDGET: &str = "without a budget no context is refused";

fn check_context(case: &Case, context: &Context, rendered: &Value) -> Result<(), TestCaseError> {
    let format = case.ask.format;
    prop_assert!(
        covers_every_id(context, case.material.last_message_id),
        "{:?}",
        context.manifest
    );
    prop_assert!(context_is_paired(context), "{:#?}", context.messages);
    prop_assert!(
        check_message_ids(context).is_ok(),
        "{:?}",
        check_message_ids(context)
    );
    prop_assert!(rendered_is_paired(rendered, format), "{rendered:#}");
    let refused = refusals(rendered, format);
    prop_assert!(refused.is_empty(), "{refused:#?} in {rendered:#}");
    let counted = count_rendered(rendered, context, format);
    prop_assert!(
        counted <= context.total,
        "reported {} tokens, counted {counted}: {rendered:#}",
        context.total
    );
    if let Some(budget) = case.ask.budget {
        prop_assert!(context.total <= budget, "{} of {budget}", context.total);
    }
    if let Some((parts, id)) = case.newest_user() {
        let text_start = parts.iter().find_map(|part| match part {
            Part::Text { text } if !text.trim().is_empty() => {
                // No clip is so short that it leaves out these characters.
                Some(text.chars().take(8).collect::<String>())
            }
            _ => None,
        });
        prop_assert!(
            text_start
                .as_ref()
                .is_none_or(|text_start| contains_text(rendered, text_start)),
            "{text_start:?} of {id:?} is not in {rendered:#}"
        );
        let shown = |id| {
            context
                .messages
                .iter()
                .any(|message| message.message_ids.contains(&id))
        };
        prop_assert!(id.is_none_or(shown), "{id:?} is not among the ids");
    }
    Ok(())
}

fn read(rendered: &str) -> Value {
    serde_json::from_str(rendered).expect("a request is JSON")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_context_is_accepted_by_its_provider(case in case()) {
        let format = case.ask.format;
        let context = build(case.material.clone(), case.ask.clone()).expect(NO_BUDGET);
        let rendered = render(&context, format);
        check_context(&case, &context, &read(&rendered.json))?;
        let again = build(case.material.clone(), case.ask.clone()).expect(NO_BUDGET);
        prop_assert_eq!(render(&again, format), rendered);
        prop_assert_eq!(again, context);
    }

    #[test]
    fn a_context_is_that_of_a_conversation_that_was_only_told_what_is_not_withdrawn(case in case()) {
        let context = build(case.material.clone(), case.ask.clone()).expect(NO_BUDGET);
        let reported: Vec<MessageId> = context.manifest.iter()
            .filter(|entry| entry.reason == Reason::Withdrawn)
            .flat_map(|entry| (entry.first.0..=entry.last.0).map(MessageId))
            .collect();
        prop_assert_eq!(&reported, &case.material.withdrawn);
        let told = case.without_withdrawn();
        let wanted = build(told.material, told.ask).expect(NO_BUDGET);
        // Marks of summaries and clips name ids, also in results that were moved to their calls.
        let names_ids = context.manifest.iter()
            .any(|entry| entry.representation == Representation::Summary || !entry.clipped.is_empty())
            || format!("{:?}", context.messages).contains("[Summary of message ");
        if !names_ids {
            let sent = |context: &Context| -> Vec<_> {
                let messages = context.messages.iter();
                messages.map(|message| (message.segment, message.role, message.parts.clone(), message.tokens)).collect()
            };
            prop_assert_eq!(sent(&context), sent(&wanted));
            let format = case.ask.format;
            if format != Format::Neutral {
                prop_assert_eq!(render(&context, format).json, render(&wanted, format).json);
            }
        }
        let repairs = |context: &Context| -> Vec<_> { context.repairs.iter().map(|repair| repair.kind).collect() };
        prop_assert_eq!(repairs(&context), repairs(&wanted));
        prop_assert_eq!(context.current_turn, wanted.current_turn);
    }

    #[test]
    fn a_budget_is_kept_and_a_larger_one_drops_no_other_message(
        case in case(),
        share_percent in prop_oneof![Just(100), 1..100_u64],
        fewer_tokens in 0..20_u64,
        more_tokens in 1..2_000_u64,
    ) {
        let whole = build(case.material.clone(), case.ask.clone()).expect(NO_BUDGET).total;
        let budget = (whole.get() * share_percent / 100).saturating_sub(fewer_tokens).max(1);
        let tight = case.with_budget(budget);
        let Ok(small) = build(tight.material.clone(), tight.ask.clone()) else { return Ok(()) };
        check_context(&tight, &small, &read(&render(&small, case.ask.format).json))?;
        let wide = case.with_budget(budget + more_tokens);
        let large = build(wide.material.clone(), wide.ask.clone()).expect("a larger budget fits too");
        check_context(&wide, &large, &read(&render(&large, case.ask.format).json))?;
        prop_assert!(kept_ids(&small).is_subset(&kept_ids(&large)), "{:?} and {:?}", kept_ids(&small), kept_ids(&large));
    }

    #[test]
    fn a_clip_says_which_bytes_it_left_out_and_leaves_json_valid(case in case(), budget in 1..=MAX_CLIPPING_BUDGET) {
        let case = case.with_budget(budget);
        let Ok(context) = build(case.material.clone(), case.ask.clone()) else { return Ok(()) };
        for part in context.messages.iter().flat_map(|message| &message.parts) {
            // Only generated JSON starts with these characters. Descriptions of media follow a
            // blank line.
            let is_result = matches!(part, Part::ToolResult { .. });
            if is_result && (part_text(part).starts_with('{') || part_text(part).starts_with("[{")) {
                let json = part_text(part).split(PART_JOIN).next().unwrap_or_default();
                prop_assert!(serde_json::from_str::<Value>(json).is_ok(), "{json}");
            }
        }
        for entry in context.manifest.iter().filter(|entry| !entry.clipped.is_empty()) {
            prop_assert_eq!(entry.representation, Representation::Clipped);
            let message = case.material.tail.iter().find(|message| message.id == entry.first).expect("clipped messages are in the tail");
            let Body::Original(parts) = &message.body else { panic!("{entry:?} is swapped") };
            let plain = plain_text(parts);
            let messages = context.messages.iter().filter(|message| message.message_ids.contains(&entry.first));
            let shown: String = messages.flat_map(|message| &message.parts).map(|part| part_text(part).to_owned() + "\n").collect();
            for range in &entry.clipped {
                prop_assert!(plain.get(range.clone()).is_some(), "{range:?} of {} bytes", plain.len());
                let mark = format!("bytes {} to {} of message {}]", range.start, range.end, entry.first);
                prop_assert!(shown.contains(&mark), "{mark} is not in {shown}");
                // Only the characters since the last space or comma before the clip are looked for,
                // because clipped JSON may lose white space and the comma before its clip.
                let before_reversed: String = plain[..range.start].chars().rev().take_while(|c| !c.is_whitespace() && *c != ',').collect();
                let before: String = before_reversed.chars().rev().collect();
                prop_assert!(shown.contains(&before), "{before:?} before {range:?} is not shown");
            }
            prop_assert!(entry.clipped.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", entry.clipped);
        }
    }
}
