//! One branch of a session, read entry by entry.

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
    entry::{Aside, Compaction, Entry, entry, is_message},
    tree::{Kept, Tree},
};
use crate::{
    Fate, Place, ReadError, Summary,
    cursor::{Cursor, ELEMENT_BYTES, Scanned},
    extra::Extra,
    fit,
    json::{self, Bad, Notes, named},
    out::Out,
};

/// Entries at a branch's end that are looked at, to keep those after the last message; more do not fit into labels.
const TRAILING: usize = 256;

/// What has no room, and where it stands.
type LeftOut = Vec<(Place, String)>;

/// A branch that is being read.
pub(super) struct Reading<'t> {
    tree: &'t Tree,
    branch: Vec<u32>,
    /// From here on the branch has no message, and its head keeps what there is.
    trailing: usize,
    /// Messages before what compactions keep first.
    before: HashMap<Kept, u64>,
    /// Message entries so far, those that cannot be read included.
    numbered: u64,
    /// What the newest summary covers.
    covered: u64,
    /// Who answers, as far as the branch has said.
    model: String,
    /// Entries for the next message's labels, each with its place; no more than could fit.
    aside: Vec<(Place, Aside)>,
}

impl<'t> Reading<'t> {
    pub(super) fn new(tree: &'t Tree, branch: Vec<u32>) -> Self {
        Self {
            tree,
            trailing: branch.len(),
            branch,
            before: HashMap::new(),
            numbered: 0,
            covered: 0,
            model: String::new(),
            aside: Vec::new(),
        }
    }

    /// The entries after the last message, as a label of the conversation: no message follows that could have them. Then what
    /// of them is left out.
    pub(super) fn trailing<R: Read + Seek>(
        &mut self,
        labels: &BTreeMap<String, String>,
        cursor: &mut Cursor<R>,
    ) -> Result<(Option<String>, LeftOut), ReadError> {
        let least = self.branch.len().saturating_sub(TRAILING);
        let mut found = Vec::new();
        while self.trailing > least {
            let place = self.tree.place(self.branch[self.trailing - 1]);
            cursor.go(place)?;
            let Scanned::Bytes(bytes) = cursor.line(ELEMENT_BYTES)? else { break };
            match json::read(bytes, &mut Notes::new(), entry) {
                Ok(Entry::Says(..)) => break,
                Ok(Entry::Other(aside) | Entry::Model(_, aside)) => found.push((Place::Line(place.line), aside)),
                Ok(Entry::Compaction(_) | Entry::Separator | Entry::Named) | Err(_) => {}
            }
            self.trailing -= 1;
        }
        found.reverse();
        let (kept, cut) = kept(found, labels);
        Ok((Some(kept).filter(|kept| !kept.is_empty()), cut))
    }

    /// Reads it to its end.
    pub(super) fn run<R: Read + Seek>(mut self, cursor: &mut Cursor<R>, out: &mut Out) -> Result<(), ReadError> {
        for index in 0..self.branch.len() {
            let id = self.branch[index];
            let place = self.tree.place(id);
            self.mark(Kept::Entry(id), out);
            for _ in 0..self.tree.lost_before(id) {
                self.number(out);
            }
            cursor.go(place)?;
            let place = Place::Line(place.line);
            let Scanned::Bytes(bytes) = cursor.line(ELEMENT_BYTES)? else { continue };
            let mut notes = Notes::new();
            let mut is_numbered = false;
            let found = json::read(bytes, &mut notes, |text, notes| {
                let found = entry(text, notes);
                is_numbered = found.as_ref().map_or_else(|_| is_message(text), Entry::is_message);
                found
            });
            if is_numbered {
                self.number(out);
            }
            match found {
                Ok(Entry::Says(message, extra)) => self.says(place, *message, extra, notes, out)?,
                Ok(found) => {
                    out.notes(place, notes)?;
                    self.found(id, place, found, out)?;
                }
                Err(Bad(what)) => out.refuse(place, what)?,
            }
        }
        for (place, _) in self.aside {
            out.remark(place, Fate::SetAside, "an entry that no message follows")?;
        }
        Ok(())
    }

    /// Notes how many messages stand before this, if a compaction keeps it first.
    fn mark(&mut self, kept: Kept, out: &Out) {
        if self.tree.is_kept_first(kept) {
            self.before.insert(kept, out.messages());
        }
    }

    /// One more message entry.
    fn number(&mut self, out: &Out) {
        self.numbered += 1;
        self.mark(Kept::Message(self.numbered), out);
    }

    fn found(&mut self, id: u32, place: Place, found: Entry, out: &mut Out) -> Result<(), ReadError> {
        match found {
            Entry::Says(..) | Entry::Named => Ok(()),
            Entry::Separator => out.separator(),
            Entry::Compaction(compaction) => match self.covers(id, &compaction) {
                Ok(covers) => {
                    self.covered = covers;
                    let Compaction { summary: text, tokens_before, tokens_after } = compaction;
                    out.summary(Summary { covers, text, model: self.model.clone(), tokens_before, tokens_after })
                }
                Err(why) => out.remark(place, Fate::SetAside, format!("a compaction {why}")),
            },
            Entry::Model(model, aside) => {
                self.model = model;
                self.put(id, place, aside, out)
            }
            Entry::Other(aside) => self.put(id, place, aside, out),
        }
    }

    /// Keeps an entry for the next message, unless the head has it.
    fn put(&mut self, id: u32, place: Place, mut aside: Aside, out: &mut Out) -> Result<(), ReadError> {
        if self.branch.get(self.trailing).is_some_and(|first| id >= *first) {
            return Ok(());
        }
        let held: usize = self.aside.iter().map(|(_, aside)| aside.text.len()).sum();
        if held + aside.text.len() > METADATA_BYTES {
            out.remark(place, Fate::SetAside, cut(&aside))?;
            aside.text.clone_from(&aside.short);
        }
        if held + aside.text.len() <= METADATA_BYTES {
            self.aside.push((place, aside));
        }
        Ok(())
    }

    fn says(
        &mut self,
        place: Place,
        mut message: Message,
        extra: Option<Extra>,
        notes: Notes,
        out: &mut Out,
    ) -> Result<(), ReadError> {
        if message.role == Role::Assistant {
            let label = |name: &str| message.metadata.get(name).map(String::as_str).unwrap_or_default();
            let model = format!("{}/{}", label("pi.provider"), label("pi.model"));
            if model != "/" {
                model.trim_matches('/').clone_into(&mut self.model);
            }
        }
        let (kept, cut) = kept(std::mem::take(&mut self.aside), &message.metadata);
        set_aside(cut, out)?;
        if !kept.is_empty() {
            message.metadata.insert(ENTRIES.into(), kept);
        }
        out.record(place, vec![message], extra, notes).map(drop)
    }

    /// How many messages a compaction covers, or why it is none.
    fn covers(&self, id: u32, compaction: &Compaction) -> Result<u64, &'static str> {
        if compaction.summary.trim().is_empty() {
            return Err("without a summary");
        }
        let kept = self.tree.kept_first(id).and_then(|kept| self.before.get(&kept).copied());
        match kept.ok_or("whose first kept entry is not on the branch")? {
            0 => Err("that keeps everything"),
            covers if covers <= self.covered => Err("that covers no more than the one before it"),
            covers => Ok(covers),
        }
    }
}

/// Says what is left out, and why.
pub(super) fn set_aside(remarks: LeftOut, out: &mut Out) -> Result<(), ReadError> {
    remarks.into_iter().try_for_each(|(place, what)| out.remark(place, Fate::SetAside, what))
}

/// The entries as lines of a label beside these: whole, or else with their type and their id, as far as they fit. Then what
/// is left out.
fn kept(entries: Vec<(Place, Aside)>, labels: &BTreeMap<String, String>) -> (String, LeftOut) {
    let (mut kept, mut left_out) = (String::new(), Vec::new());
    for (place, aside) in entries {
        let with = |text: &str| if kept.is_empty() { text.to_owned() } else { format!("{kept}\n{text}") };
        let (whole, short) = (with(&aside.text), with(&aside.short));
        if fit::has_room(labels, ENTRIES, &whole) {
            kept = whole;
            continue;
        }
        if fit::has_room(labels, ENTRIES, &short) {
            kept = short;
        }
        left_out.push((place, cut(&aside)));
    }
    (kept, left_out)
}

fn cut(aside: &Aside) -> String {
    format!(
        "an entry of type {} that does not fit into the metadata; its type and id are kept if they do",
        named(&aside.kind)
    )
}
