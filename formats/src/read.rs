//! Reads files: chooses the reader of each format.

use std::{
    fs::File,
    io::{Read, Seek},
    path::Path,
};

use crate::{
    Format, ReadError, ReadOptions, Sink, anthropic::Anthropic, claw0, cursor::Cursor,
    emitter::Emitter, message_list, openai::OpenAi, pi, sharegpt::ShareGpt, zeroclaw,
};

/// Sends all items of the file to `sink`, in order. The memory it takes depends on the largest
/// message, not on the length of the file. Blocks the thread.
pub fn read(
    path: &Path,
    format: Format,
    options: &ReadOptions,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    if format == Format::ZeroClaw {
        return zeroclaw::read(path, options, Emitter::new(sink, options.strict));
    }
    read_from(File::open(path)?, format, options, sink)
}

/// Like [`read`], for any source that can be read twice. ZeroClaw databases must be files; for them
/// this returns [`ReadError::Unknown`].
pub fn read_from<R: Read + Seek>(
    source: R,
    format: Format,
    options: &ReadOptions,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    let out = Emitter::new(sink, options.strict);
    let cursor = Cursor::new(source)?;
    match format {
        Format::OpenAi => message_list::read(cursor, OpenAi, options, out),
        Format::Anthropic => message_list::read(cursor, Anthropic, options, out),
        Format::ShareGpt => message_list::read(cursor, ShareGpt::default(), options, out),
        Format::Claw0 => claw0::read(cursor, options, out),
        Format::Pi => pi::read(cursor, options, out),
        Format::ZeroClaw => Err(ReadError::Unknown),
    }
}
