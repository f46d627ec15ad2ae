//! Extra fields: fields of pi's blocks for which anneal's parts have no field (`textSignature`,
//! `partialJson` …). They are kept in a metadata label of the message, and are written back into
//! the blocks.

use std::collections::BTreeMap;

use anneal_core::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::LABEL;
use crate::json::{Fields, Notes, quoted};

/// The name of the label, without the prefix `pi.`.
pub(super) const BLOCKS: &str = "blocks";

/// The extra fields as raw JSON, by the index of their part.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct BlockFields(BTreeMap<usize, BTreeMap<String, Box<RawValue>>>);

impl BlockFields {
    /// Records the fields of a block that are not in `known`. `part`: index of the block's part.
    pub(super) fn record(&mut self, part: usize, block: &Fields, known: &[&str]) {
        let others = block
            .0
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()));
        let others: BTreeMap<String, Box<RawValue>> = others
            .map(|(name, raw)| (name.clone(), (*raw).to_owned()))
            .collect();
        if !others.is_empty() {
            self.0.insert(part, others);
        }
    }

    /// The value of the label; None if there are no extra fields.
    pub(super) fn label(&self) -> Option<String> {
        let written = || serde_json::to_string(self).expect("raw JSON always serializes");
        (!self.0.is_empty()).then(written)
    }

    /// Notes all fields as unread: for blocks whose fields no label keeps (those of a tool result,
    /// or too long for a label).
    pub(super) fn note_unread(&self, notes: &mut Notes, whose: &str) {
        for name in self.0.values().flat_map(BTreeMap::keys) {
            notes.note_unread_field(name, whose);
        }
    }

    /// Parses the label of a message; empty if the label is missing or malformed.
    pub(super) fn of(message: &Message) -> Self {
        let label = message.metadata.get(&format!("{LABEL}{BLOCKS}"));
        label
            .and_then(|label| serde_json::from_str(label).ok())
            .unwrap_or_default()
    }

    /// Whether this part has extra fields.
    pub(super) fn has(&self, part: usize) -> bool {
        self.0.contains_key(&part)
    }

    /// Adds the extra fields to the block of a part, after the block's own fields.
    pub(super) fn write_into(&self, part: usize, block: &mut String) {
        let Some(fields) = self.0.get(&part) else {
            return;
        };
        let block_names: Vec<String> = Fields::parse(block)
            .map(|block| block.names().map(str::to_owned).collect())
            .unwrap_or_default();
        block.pop(); // the closing brace
        for (name, raw) in fields
            .iter()
            .filter(|(name, _)| !block_names.contains(name))
        {
            block.extend([",", &quoted(name), ":", raw.get()]);
        }
        block.push('}');
    }
}
