//! Labels of a message for what items have and messages have no place for. Their names begin with
//! `openai.`. Whoever may append messages can set them too, so each is read as far as it is valid.

use std::collections::{BTreeMap, HashMap};

use anneal_core::message::PART_JOIN;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The role, if the message has none of this name: `developer`.
pub(super) const ROLE: &str = "openai.role";
/// The phase of a message of the assistant.
pub(super) const PHASE: &str = "openai.phase";
/// The status of the last item, unless it is `completed`.
pub(super) const STATUS: &str = "openai.status";
/// Notes on parts of the content, by their place in it.
const PARTS: &str = "openai.parts";
/// The texts and media that a thought or a result of a call consists of.
pub(super) const LAYOUT: &str = "openai.layout";
/// What the message has no place for of the compaction that it was made from.
pub(super) const COMPACTION: &str = "openai.compaction";
/// The items that were removed from the message.
const REMOVED: &str = "openai.removed";

/// The labels of a message.
pub(super) type Labels = HashMap<String, String>;

/// What a part of a content has beside its text or its address.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PartNote {
    /// The type, if it is not the one that the part would have by itself.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// The detail in which a model should see a picture or file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    /// The name of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<String>,
    /// Annotations of a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) annotations: Vec<Value>,
}

/// Notes on parts of one content, by their place in it. Parts without a note are left out.
#[derive(Debug, Default)]
pub(super) struct PartNotes(BTreeMap<usize, PartNote>);

impl PartNotes {
    /// Reads the notes.
    pub(super) fn read(labels: &Labels) -> Self {
        let notes = labels.get(PARTS);
        Self(
            notes
                .and_then(|notes| serde_json::from_str(notes).ok())
                .unwrap_or_default(),
        )
    }

    /// Adds the notes to the labels.
    pub(super) fn write(&self, labels: &mut Labels) {
        if !self.0.is_empty() {
            let notes = serde_json::to_string(&self.0).expect("numbers and texts can be written");
            labels.insert(PARTS.to_owned(), notes);
        }
    }

    /// Notes this on the part at this place.
    pub(super) fn add(&mut self, place: usize, note: PartNote) {
        if note != PartNote::default() {
            self.0.insert(place, note);
        }
    }

    /// The note on the part at this place.
    pub(super) fn take(&mut self, place: usize) -> PartNote {
        self.0.remove(&place).unwrap_or_default()
    }
}

/// One piece of a layout: its letter, and its text. [`MEDIA`] has no text.
pub(super) type Piece<'t> = (char, &'t str);

/// The letter of media in a layout.
pub(super) const MEDIA: char = 'm';

/// Joins the texts of these pieces by blank lines. Returns the text and its layout, such as
/// `t12,m,t5`: the letter of each piece, and the bytes of its text.
pub(super) fn join(pieces: &[Piece<'_>]) -> (String, String) {
    let texts = pieces.iter().filter(|(letter, _)| *letter != MEDIA);
    let texts: Vec<&str> = texts.map(|(_, text)| *text).collect();
    let layout = pieces.iter().map(|(letter, text)| match *letter {
        MEDIA => MEDIA.to_string(),
        letter => format!("{letter}{}", text.len()),
    });
    let layout: Vec<String> = layout.collect();
    (texts.join(PART_JOIN), layout.join(","))
}

/// The pieces that this text was joined from. None: it was not joined with this layout.
pub(super) fn split<'t>(layout: &str, text: &'t str) -> Option<Vec<Piece<'t>>> {
    let (mut pieces, mut rest, mut is_first) = (Vec::new(), text, true);
    for entry in layout.split(',').filter(|entry| !entry.is_empty()) {
        let letter = entry.chars().next()?;
        if letter == MEDIA {
            pieces.push((MEDIA, ""));
            continue;
        }
        let bytes: usize = entry.get(letter.len_utf8()..)?.parse().ok()?;
        if !std::mem::take(&mut is_first) {
            rest = rest.strip_prefix(PART_JOIN)?;
        }
        let (piece, after) = rest.split_at_checked(bytes)?;
        pieces.push((letter, piece));
        rest = after;
    }
    rest.is_empty().then_some(pieces)
}

/// Items that were removed from a message. The label is such as `0@0,2@3`: the index of each, and
/// how many of the parts that are left stood before it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct RemovedItems(Vec<(u32, usize)>);

impl RemovedItems {
    /// Reads the removed items.
    pub(super) fn read(labels: &Labels) -> Self {
        let entries = labels.get(REMOVED).map(String::as_str).unwrap_or_default();
        let entries = entries.split(',').filter_map(|entry| {
            let (index, place) = entry.split_once('@')?;
            Some((index.parse().ok()?, place.parse().ok()?))
        });
        Self(entries.collect())
    }

    /// Sets the label.
    pub(super) fn write(&self, labels: &mut Labels) {
        let entries = self
            .0
            .iter()
            .map(|(index, place)| format!("{index}@{place}"));
        let entries: Vec<String> = entries.collect();
        labels.insert(REMOVED.to_owned(), entries.join(","));
    }

    /// Whether an item stood between the part at this place and the one before it.
    pub(super) fn has_gap_at(&self, place: usize) -> bool {
        self.0.iter().any(|(_, removed)| *removed == place)
    }

    /// Whether the item with this index was removed.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.0.iter().any(|(removed, _)| *removed == index)
    }

    /// Adds an item, whose parts are removed from the message.
    pub(super) fn add(&mut self, index: u32, parts: &std::ops::Range<usize>) {
        for (_, place) in &mut self.0 {
            if *place >= parts.end {
                *place -= parts.len();
            }
        }
        self.0.push((index, parts.start));
        self.0.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_as_it_was_joined() {
        for pieces in [
            vec![],
            vec![('t', "")],
            vec![('t', "a"), ('t', "")],
            vec![(MEDIA, "")],
            vec![('s', "é\n\n"), (MEDIA, ""), ('c', "\n\nb"), (MEDIA, "")],
        ] {
            let (text, layout) = join(&pieces);
            assert_eq!(split(&layout, &text), Some(pieces), "{layout}");
        }
        assert_eq!(join(&[('t', "ab"), (MEDIA, ""), ('t', "c")]).1, "t2,m,t1");
    }

    #[test]
    fn a_layout_of_another_text_splits_nothing() {
        for (layout, text) in [
            ("t1", "ab"),
            ("t3", "ab"),
            ("t1", "é"),
            ("t1,t1", "ab"),
            ("", "a"),
            ("t", "a"),
            ("tx", "a"),
            ("é1", "ab"),
            ("t99999999999999999999", "a"),
        ] {
            assert_eq!(split(layout, text), None, "{layout} of {text}");
        }
    }

    #[test]
    fn removed_items_are_read_as_they_were_written_and_their_places_move() {
        let mut removed = RemovedItems::default();
        // Of parts 0..5 the item 2 was 3..4, then the item 0 was 0..2.
        removed.add(2, &(3..4));
        assert!(removed.has_gap_at(3) && !removed.has_gap_at(1));
        removed.add(0, &(0..2));
        let mut labels = Labels::new();
        removed.write(&mut labels);
        assert_eq!(labels[REMOVED], "0@0,2@1");
        assert_eq!(RemovedItems::read(&labels), removed);
        assert!(removed.contains(2) && !removed.contains(1));
        let broken = Labels::from([(REMOVED.to_owned(), "x,1,@,-1@0,3@4".to_owned())]);
        assert_eq!(RemovedItems::read(&broken).0, [(3, 4)]);
    }

    #[test]
    fn notes_that_cannot_be_read_are_none() {
        let labels = Labels::from([(PARTS.to_owned(), "[1]".to_owned())]);
        assert!(PartNotes::read(&labels).0.is_empty());
    }
}
