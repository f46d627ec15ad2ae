//! Reads one branch of a session, entry by entry.

use std::{
    collections::{BTreeMap, HashMap},
    io::{Read, Seek},
};

use anneal_core::{
    limits::METADATA_BYTES,
    message::{Message, Role},
};

use super::{
    ENTRIES,
    entry::{Compaction, Entry, NonMessage, is_message, parse_entry},
    tree::{FirstKept, Tree},
};
use crate::{
    ImportOutcome, Location, ReadError, Summary,
    cursor::{Cursor, ELEMENT_BYTES, Scanned},
    emitter::Emitter,
    json::{self, Notes, Unreadable, short_name},
    message_extra::MessageExtra,
    storage_limits,
};

/// Most entries at the end of a branch that are examined for entries after the last message. More
/// of them do not fit into the metadata.
const MAX_TRAILING_ENTRIES: usize = 256;

/// Entries that were shortened or left out: their locations, and remarks on them.
type LeftOut = Vec<(Location, String)>;

/// A reader of one branch.
pub(super) struct BranchReader<'t> {
    tree: &'t Tree,
    branch: Vec<u32>,
    /// Index of the first entry after the last message. It and the entries after it are kept in the
    /// head.
    first_trailing: usize,
    /// For each entry or message that is the first that some compaction keeps: the number of
    /// messages before it.
    messages_before: HashMap<FirstKept, u64>,
    /// Message entries so far, unreadable ones included.
    message_entries: u64,
    /// Messages covered by the newest summary.
    covered: u64,
    /// The model that answers from here on; empty: unknown.
    model: String,
    /// Entries for the label of the next message, with their locations. Their texts together fit
    /// into the metadata.
    pending_entries: Vec<(Location, NonMessage)>,
}

impl<'t> BranchReader<'t> {
    pub(super) fn new(tree: &'t Tree, branch: Vec<u32>) -> Self {
        Self {
            tree,
            first_trailing: branch.len(),
            branch,
            messages_before: HashMap::new(),
            message_entries: 0,
            covered: 0,
            model: String::new(),
            pending_entries: Vec::new(),
        }
    }

    /// Takes the entries after the last message, which no message's label can have. Returns the
    /// value of a label of the conversation with these entries (None if there are none), and those
    /// that were shortened or left out.
    pub(super) fn take_trailing_entries<R: Read + Seek>(
        &mut self,
        labels: &BTreeMap<String, String>,
        cursor: &mut Cursor<R>,
    ) -> Result<(Option<String>, LeftOut), ReadError> {
        let first_examined = self.branch.len().saturating_sub(MAX_TRAILING_ENTRIES);
        let mut found = Vec::new();
        while self.first_trailing > first_examined {
            let position = self.tree.position_of(self.branch[self.first_trailing - 1]);
            cursor.seek_to(position)?;
            let Scanned::Bytes(bytes) = cursor.read_line(ELEMENT_BYTES)? else {
                break;
            };
            match json::parse_bytes(bytes, &mut Notes::new(), parse_entry) {
                Ok(Entry::Message(..)) => break,
                Ok(Entry::Other(non_message) | Entry::Model(_, non_message)) => {
                    found.push((Location::Line(position.line), non_message));
                }
                Ok(Entry::Compaction(compaction)) => {
                    let kept = compaction.kept.into_iter();
                    found.extend(kept.map(|kept| (Location::Line(position.line), kept)));
                }
                Ok(Entry::Separator | Entry::SessionName) | Err(_) => {}
            }
            self.first_trailing -= 1;
        }
        found.reverse();
        let (kept, left_out) = entries_label(found, labels);
        Ok((Some(kept).filter(|kept| !kept.is_empty()), left_out))
    }

    /// Emits the messages, summaries and separators of the branch. Calls `note_branch_point` after
    /// each entry after which a side branch begins.
    pub(super) fn emit_branch<R: Read + Seek>(
        mut self,
        cursor: &mut Cursor<R>,
        out: &mut Emitter,
        mut note_branch_point: impl FnMut(u32, &Emitter),
    ) -> Result<(), ReadError> {
        for index in 0..self.branch.len() {
            let entry = self.branch[index];
            self.read_entry(entry, cursor, out)?;
            if self.tree.is_branch_point(entry) {
                note_branch_point(entry, out);
            }
        }
        for (location, _) in self.pending_entries {
            out.remark(
                location,
                ImportOutcome::SetAside,
                "an entry that no message follows",
            )?;
        }
        Ok(())
    }

    /// Reads one entry of the branch, and emits what it holds.
    fn read_entry<R: Read + Seek>(
        &mut self,
        entry: u32,
        cursor: &mut Cursor<R>,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        let position = self.tree.position_of(entry);
        self.note_first_kept(FirstKept::Entry(entry), out);
        for _ in 0..self.tree.unreadable_before(entry) {
            self.count_message_entry(out);
        }
        cursor.seek_to(position)?;
        let location = Location::Line(position.line);
        let Scanned::Bytes(bytes) = cursor.read_line(ELEMENT_BYTES)? else {
            return Ok(());
        };
        let mut notes = Notes::new();
        let mut is_message_entry = false;
        let found = json::parse_bytes(bytes, &mut notes, |text, notes| {
            let found = parse_entry(text, notes);
            is_message_entry = found
                .as_ref()
                .map_or_else(|_| is_message(text), Entry::is_message);
            found
        });
        if is_message_entry {
            self.count_message_entry(out);
        }
        match found {
            Ok(Entry::Message(message, extra)) => {
                self.emit_message(location, *message, extra, notes, out)
            }
            Ok(found) => {
                out.add_notes(location, notes)?;
                self.emit_entry(entry, location, found, out)
            }
            Err(Unreadable(what)) => out.refuse(location, what),
        }
    }

    /// Records the number of messages before `candidate`, if it is the first entry or message that
    /// some compaction keeps.
    fn note_first_kept(&mut self, candidate: FirstKept, out: &Emitter) {
        if self.tree.is_first_kept(candidate) {
            self.messages_before.insert(candidate, out.message_count());
        }
    }

    /// Counts one more message entry, which compactions of ai-panel refer to by number.
    fn count_message_entry(&mut self, out: &Emitter) {
        self.message_entries += 1;
        self.note_first_kept(FirstKept::Message(self.message_entries), out);
    }

    fn emit_entry(
        &mut self,
        entry: u32,
        location: Location,
        found: Entry,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        match found {
            Entry::Message(..) | Entry::SessionName => Ok(()),
            Entry::Separator => out.emit_separator(),
            Entry::Compaction(compaction) => match self.covered_messages(entry, &compaction) {
                Ok(covers) => {
                    self.covered = covers;
                    let Compaction {
                        summary: text,
                        tokens_before,
                        tokens_after,
                        kept,
                    } = compaction;
                    out.emit_summary(Summary {
                        covers,
                        text,
                        model: self.model.clone(),
                        tokens_before,
                        tokens_after,
                        created_us: None,
                    })?;
                    match kept {
                        Some(kept) => self.keep_for_next_message(entry, location, kept, out),
                        None => Ok(()),
                    }
                }
                Err(why) => out.remark(
                    location,
                    ImportOutcome::SetAside,
                    format!("a compaction {why}"),
                ),
            },
            Entry::Model(model, non_message) => {
                self.model = model;
                self.keep_for_next_message(entry, location, non_message, out)
            }
            Entry::Other(non_message) => {
                self.keep_for_next_message(entry, location, non_message, out)
            }
        }
    }

    /// Keeps an entry for the label of the next message, unless it is one of the trailing entries,
    /// which the head has.
    fn keep_for_next_message(
        &mut self,
        entry: u32,
        location: Location,
        mut non_message: NonMessage,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        // A child has a larger index than its parent, so the entries of the branch ascend.
        if self
            .branch
            .get(self.first_trailing)
            .is_some_and(|first| entry >= *first)
        {
            return Ok(());
        }
        let pending_bytes: usize = self
            .pending_entries
            .iter()
            .map(|(_, non_message)| non_message.text.len())
            .sum();
        if pending_bytes + non_message.text.len() > METADATA_BYTES {
            out.remark(
                location,
                ImportOutcome::SetAside,
                too_large_remark(&non_message),
            )?;
            non_message.text.clone_from(&non_message.short);
        }
        if pending_bytes + non_message.text.len() <= METADATA_BYTES {
            self.pending_entries.push((location, non_message));
        }
        Ok(())
    }

    fn emit_message(
        &mut self,
        location: Location,
        mut message: Message,
        extra: Option<MessageExtra>,
        notes: Notes,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        if message.role == Role::Assistant {
            let label = |name: &str| {
                message
                    .metadata
                    .get(name)
                    .map(String::as_str)
                    .unwrap_or_default()
            };
            let model = format!("{}/{}", label("pi.provider"), label("pi.model"));
            if model != "/" {
                model.trim_matches('/').clone_into(&mut self.model);
            }
        }
        let (kept, left_out) =
            entries_label(std::mem::take(&mut self.pending_entries), &message.metadata);
        remark_left_out(left_out, out)?;
        if !kept.is_empty() {
            message.metadata.insert(ENTRIES.into(), kept);
        }
        out.add_record(location, vec![message], extra, notes)
            .map(drop)
    }

    /// How many messages the compaction at `entry` covers, or why it is set aside.
    fn covered_messages(&self, entry: u32, compaction: &Compaction) -> Result<u64, &'static str> {
        if compaction.summary.trim().is_empty() {
            return Err("without a summary");
        }
        let first_kept = self
            .tree
            .first_kept_by(entry)
            .ok_or("that names no earlier entry as the first one that it keeps")?;
        let covers = self.messages_before.get(&first_kept).copied();
        match covers.ok_or("whose first kept entry is not on the branch")? {
            0 => Err("that keeps everything"),
            covers if covers <= self.covered => Err("that covers no more than the one before it"),
            covers => Ok(covers),
        }
    }
}

/// Remarks on the entries that were shortened or left out.
pub(super) fn remark_left_out(remarks: LeftOut, out: &mut Emitter) -> Result<(), ReadError> {
    remarks
        .into_iter()
        .try_for_each(|(location, what)| out.remark(location, ImportOutcome::SetAside, what))
}

/// Puts the entries into the lines of a label that fits beside `labels`. An entry that does not fit
/// is shortened to its type and id, or left out. Returns the label's value, and the entries that
/// were shortened or left out.
fn entries_label(
    entries: Vec<(Location, NonMessage)>,
    labels: &BTreeMap<String, String>,
) -> (String, LeftOut) {
    let (mut label, mut left_out) = (String::new(), Vec::new());
    for (location, non_message) in entries {
        let label_with = |text: &str| {
            if label.is_empty() {
                text.to_owned()
            } else {
                format!("{label}\n{text}")
            }
        };
        let (whole, short) = (
            label_with(&non_message.text),
            label_with(&non_message.short),
        );
        if storage_limits::label_fits(labels, ENTRIES, &whole) {
            label = whole;
            continue;
        }
        if storage_limits::label_fits(labels, ENTRIES, &short) {
            label = short;
        }
        left_out.push((location, too_large_remark(&non_message)));
    }
    (label, left_out)
}

fn too_large_remark(non_message: &NonMessage) -> String {
    format!(
        "an entry of type {} does not fit into the metadata; its type and id are kept if they fit",
        short_name(&non_message.kind)
    )
}
