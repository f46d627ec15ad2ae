//! The entries of a session as a tree: where each is in the file, and what it follows. Nothing else is kept of them.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    io::{Read, Seek},
};

use crate::{
    Fate, Place, ReadError,
    cursor::{Cursor, ELEMENT_BYTES, Position, Scanned},
    json::{self, Bad, Fields, Notes},
    out::Out,
};

/// Before the first entry.
const NONE: u32 = u32::MAX;

/// A line of the session.
struct Entry {
    offset: u64,
    line: u32,
    parent: u32,
}

/// A session's lines.
#[derive(Default)]
pub(super) struct Tree {
    entries: Vec<Entry>,
    /// What the first pass needs to find parents; empty afterwards.
    ids: Ids,
    /// What compactions keep first, by the compactions' entries.
    kept: HashMap<u32, Kept>,
    firsts: HashSet<Kept>,
    /// Entries whose id one before them has already.
    repeated: HashSet<u32>,
    /// Whether each entry has one after it.
    followed: Vec<bool>,
    /// Entries that follow where another one did before: the beginnings of side branches.
    forks: HashSet<u32>,
    /// Lines that cannot be read, each as the number of entries before it.
    lost: Vec<u32>,
    /// The header's line.
    pub(super) header: Option<Position>,
    /// The name that the user gave the session last.
    pub(super) name: Option<String>,
}

/// Entries by a digest of their ids: eight bytes, however long an id is.
#[derive(Default)]
struct Ids {
    hasher: RandomState,
    entries: HashMap<u64, u32>,
}

/// What a compaction keeps first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    /// This entry and what follows it.
    Entry(u32),
    /// The message of this number, from 1 on.
    Message(u64),
}

/// A way from the root to an end.
pub(super) struct Branch {
    pub(super) entries: Vec<u32>,
    /// The entry with which it left the others for good; None: it follows the first way at each fork.
    pub(super) left_with: Option<u32>,
}

/// What the first pass reads of a line.
struct Line {
    kind: String,
    id: Option<String>,
    parent: Parent,
    name: Option<String>,
    kept: Option<String>,
    kept_index: Option<u32>,
}

/// What a line says that it follows.
enum Parent {
    /// Nothing: the line before it, as in v1 and in ai-panel's files.
    Unsaid,
    /// It is the first one.
    Root,
    /// The entry of this id.
    Id(String),
}

impl Tree {
    /// Reads the file once. Lines that cannot be read are remarked on.
    pub(super) fn plant<R: Read + Seek>(cursor: &mut Cursor<R>, out: &mut Out) -> Result<Self, ReadError> {
        let mut tree = Self::default();
        loop {
            let place = cursor.place();
            let bytes = match cursor.line(ELEMENT_BYTES)? {
                Scanned::Nothing | Scanned::Torn => break,
                Scanned::Long => {
                    tree.lost.push(tree.entries.len() as u32);
                    out.refuse(Place::Line(place.line), "it is longer than any message")?;
                    continue;
                }
                Scanned::Bytes(bytes) if bytes.trim_ascii().is_empty() => continue,
                Scanned::Bytes(bytes) => bytes,
            };
            match json::read(bytes, &mut Notes::new(), |text, _| line(text)) {
                Err(Bad(what)) => {
                    tree.lost.push(tree.entries.len() as u32);
                    out.refuse(Place::Line(place.line), what)?;
                }
                Ok(line) if line.kind == "session" => tree.head(place, out)?,
                Ok(line) => tree.add(place, line, out)?,
            }
        }
        if tree.header.is_none() && !tree.entries.is_empty() {
            // the first line that cannot be read is no message, but the header
            if tree.lost.first() == Some(&0) {
                tree.lost.remove(0);
            }
            out.remark(
                Place::Line(1),
                Fate::Changed,
                "it has no header that can be read; it is known by its name alone",
            )?;
        }
        tree.ids.entries = HashMap::new();
        Ok(tree)
    }

    fn head(&mut self, place: Position, out: &mut Out) -> Result<(), ReadError> {
        if self.header.is_some() {
            return out.remark(Place::Line(place.line), Fate::SetAside, "a second header");
        }
        self.header = Some(place);
        if self.entries.is_empty() {
            return Ok(());
        }
        out.remark(Place::Line(place.line), Fate::Changed, "the header is not the first line")
    }

    fn add(&mut self, place: Position, line: Line, out: &mut Out) -> Result<(), ReadError> {
        let index = self.entries.len() as u32;
        let before = index.checked_sub(1).unwrap_or(NONE);
        let parent = match line.parent {
            Parent::Unsaid => before,
            Parent::Root => NONE,
            Parent::Id(parent) => {
                let parent = self.ids.find(&parent);
                if parent.is_none() {
                    out.remark(
                        Place::Line(place.line),
                        Fate::Changed,
                        "its parent is not there; it follows the line before it",
                    )?;
                }
                parent.unwrap_or(before)
            }
        };
        if line.name.is_some() {
            self.name = line.name;
        }
        // before what it keeps: a compaction may keep nothing but itself
        if line.id.is_some_and(|id| self.ids.put(&id, index)) {
            self.repeated.insert(index);
        }
        let entry = line.kept.as_deref().and_then(|id| self.ids.find(id)).or(line.kept_index).map(Kept::Entry);
        // ai-panel numbers messages from 1 on: `msg-11`
        let number = || Some(Kept::Message(line.kept.as_deref()?.strip_prefix("msg-")?.parse().ok()?));
        if let Some(kept) = entry.or_else(number) {
            self.kept.insert(index, kept);
            self.firsts.insert(kept);
        }
        let forks = match self.followed.get_mut(parent as usize) {
            Some(followed) => std::mem::replace(followed, true),
            None => index > 0,
        };
        if forks {
            self.forks.insert(index);
        }
        self.followed.push(false);
        self.entries.push(Entry { offset: place.offset, line: u32::try_from(place.line).unwrap_or(u32::MAX), parent });
        Ok(())
    }

    /// Whether there is nothing in it, not even a header.
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.header.is_none()
    }

    /// Where an entry is.
    pub(super) fn place(&self, entry: u32) -> Position {
        let Entry { offset, line, .. } = self.entries[entry as usize];
        Position { offset, line: line.into() }
    }

    /// What a compaction keeps first; None where it is not said, or not there.
    pub(super) fn kept_first(&self, compaction: u32) -> Option<Kept> {
        self.kept.get(&compaction).copied()
    }

    /// Whether a compaction keeps this first.
    pub(super) fn is_kept_first(&self, kept: Kept) -> bool {
        self.firsts.contains(&kept)
    }

    /// Whether an entry before this one has its id.
    pub(super) fn repeats(&self, entry: u32) -> bool {
        self.repeated.contains(&entry)
    }

    /// Lines between this entry and the one before it in the file that cannot be read.
    pub(super) fn lost_before(&self, entry: u32) -> u64 {
        let from = self.lost.partition_point(|before| *before < entry);
        self.lost[from..].partition_point(|before| *before == entry) as u64
    }

    /// The ends of all branches, the active one last; none in a session without entries.
    pub(super) fn leaves(&self) -> Vec<u32> {
        (0..self.entries.len() as u32).filter(|entry| !self.followed[*entry as usize]).collect()
    }

    /// The way from the root to an entry. Parents stand before their children, so it ends.
    ///
    /// A branch is told by where it left, which stays the same while it grows, and whatever branches off it later.
    pub(super) fn branch(&self, leaf: u32) -> Branch {
        let parent = |entry: &u32| Some(self.entries[*entry as usize].parent).filter(|parent| *parent != NONE);
        let mut entries: Vec<u32> = std::iter::successors(Some(leaf), parent).collect();
        entries.reverse();
        let left_with = entries.iter().rev().find(|entry| self.forks.contains(entry)).copied();
        Branch { entries, left_with }
    }
}

impl Ids {
    fn find(&self, id: &str) -> Option<u32> {
        self.entries.get(&self.hasher.hash_one(id)).copied()
    }

    /// Whether there was one of this id already; the newer one stands.
    fn put(&mut self, id: &str, entry: u32) -> bool {
        self.entries.insert(self.hasher.hash_one(id), entry).is_some()
    }
}

fn line(text: &str) -> Result<Line, Bad> {
    let fields = Fields::parse(text)?;
    let kind = fields.must("type")?;
    let is_compaction = kind == "compaction";
    Ok(Line {
        id: fields.label("id")?,
        parent: match fields.label("parentId")? {
            Some(id) => Parent::Id(id),
            None if fields.0.contains_key("parentId") => Parent::Root,
            None => Parent::Unsaid,
        },
        name: if kind == "session_info" { fields.text("name")? } else { None },
        kept: if is_compaction { fields.text("firstKeptEntryId")? } else { None },
        // in v1: the place among the file's lines, of which the header is the first
        kept_index: fields
            .raw("firstKeptEntryIndex")
            .filter(|_| is_compaction)
            .and_then(|raw| raw.parse::<u32>().ok()?.checked_sub(1)),
        kind,
    })
}
