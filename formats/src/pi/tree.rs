//! The tree of a session: for each entry, its position in the file and its parent.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    io::{Read, Seek},
};

use crate::{
    ImportOutcome, Location, ReadError,
    cursor::{Cursor, ELEMENT_BYTES, Position, Scanned},
    emitter::Emitter,
    json::{self, Fields, Notes, Unreadable},
};

/// The value of `parent` in an entry that has none.
const NO_PARENT: u32 = u32::MAX;

/// A line of the session.
struct Entry {
    offset: u64,
    line: u32,
    parent: u32,
}

/// The entries of a session.
#[derive(Default)]
pub(super) struct Tree {
    entries: Vec<Entry>,
    /// Used while the tree is built, to find parents and kept entries; empty afterwards.
    ids: EntryIds,
    /// For each compaction, by its index: the first entry or message that it keeps.
    first_kept: HashMap<u32, FirstKept>,
    /// The values of `first_kept`.
    all_first_kept: HashSet<FirstKept>,
    /// Entries whose id an earlier entry has too.
    entries_with_repeated_id: HashSet<u32>,
    /// For each entry, whether it has a child.
    has_child: Vec<bool>,
    /// The first entries of side branches: entries whose parent has an earlier child, and roots
    /// that are not the first entry.
    side_branch_starts: HashSet<u32>,
    /// The parents of `side_branch_starts`: entries with several children.
    branch_points: HashSet<u32>,
    /// For each unreadable line, in file order: the number of entries before it.
    unreadable_lines: Vec<u32>,
    /// The position of the header line.
    pub(super) header: Option<Position>,
    /// The last name that the user gave the session.
    pub(super) name: Option<String>,
}

/// Index of entries by a 64-bit hash of their ids, so that long ids take no memory.
#[derive(Default)]
struct EntryIds {
    hasher: RandomState,
    entries: HashMap<u64, u32>,
}

/// The first entry or message that a compaction keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FirstKept {
    /// By the index of the entry.
    Entry(u32),
    /// By the number of the message, from 1.
    Message(u64),
}

/// A path from the root to a leaf.
pub(super) struct Branch {
    pub(super) entries: Vec<u32>,
    /// The last entry on the path that is the first entry of a side branch. None: the path follows
    /// the first child everywhere.
    pub(super) side_branch_start: Option<u32>,
}

/// The fields of a line that the first pass reads.
struct Line {
    kind: String,
    id: Option<String>,
    parent: Parent,
    name: Option<String>,
    first_kept_id: Option<String>,
    first_kept_index: Option<u32>,
}

/// The parent of a line.
enum Parent {
    /// There is no `parentId`, as in version 1 and in ai-panel: the parent is the entry before it.
    PreviousEntry,
    /// `parentId` is null: the entry is a root.
    Root,
    /// The entry with this id.
    Id(String),
}

impl Tree {
    /// Builds the tree: reads the whole file once, and remarks on lines that cannot be read.
    pub(super) fn read<R: Read + Seek>(
        cursor: &mut Cursor<R>,
        out: &mut Emitter,
    ) -> Result<Self, ReadError> {
        let mut tree = Self::default();
        loop {
            let position = cursor.position();
            let bytes = match cursor.read_line(ELEMENT_BYTES)? {
                Scanned::Absent | Scanned::Truncated => break,
                Scanned::TooLong => {
                    tree.unreadable_lines.push(tree.entries.len() as u32);
                    out.refuse(
                        Location::Line(position.line),
                        "it is longer than a message may be",
                    )?;
                    continue;
                }
                Scanned::Bytes(bytes) if bytes.trim_ascii().is_empty() => continue,
                Scanned::Bytes(bytes) => bytes,
            };
            match json::parse_bytes(bytes, &mut Notes::new(), |text, _| parse_line(text)) {
                Err(Unreadable(what)) => {
                    tree.unreadable_lines.push(tree.entries.len() as u32);
                    out.refuse(Location::Line(position.line), what)?;
                }
                Ok(line) if line.kind == "session" => tree.add_header(position, out)?,
                Ok(line) => tree.add_entry(position, line, out)?,
            }
        }
        if tree.header.is_none() && !tree.entries.is_empty() {
            // Without a header, an unreadable line before all entries is taken for the header, not
            // for a message.
            if tree.unreadable_lines.first() == Some(&0) {
                tree.unreadable_lines.remove(0);
            }
            out.remark(
                Location::Line(1),
                ImportOutcome::Changed,
                "the session has no readable header, so it is identified by its file name",
            )?;
        }
        tree.ids.entries = HashMap::new();
        Ok(tree)
    }

    fn add_header(&mut self, position: Position, out: &mut Emitter) -> Result<(), ReadError> {
        if self.header.is_some() {
            return out.remark(
                Location::Line(position.line),
                ImportOutcome::SetAside,
                "a second header",
            );
        }
        self.header = Some(position);
        if self.entries.is_empty() {
            return Ok(());
        }
        out.remark(
            Location::Line(position.line),
            ImportOutcome::Changed,
            "the header is not the first line",
        )
    }

    fn add_entry(
        &mut self,
        position: Position,
        line: Line,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        let index = self.entries.len() as u32;
        let previous = index.checked_sub(1).unwrap_or(NO_PARENT);
        let parent = match line.parent {
            Parent::PreviousEntry => previous,
            Parent::Root => NO_PARENT,
            Parent::Id(parent) => {
                let parent = self.ids.find(&parent);
                if parent.is_none() {
                    out.remark(
                        Location::Line(position.line),
                        ImportOutcome::Changed,
                        "its parent does not exist, so the entry before it becomes its parent",
                    )?;
                }
                parent.unwrap_or(previous)
            }
        };
        if line.name.is_some() {
            self.name = line.name;
        }
        // This comes before the look-up of `firstKeptEntryId`, because a compaction may name itself
        // as the first entry that it keeps.
        if line.id.is_some_and(|id| self.ids.insert(&id, index)) {
            self.entries_with_repeated_id.insert(index);
        }
        let by_id_or_index = line
            .first_kept_id
            .as_deref()
            .and_then(|id| self.ids.find(id))
            .or(line.first_kept_index)
            .map(FirstKept::Entry);
        // ai-panel numbers messages from 1: `msg-11`.
        let by_number = || {
            let number = line.first_kept_id.as_deref()?.strip_prefix("msg-")?;
            Some(FirstKept::Message(number.parse().ok()?))
        };
        if let Some(first_kept) = by_id_or_index.or_else(by_number) {
            self.first_kept.insert(index, first_kept);
            self.all_first_kept.insert(first_kept);
        }
        let begins_side_branch = match self.has_child.get_mut(parent as usize) {
            Some(has_child) => std::mem::replace(has_child, true),
            // A root that is not the first entry begins a side branch too.
            None => index > 0,
        };
        if begins_side_branch {
            self.side_branch_starts.insert(index);
            if parent != NO_PARENT {
                self.branch_points.insert(parent);
            }
        }
        self.has_child.push(false);
        self.entries.push(Entry {
            offset: position.offset,
            line: u32::try_from(position.line).unwrap_or(u32::MAX),
            parent,
        });
        Ok(())
    }

    /// Whether the file has neither entries nor a header.
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.header.is_none()
    }

    /// The position of an entry in the file.
    pub(super) fn position_of(&self, entry: u32) -> Position {
        let Entry { offset, line, .. } = self.entries[entry as usize];
        Position {
            offset,
            line: line.into(),
        }
    }

    /// The first entry or message that a compaction keeps, as the compaction names it; None if it
    /// names none, or an entry's id that no entry up to the compaction has. The number of a message
    /// (`msg-11`) or of an entry (version 1) is not checked.
    pub(super) fn first_kept_by(&self, compaction: u32) -> Option<FirstKept> {
        self.first_kept.get(&compaction).copied()
    }

    /// Whether some compaction keeps this entry or message as the first one.
    pub(super) fn is_first_kept(&self, candidate: FirstKept) -> bool {
        self.all_first_kept.contains(&candidate)
    }

    /// Whether an earlier entry has the same id.
    pub(super) fn has_repeated_id(&self, entry: u32) -> bool {
        self.entries_with_repeated_id.contains(&entry)
    }

    /// Number of unreadable lines between this entry and the one before it in the file.
    pub(super) fn unreadable_before(&self, entry: u32) -> u64 {
        // The numbers ascend. `entry` is an index, so `entry` entries come before it.
        let from = self
            .unreadable_lines
            .partition_point(|entries_before| *entries_before < entry);
        self.unreadable_lines[from..].partition_point(|entries_before| *entries_before == entry)
            as u64
    }

    /// The leaf of the active branch: the last entry. None if there are no entries.
    pub(super) fn active_leaf(&self) -> Option<u32> {
        (self.entries.len() as u32).checked_sub(1)
    }

    /// The leaves of all branches, in the order in which the branches begin, so that a branch comes
    /// after the one from which it leads off. Empty if there are no entries.
    pub(super) fn leaves(&self) -> Vec<u32> {
        // For each entry, the last one on its path that begins a side branch; 0: there is none.
        let mut beginnings: Vec<u32> = Vec::with_capacity(self.entries.len());
        for (index, entry) in (0..).zip(&self.entries) {
            beginnings.push(if self.side_branch_starts.contains(&index) {
                index
            } else {
                beginnings.get(entry.parent as usize).copied().unwrap_or(0)
            });
        }
        let mut leaves: Vec<u32> = (0..self.entries.len() as u32)
            .filter(|entry| !self.has_child[*entry as usize])
            .collect();
        leaves.sort_by_key(|leaf| beginnings[*leaf as usize]);
        leaves
    }

    /// Whether a side branch begins after this entry.
    pub(super) fn is_branch_point(&self, entry: u32) -> bool {
        self.branch_points.contains(&entry)
    }

    /// The entry after which a side branch begins. None: it begins with a root, or the branch is no
    /// side branch.
    pub(super) fn branch_point_of(&self, branch: &Branch) -> Option<u32> {
        let first = branch.side_branch_start?;
        Some(self.entries[first as usize].parent).filter(|parent| *parent != NO_PARENT)
    }

    /// The path from the root to a leaf. It ends, because a parent always has a smaller index than
    /// its children.
    ///
    /// A side branch is identified by its first entry after the fork. That entry stays the same
    /// when the branch grows, and when other branches fork from it later.
    pub(super) fn branch(&self, leaf: u32) -> Branch {
        let parent = |entry: &u32| {
            Some(self.entries[*entry as usize].parent).filter(|parent| *parent != NO_PARENT)
        };
        let mut entries: Vec<u32> = std::iter::successors(Some(leaf), parent).collect();
        entries.reverse();
        let side_branch_start = entries
            .iter()
            .rev()
            .find(|entry| self.side_branch_starts.contains(entry))
            .copied();
        Branch {
            entries,
            side_branch_start,
        }
    }
}

impl EntryIds {
    fn find(&self, id: &str) -> Option<u32> {
        self.entries.get(&self.hasher.hash_one(id)).copied()
    }

    /// Inserts the id of an entry. Returns whether an earlier entry has it; the newer entry then
    /// replaces the earlier one.
    fn insert(&mut self, id: &str, entry: u32) -> bool {
        self.entries
            .insert(self.hasher.hash_one(id), entry)
            .is_some()
    }
}

fn parse_line(text: &str) -> Result<Line, Unreadable> {
    let fields = Fields::parse(text)?;
    let kind = fields.required_text("type")?;
    let is_compaction = kind == "compaction";
    Ok(Line {
        id: fields.text_or_raw("id")?,
        parent: match fields.text_or_raw("parentId")? {
            Some(id) => Parent::Id(id),
            None if fields.0.contains_key("parentId") => Parent::Root,
            None => Parent::PreviousEntry,
        },
        name: if kind == "session_info" {
            fields.text("name")?
        } else {
            None
        },
        first_kept_id: if is_compaction {
            fields.text("firstKeptEntryId")?
        } else {
            None
        },
        // In version 1 this is the index of a line of the file. Line 0 is the header.
        first_kept_index: fields
            .raw("firstKeptEntryIndex")
            .filter(|_| is_compaction)
            .and_then(|raw| raw.parse::<u32>().ok()?.checked_sub(1)),
        kind,
    })
}
