//! Fields of blocks that parts have no place for (`textSignature`, `partialJson` …): kept as a label of the message, and
//! written into the blocks again.

use std::collections::BTreeMap;

use anneal_core::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::LABEL;
use crate::json::{Fields, Notes, quoted};

/// The name of the label.
pub(super) const BLOCKS: &str = "blocks";

/// Such fields as they stand, by the number of their part from 0 on.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct BlockFields(BTreeMap<usize, BTreeMap<String, Box<RawValue>>>);

impl BlockFields {
    /// Takes the fields of a block that is this part, but for the ones that the part says.
    pub(super) fn take(&mut self, part: usize, block: &Fields, said: &[&str]) {
        let others = block.0.iter().filter(|(name, _)| !said.contains(&name.as_str()));
        let others: BTreeMap<String, Box<RawValue>> =
            others.map(|(name, raw)| (name.clone(), (*raw).to_owned())).collect();
        if !others.is_empty() {
            self.0.insert(part, others);
        }
    }

    /// As a label; None when there are none.
    pub(super) fn label(&self) -> Option<String> {
        let written = || serde_json::to_string(self).expect("it is JSON already");
        (!self.0.is_empty()).then(written)
    }

    /// They are nowhere kept.
    pub(super) fn unread(&self, notes: &mut Notes, whose: &str) {
        for name in self.0.values().flat_map(BTreeMap::keys) {
            notes.unread_field(name, whose);
        }
    }

    /// Those of a message, by its label; none where that says something else.
    pub(super) fn of(message: &Message) -> Self {
        let label = message.metadata.get(&format!("{LABEL}{BLOCKS}"));
        label.and_then(|label| serde_json::from_str(label).ok()).unwrap_or_default()
    }

    /// Whether the part has some.
    pub(super) fn has(&self, part: usize) -> bool {
        self.0.contains_key(&part)
    }

    /// Puts the part's fields into its block, behind the block's own.
    pub(super) fn put(&self, part: usize, block: &mut String) {
        let Some(fields) = self.0.get(&part) else { return };
        let own: Vec<String> =
            Fields::parse(block).map(|own| own.names().map(str::to_owned).collect()).unwrap_or_default();
        block.pop();
        for (name, raw) in fields.iter().filter(|(name, _)| !own.contains(name)) {
            block.extend([",", &quoted(name), ":", raw.get()]);
        }
        block.push('}');
    }
}
