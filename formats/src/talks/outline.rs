//! What an object says beside its list of messages, and where that list begins.

use std::{
    collections::BTreeMap,
    io::{self, Read, Seek},
};

use serde_json::value::RawValue;

use crate::{
    cursor::{Cursor, Position, Scanned},
    json::{self, Fields, Notes},
};

/// Bytes of a field's name.
const NAME_BYTES: usize = 4 * 1024;

/// An object without its list of messages.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    fields: BTreeMap<String, Box<RawValue>>,
    /// Where the list begins.
    pub(crate) list: Option<Position>,
    /// Whether the file ends in the middle of it.
    pub(crate) torn: bool,
}

impl Outline {
    /// Its fields.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields(self.fields.iter().map(|(name, raw)| (name.clone(), &**raw)).collect())
    }
}

/// The next object's outline; passes over it. Fields of more than `most` bytes are left out. Of several lists the one
/// named first in `lists` counts.
pub(crate) fn outline<R: Read + Seek>(cursor: &mut Cursor<R>, lists: &[&str], most: usize) -> io::Result<Outline> {
    let mut found = Outline::default();
    let mut best = usize::MAX;
    cursor.pass(b'{')?;
    loop {
        if cursor.pass(b'}')? {
            return Ok(found);
        }
        let Scanned::Bytes(name) = cursor.value(NAME_BYTES)? else { break };
        let name = json::read(name, &mut Notes::new(), |text, _| json::text(text)).unwrap_or_default();
        if !cursor.pass(b':')? {
            break;
        }
        let rank = lists.iter().position(|list| *list == name);
        let begins = cursor.peek_after_blanks()?;
        if let (Some(rank), Some(b'[')) = (rank, begins) {
            if rank < best {
                (best, found.list) = (rank, Some(cursor.place()));
            }
            if matches!(cursor.skip()?, Scanned::Torn) {
                break;
            }
        } else {
            match cursor.value(most)? {
                Scanned::Bytes(bytes) => found.keep(name, bytes),
                Scanned::Long => {}
                Scanned::Nothing | Scanned::Torn => break,
            }
        }
        cursor.pass(b',')?;
    }
    found.torn = true;
    Ok(found)
}

impl Outline {
    fn keep(&mut self, name: String, bytes: Vec<u8>) {
        if let Ok(raw) = RawValue::from_string(json::mended(bytes)) {
            self.fields.insert(name, raw);
        }
    }
}

/// Whether the list that comes next holds objects with a field that satisfies `test`; by its first element. The cursor
/// stays where it is.
pub(crate) fn elements_are<R: Read + Seek>(cursor: &mut Cursor<R>, test: fn(&str) -> bool) -> io::Result<bool> {
    let start = cursor.place();
    cursor.pass(b'[')?;
    while cursor.pass(b',')? {}
    let are = match cursor.peek_after_blanks()? {
        Some(b'{') => outline(cursor, &[], NAME_BYTES)?.fields.keys().any(|name| test(name)),
        _ => false,
    };
    cursor.go(start)?;
    Ok(are)
}
