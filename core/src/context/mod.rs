//! BuildContext, decided: what to send to the model next. Pure; the store brings the material, the server sends the answer.

mod answer;
mod budget;
#[cfg(test)]
mod cache_tests;
mod clip;
mod close;
mod entry;
mod left_out;
mod material;
mod names;
mod pairs;
mod prefix;
mod repair;
mod shape;
mod swap;
#[cfg(test)]
mod tests;

use crate::{
    boundary::Boundary,
    digest,
    media_access::MediaAccess,
    message::MessageId,
    render::Format,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
    turn,
};
pub use answer::{BudgetTooSmall, Context, ContextMessage, ManifestEntry, Reason, Representation, Segment};
use entry::Entry;
pub use entry::{Swapped, checkpoint_tokens_around};
pub use material::{Ask, Body, CheckpointSummary, LeftOut, Made, Material, Pressure, ReadySummary, TailMessage};
pub use prefix::{BreakReason, CacheBreak, NewVersion, Prefix, PrefixVersion};
pub use repair::{Repair, RepairKind};

/// Builds the context: system prompt, checkpoint summary, tail with cool large messages as their summaries, current input.
pub fn build(mut material: Material, ask: Ask) -> Result<Context, BudgetTooSmall> {
    let current_turn =
        turn::after(material.turn, material.last_role, ask.current_input.iter().map(|message| message.role));
    left_out::round(&mut material);
    let boundary = Boundary::newest(material.separator, material.checkpoint.as_ref().map(|held| held.last));
    let Material { last_message_id, encoding, policy, separator, last_role, turn, .. } = material;
    let prompt = ask.system_prompt.map_or_else(
        || (std::mem::take(&mut material.system_prompt), material.system_prompt_tokens),
        |text| {
            let tokens = encoding.counter().count(&text);
            (text, tokens)
        },
    );
    let system_prompt = digest::of_content(&prompt.0);
    let mut head: Vec<Entry> = Entry::system_prompt(prompt.0, prompt.1).into_iter().collect();
    head.extend(material.checkpoint.as_ref().map(|held| Entry::checkpoint(held, encoding)));
    let input: Vec<Entry> = Entry::input(ask.current_input, turn, last_role, encoding).collect();
    let tokens = head.iter().chain(&input).map(Entry::framed).sum();
    let around = swap::Around { boundary, system_prompt, tokens, budget: ask.budget, format: ask.format, current_turn };
    let cool = swap::swap(&mut material, &around);
    let before = prefix::Before::of(&material);

    let mut draft = Draft {
        encoding,
        budget: ask.budget,
        format: ask.format,
        media: ask.media,
        manifest: before_boundary(separator, material.checkpoint.as_ref(), &material.left_out),
        repairs: Vec::new(),
        entries: head,
    };
    draft.entries.reserve(material.tail.len() + input.len());
    for (message, cool) in material.tail.into_iter().zip(cool) {
        let (manifest, entry) = Entry::stored(message, cool, &policy, encoding);
        draft.manifest.push(manifest);
        draft.entries.push(entry);
    }
    left_out::note(&mut draft.manifest, &material.left_out);
    draft.entries.extend(input);

    repair::mend(&mut draft);
    budget::relieve(&mut draft, ask.pressure);
    budget::fit(&mut draft)?;
    clip::note_clips(&mut draft);
    close::close(&mut draft);
    let prefix = prefix::compare(&draft, &before, boundary, system_prompt, last_message_id);
    Ok(draft.finish(last_message_id, boundary, current_turn, prefix))
}

/// Manifest of what stands before the tail: at most two runs, however long the history, but for what a summary that was made
/// for this call could not read.
fn before_boundary(
    separator: Option<MessageId>,
    checkpoint: Option<&CheckpointSummary>,
    left_out: &[LeftOut],
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
    let separated = separator.unwrap_or_default();
    let before = run(MessageId(1), separated, Representation::BeforeSeparator, Reason::Separated, Tokens::ZERO);
    let covered = checkpoint.into_iter().flat_map(|held| {
        let reason = match held.made {
            Made::Stored => Reason::Checkpointed,
            Made::ForThisCall => Reason::Pressure,
        };
        let runs = left_out::runs_between(separated.next(), held.last, left_out);
        runs.into_iter().filter_map(move |(first, last)| {
            let tokens = if last == held.last { held.tokens } else { Tokens::ZERO };
            run(first, last, Representation::Checkpoint, reason, tokens)
        })
    });
    before.into_iter().chain(covered).collect()
}

/// A context in the making.
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
        self.entries.iter().map(Entry::framed).sum()
    }

    fn repair(&mut self, kind: RepairKind, message: Option<MessageId>, call: String) {
        self.repairs.push(Repair { kind, message, call });
    }

    /// The manifest's entry of a stored message of the tail.
    fn fate(&mut self, id: MessageId) -> Option<&mut ManifestEntry> {
        let place = self.manifest.binary_search_by(|entry| entry.first.cmp(&id)).ok()?;
        self.manifest.get_mut(place)
    }

    fn finish(self, last_message_id: MessageId, boundary: Boundary, current_turn: i32, prefix: Prefix) -> Context {
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
        }
    }
}

impl From<Entry> for ContextMessage {
    fn from(entry: Entry) -> Self {
        Self {
            tokens: entry.framed(),
            segment: entry.segment,
            role: entry.role,
            parts: entry.parts,
            message_ids: entry.ids,
        }
    }
}

impl Entry {
    /// Tokens with the provider's framing of every message merged into it.
    fn framed(&self) -> Tokens {
        self.tokens + Tokens::new(FRAMING_PER_MESSAGE.get() * self.framings)
    }
}
