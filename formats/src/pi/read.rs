//! Reads a session in two passes: the first builds the tree, the second reads the branches.

use std::{
    collections::HashMap,
    io::{Read, Seek},
};

use super::{
    ENTRIES, LABEL,
    branch_reader::{BranchReader, remark_left_out},
    tree::Tree,
};
use crate::{
    Branches, Head, Location, ReadError, ReadOptions, SharedBeginning,
    conversation_extra::ConversationExtra,
    cursor::{Cursor, ELEMENT_BYTES, Position, Scanned},
    emitter::Emitter,
    json::{self, Fields, Notes, Unreadable},
};

/// Reads a session file.
pub(crate) fn read<R: Read + Seek>(
    mut cursor: Cursor<R>,
    options: &ReadOptions,
    mut out: Emitter,
) -> Result<(), ReadError> {
    let start = cursor.position();
    let tree = Tree::read(&mut cursor, &mut out)?;
    if tree.is_empty() {
        return out.finish();
    }
    let header = tree.header.unwrap_or(start);
    let head = if tree.header.is_some() {
        read_header(&mut cursor, header, options)?
    } else {
        head_from_name(options)
    };
    let head = match &tree.name {
        Some(name) if !name.trim().is_empty() => Head {
            title: name.clone(),
            ..head
        },
        _ => head,
    };
    let Some(active) = tree.active_leaf() else {
        out.emit_conversation(Location::Line(header.line), head)?;
        return out.finish();
    };
    let leaves = match options.branches {
        Branches::Active => vec![active],
        Branches::All => tree.leaves(),
    };
    let has_branches = leaves.len() > 1;
    let mut shared_beginnings: HashMap<u32, SharedBeginning> = HashMap::new();
    for leaf in leaves {
        let branch = tree.branch(leaf);
        let mut head = head.clone();
        if let Some(first) = branch.side_branch_start {
            let id = read_entry_id(&tree, first, &mut cursor)?;
            head.identity = format!("{}/{id}", head.identity);
            if leaf != active {
                head.title = format!("{} ({id})", head.title);
            }
        }
        let branch_point = tree.branch_point_of(&branch);
        head.shared = branch_point.and_then(|entry| shared_beginnings.get(&entry).copied());
        head.has_branches = has_branches;
        let mut reader = BranchReader::new(&tree, branch.entries);
        let (entries, remarks) = reader.take_trailing_entries(&head.metadata, &mut cursor)?;
        head.metadata
            .extend(entries.map(|entries| (ENTRIES.to_owned(), entries)));
        let conversation = out.conversation_count();
        out.emit_conversation(Location::Line(header.line), head)?;
        remark_left_out(remarks, &mut out)?;
        reader.emit_branch(&mut cursor, &mut out, |entry, out| {
            // The first branch with this entry is the one from which the others lead off.
            shared_beginnings.entry(entry).or_insert(SharedBeginning {
                conversation,
                messages: out.message_count(),
                items: out.item_count(),
            });
        })?;
    }
    out.finish()
}

fn head_from_name(options: &ReadOptions) -> Head {
    Head {
        identity: options.name.clone(),
        title: options.name.clone(),
        ..Default::default()
    }
}

/// The head of the session from its header line. A session without an id is identified by its file
/// name, as in ai-panel.
fn read_header<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    position: Position,
    options: &ReadOptions,
) -> Result<Head, ReadError> {
    cursor.seek_to(position)?;
    let Scanned::Bytes(bytes) = cursor.read_line(ELEMENT_BYTES)? else {
        return Ok(head_from_name(options));
    };
    let head = json::parse_bytes(bytes, &mut Notes::new(), |text, _| {
        let fields = Fields::parse(text)?;
        let mut head = Head {
            title: options.name.clone(),
            ..Default::default()
        };
        if let Some(extra) = ConversationExtra::of(&fields)? {
            let written = extra.head();
            let title = if written.title.is_empty() {
                head.title
            } else {
                written.title
            };
            head = Head { title, ..written };
        } else {
            head.agent_id = fields.text("agentId")?.unwrap_or_default();
            for name in fields
                .names()
                .filter(|name| !matches!(*name, "type" | "agentId"))
            {
                if let Some(value) = fields.text_or_raw(name)? {
                    head.metadata.insert(format!("{LABEL}{name}"), value);
                }
            }
        }
        if head.identity.is_empty() {
            head.identity = fields.text("id")?.unwrap_or_else(|| options.name.clone());
        }
        Ok(head)
    });
    head.map_err(|Unreadable(what)| ReadError::Refused {
        location: Location::Line(position.line),
        what,
    })
}

/// Reads the id of the entry, or returns its line number if it has none. If an earlier entry has
/// the same id, the line number is added.
fn read_entry_id<R: Read + Seek>(
    tree: &Tree,
    entry: u32,
    cursor: &mut Cursor<R>,
) -> Result<String, ReadError> {
    let position = tree.position_of(entry);
    cursor.seek_to(position)?;
    let Scanned::Bytes(bytes) = cursor.read_line(ELEMENT_BYTES)? else {
        return Ok(position.line.to_string());
    };
    let id = json::parse_bytes(bytes, &mut Notes::new(), |text, _| {
        Fields::parse(text)?.text_or_raw("id")
    });
    Ok(match id.ok().flatten() {
        Some(id) if tree.has_repeated_id(entry) => format!("{id}:{}", position.line),
        Some(id) => id,
        None => position.line.to_string(),
    })
}
