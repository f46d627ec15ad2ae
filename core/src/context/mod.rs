//! BuildContext: decides what to send to the model next. Pure: the store reads the material, the
//! server sends the answer.
//!
//! The modules, in the order in which a build uses them:
//!
//! - `material`: the input of a build.
//! - `content_limit`: which messages are omitted because one context reads no more. `withdrawn`:
//!   how withdrawn messages are reported.
//! - `entry`: one entry for each message. `swapped_message`: what is sent in place of a message
//!   that is swapped for its summary.
//! - `swap`: which cool large messages are sent as their summaries.
//! - `repair`: what is changed because the provider would refuse it.
//! - `budget`: what is clipped or dropped, and in which order, to fit the budget. `clip`: how the
//!   text of one part is clipped.
//! - `prefix`: versions of the context's beginning, on which the provider's prefix cache depends.
//!   `prefix_comparison`: whether the beginning is still the same. `cache_places`: up to where the
//!   provider has cached it, and up to where this call asks it to.
//! - `answer`: the output of a build.

mod answer;
mod budget;
mod cache_places;
#[cfg(test)]
mod cache_tests;
mod clip;
mod content_limit;
mod entry;
mod material;
mod prefix;
mod prefix_comparison;
mod repair;
mod swap;
mod swapped_message;
#[cfg(test)]
mod tests;
mod withdrawn;

pub use crate::cache::BreakReason;
use crate::{
    boundary::Boundary,
    digest,
    media_access::MediaAccess,
    message::MessageId,
    provider_format::Format,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
    turn,
};
pub use answer::{
    BudgetTooSmall, Context, ContextMessage, ManifestEntry, Reason, Repair, RepairKind,
    Representation, Segment,
};
use cache_places::CacheUse;
use entry::Entry;
pub use material::{
    Ask, Body, CheckpointSummary, Material, OmittedMessage, Pressure, ReadySummary, SummaryOrigin,
    TailMessage,
};
pub use prefix::{CacheBreak, NewVersion, PendingChange, Prefix, PrefixVersion};
pub use swapped_message::{SwappedMessage, checkpoint_overhead_tokens};

/// Builds the context: system prompt, checkpoint summary, tail with cool large messages as their
/// summaries, current input.
pub fn build(mut material: Material, ask: Ask) -> Result<Context, BudgetTooSmall> {
    let current_turn = turn::after(
        material.turn,
        material.last_role,
        ask.current_input.iter().map(|message| message.role),
    );
    content_limit::omit_partial_turns(&mut material);
    let boundary = Boundary::newest(
        material.separator,
        material.checkpoint.as_ref().map(|summary| summary.last),
    );
    let Material {
        last_message_id,
        encoding,
        policy,
        separator,
        last_role,
        turn,
        ..
    } = material;
    let (prompt, prompt_tokens) = ask.system_prompt.map_or_else(
        || {
            (
                std::mem::take(&mut material.system_prompt),
                material.system_prompt_tokens,
            )
        },
        |text| {
            let tokens = encoding.counter().count(&text);
            (text, tokens)
        },
    );
    let prompt_digest = digest::of_content(&prompt);
    let mut head: Vec<Entry> = Entry::system_prompt(prompt, prompt_tokens)
        .into_iter()
        .collect();
    head.extend(
        material
            .checkpoint
            .as_ref()
            .map(|summary| Entry::checkpoint(summary, encoding)),
    );
    let input: Vec<Entry> = Entry::input(ask.current_input, turn, last_role, encoding).collect();
    let tokens = head.iter().chain(&input).map(Entry::framed_tokens).sum();
    let surroundings = swap::TailSurroundings {
        boundary,
        system_prompt: prompt_digest,
        tokens,
        budget: ask.budget,
        format: ask.format,
        current_turn,
        identity: ask.cache.as_ref().map(|cache| &cache.identity),
    };
    let cool_flags = swap::swap_cool_messages(&mut material, &surroundings);
    let compared = prefix_comparison::ComparisonInput::of(&material, ask.cache);

    let mut draft = Draft {
        encoding,
        budget: ask.budget,
        format: ask.format,
        media: ask.media,
        manifest: before_boundary(separator, material.checkpoint.as_ref(), &material.omitted),
        repairs: Vec::new(),
        entries: head,
    };
    draft.entries.reserve(material.tail.len() + input.len());
    for (message, is_cool) in material.tail.into_iter().zip(cool_flags) {
        let (manifest_entry, entry) = Entry::of_tail_message(message, is_cool, &policy, encoding);
        draft.manifest.push(manifest_entry);
        draft.entries.push(entry);
    }
    content_limit::add_to_manifest(&mut draft.manifest, &material.omitted);
    withdrawn::add_to_manifest(&mut draft.manifest, &material.withdrawn, boundary.after());
    draft.entries.extend(input);

    repair::repair(&mut draft);
    budget::apply_pressure(&mut draft, ask.pressure);
    budget::fit(&mut draft)?;
    clip::record_clips(&mut draft);
    repair::enforce_role_sequence(&mut draft);
    let (prefix, cache) =
        prefix_comparison::compare(&draft, &compared, boundary, prompt_digest, last_message_id);
    Ok(draft.finish(last_message_id, boundary, current_turn, prefix, cache))
}

/// The manifest entries of all messages before the tail. There are at most two, however long the
/// history is, unless a summary that was made for this call has gaps where messages were omitted.
fn before_boundary(
    separator: Option<MessageId>,
    checkpoint: Option<&CheckpointSummary>,
    omitted: &[OmittedMessage],
) -> Vec<ManifestEntry> {
    let run = |first: MessageId, last, representation, reason, tokens| {
        (first <= last).then_some(ManifestEntry {
            first,
            last,
            representation,
            reason,
            tokens,
            original_tokens: Tokens::ZERO,
            cool: false,
            clipped: Vec::new(),
        })
    };
    let last_separated = separator.unwrap_or_default();
    let before_separator = run(
        MessageId(1),
        last_separated,
        Representation::BeforeSeparator,
        Reason::Separated,
        Tokens::ZERO,
    );
    let covered = checkpoint.into_iter().flat_map(|summary| {
        let reason = match summary.origin {
            SummaryOrigin::Stored => Reason::Checkpointed,
            SummaryOrigin::ForThisCall => Reason::Pressure,
        };
        let runs = content_limit::runs_between(last_separated.next(), summary.last, omitted);
        runs.into_iter().filter_map(move |(first, last)| {
            let tokens = if last == summary.last {
                summary.tokens
            } else {
                Tokens::ZERO
            };
            run(first, last, Representation::Checkpoint, reason, tokens)
        })
    });
    before_separator.into_iter().chain(covered).collect()
}

/// A context during its build.
struct Draft {
    encoding: Encoding,
    budget: Option<Tokens>,
    format: Format,
    media: MediaAccess,
    entries: Vec<Entry>,
    manifest: Vec<ManifestEntry>,
    repairs: Vec<Repair>,
}

impl Draft {
    fn total(&self) -> Tokens {
        self.entries.iter().map(Entry::framed_tokens).sum()
    }

    fn report_repair(&mut self, kind: RepairKind, message: Option<MessageId>, call: String) {
        self.repairs.push(Repair {
            kind,
            message,
            call,
        });
    }

    /// The manifest entry of a stored message of the tail.
    fn manifest_entry_mut(&mut self, id: MessageId) -> Option<&mut ManifestEntry> {
        let place = self
            .manifest
            .binary_search_by(|entry| entry.first.cmp(&id))
            .ok()?;
        self.manifest.get_mut(place)
    }

    fn finish(
        self,
        last_message_id: MessageId,
        boundary: Boundary,
        current_turn: i32,
        prefix: Prefix,
        cache: CacheUse,
    ) -> Context {
        let total = self.total();
        Context {
            estimated: self.entries.iter().any(|entry| entry.estimated),
            messages: self.entries.into_iter().map(ContextMessage::from).collect(),
            manifest: self.manifest,
            repairs: self.repairs,
            total,
            last_message_id,
            boundary,
            current_turn,
            prefix,
            marks: cache.marks,
            tools_ttl: cache.tools_ttl,
        }
    }
}

impl From<Entry> for ContextMessage {
    fn from(entry: Entry) -> Self {
        Self {
            tokens: entry.framed_tokens(),
            segment: entry.segment,
            role: entry.role,
            parts: entry.parts,
            message_ids: entry.ids,
        }
    }
}

impl Entry {
    /// Tokens with the provider's framing of every message that was merged into the entry.
    fn framed_tokens(&self) -> Tokens {
        self.tokens + Tokens::new(FRAMING_PER_MESSAGE.get() * self.framing_count)
    }
}
