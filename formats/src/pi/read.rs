//! Sessions read in two passes: the first finds the tree, the second reads along a branch of it.

use std::io::{Read, Seek};

use super::{
    ENTRIES, LABEL,
    session::{Reading, set_aside},
    tree::Tree,
};
use crate::{
    Branches, Head, Place, ReadError, ReadOptions,
    cursor::{Cursor, ELEMENT_BYTES, Position, Scanned},
    json::{self, Bad, Fields, Notes},
    out::Out,
    talks::About,
};

/// Reads a session.
pub(crate) fn read<R: Read + Seek>(
    mut cursor: Cursor<R>,
    options: &ReadOptions,
    mut out: Out,
) -> Result<(), ReadError> {
    let start = cursor.place();
    let tree = Tree::plant(&mut cursor, &mut out)?;
    if tree.is_empty() {
        return out.end();
    }
    let header = tree.header.unwrap_or(start);
    let head = if tree.header.is_some() { header_of(&mut cursor, header, options)? } else { named(options) };
    let head = match &tree.name {
        Some(name) if !name.trim().is_empty() => Head { title: name.clone(), ..head },
        _ => head,
    };
    let mut leaves = tree.leaves();
    let Some(active) = leaves.pop() else {
        out.conversation(Place::Line(header.line), head)?;
        return out.end();
    };
    if options.branches == Branches::Active {
        leaves.clear();
    }
    for leaf in leaves.into_iter().chain([active]) {
        let branch = tree.branch(leaf);
        let mut head = head.clone();
        if let Some(first) = branch.left_with {
            let id = id_of(&tree, first, &mut cursor)?;
            head.identity = format!("{}/{id}", head.identity);
            if leaf != active {
                head.title = format!("{} ({id})", head.title);
            }
        }
        let mut reading = Reading::new(&tree, branch.entries);
        let (entries, remarks) = reading.trailing(&head.metadata, &mut cursor)?;
        head.metadata.extend(entries.map(|entries| (ENTRIES.to_owned(), entries)));
        out.conversation(Place::Line(header.line), head)?;
        set_aside(remarks, &mut out)?;
        reading.run(&mut cursor, &mut out)?;
    }
    out.end()
}

fn named(options: &ReadOptions) -> Head {
    Head { identity: options.name.clone(), title: options.name.clone(), ..Default::default() }
}

/// The head that the header says. A session without an id is known by its file's name, as ai-panel does.
fn header_of<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    place: Position,
    options: &ReadOptions,
) -> Result<Head, ReadError> {
    cursor.go(place)?;
    let Scanned::Bytes(bytes) = cursor.line(ELEMENT_BYTES)? else { return Ok(named(options)) };
    let head = json::read(bytes, &mut Notes::new(), |text, _| {
        let fields = Fields::parse(text)?;
        let mut head = Head { title: options.name.clone(), ..Default::default() };
        if let Some(about) = About::of(&fields)? {
            let said = about.head();
            let title = if said.title.is_empty() { head.title } else { said.title };
            head = Head { title, ..said };
        } else {
            head.agent_id = fields.text("agentId")?.unwrap_or_default();
            for name in fields.names().filter(|name| !matches!(*name, "type" | "agentId")) {
                if let Some(value) = fields.label(name)? {
                    head.metadata.insert(format!("{LABEL}{name}"), value);
                }
            }
        }
        if head.identity.is_empty() {
            head.identity = fields.text("id")?.unwrap_or_else(|| options.name.clone());
        }
        Ok(head)
    });
    head.map_err(|Bad(what)| ReadError::Refused { place: Place::Line(place.line), what })
}

/// The entry's id, or its line where it has none; both where another one has the same.
fn id_of<R: Read + Seek>(tree: &Tree, entry: u32, cursor: &mut Cursor<R>) -> Result<String, ReadError> {
    let place = tree.place(entry);
    cursor.go(place)?;
    let Scanned::Bytes(bytes) = cursor.line(ELEMENT_BYTES)? else { return Ok(place.line.to_string()) };
    let id = json::read(bytes, &mut Notes::new(), |text, _| Fields::parse(text)?.label("id"));
    Ok(match id.ok().flatten() {
        Some(id) if tree.repeats(entry) => format!("{id}:{}", place.line),
        Some(id) => id,
        None => place.line.to_string(),
    })
}
