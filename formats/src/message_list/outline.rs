//! Scans an object for its fields and for the position of its list of messages.

use std::{
    collections::BTreeMap,
    io::{self, Read, Seek},
};

use serde_json::value::RawValue;

use crate::{
    cursor::{Cursor, Position, Scanned},
    json::{self, Fields, Notes},
};

/// Longest field name, in bytes.
const NAME_BYTES: usize = 4 * 1024;

/// The fields of an object except its list of messages, and the list's position.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    fields: BTreeMap<String, Box<RawValue>>,
    /// The position of the list; None if the object has none.
    pub(crate) list: Option<Position>,
    /// Whether the object was not read to its end: the file ends inside it, or it is not JSON.
    pub(crate) truncated: bool,
}

impl Outline {
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields(
            self.fields
                .iter()
                .map(|(name, raw)| (name.clone(), &**raw))
                .collect(),
        )
    }
}

/// Reads the outline of the next object and skips the object. Leaves out fields of more than
/// `max_field_bytes`. If several lists are present, the name that comes first in `lists` wins.
pub(crate) fn read_outline<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    lists: &[&str],
    max_field_bytes: usize,
) -> io::Result<Outline> {
    let mut outline = Outline::default();
    let mut best_rank = usize::MAX;
    cursor.consume_if(b'{')?;
    loop {
        if cursor.consume_if(b'}')? {
            return Ok(outline);
        }
        let Scanned::Bytes(name) = cursor.read_value(NAME_BYTES)? else {
            break;
        };
        let name = json::parse_bytes(name, &mut Notes::new(), |text, _| json::text(text))
            .unwrap_or_default();
        if !cursor.consume_if(b':')? {
            break;
        }
        let rank = lists.iter().position(|list| *list == name);
        let first_byte = cursor.peek_non_blank()?;
        if let (Some(rank), Some(b'[')) = (rank, first_byte) {
            if rank < best_rank {
                (best_rank, outline.list) = (rank, Some(cursor.position()));
            }
            if matches!(cursor.skip_value()?, Scanned::Truncated) {
                break;
            }
        } else {
            match cursor.read_value(max_field_bytes)? {
                Scanned::Bytes(bytes) => outline.keep(name, bytes),
                Scanned::TooLong => {}
                Scanned::Absent | Scanned::Truncated => break,
            }
        }
        cursor.consume_if(b',')?;
    }
    outline.truncated = true;
    Ok(outline)
}

impl Outline {
    fn keep(&mut self, name: String, bytes: Vec<u8>) {
        if let Ok(raw) = RawValue::from_string(json::repaired_text(bytes)) {
            self.fields.insert(name, raw);
        }
    }
}

/// Whether the first element of the next list is an object with a field that satisfies `test`. The
/// cursor stays where it is.
pub(crate) fn first_element_matches<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    test: fn(&str) -> bool,
) -> io::Result<bool> {
    let start = cursor.position();
    cursor.consume_if(b'[')?;
    while cursor.consume_if(b',')? {}
    let matches = match cursor.peek_non_blank()? {
        Some(b'{') => read_outline(cursor, &[], NAME_BYTES)?
            .fields
            .keys()
            .any(|name| test(name)),
        _ => false,
    };
    cursor.seek_to(start)?;
    Ok(matches)
}
