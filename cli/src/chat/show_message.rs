//! `/show`: prints an original message, page by page.

use anneal_proto::v1 as pb;
use unicode_width::UnicodeWidthStr as _;

use super::{
    Chat,
    columns::{grouped, screenful},
    errors::ChatError,
    screen::{self, Reader},
};
use crate::sanitize::StreamSanitizer;

/// Bytes fetched at once: a few screens.
const PIECE_BYTES: i64 = 64 * 1024;

/// A message that is being printed.
struct MessageReader {
    conversation_id: String,
    message_id: i64,
    /// Bytes fetched so far.
    fetched: i64,
    /// Bytes of the whole message; 0 before the first piece.
    bytes: i64,
    /// Fetched text that is not printed yet.
    text: String,
    sanitizer: StreamSanitizer,
}

impl Chat {
    /// Prints the message. Asks a person before each further page.
    pub(super) async fn show_message(&mut self, message_id: i64) -> Result<(), ChatError> {
        let mut reader = MessageReader {
            conversation_id: self.target.id()?,
            message_id,
            fetched: 0,
            bytes: 0,
            text: String::new(),
            sanitizer: StreamSanitizer::default(),
        };
        let message = self.fetch_piece(&mut reader).await?;
        let description = description(&message);
        self.screen.print_note(&description)?;
        // Columns of the text above a page: the description, later one line of the page before.
        let mut columns_above = description.width();
        loop {
            if reader.fetched < reader.bytes && reader.text.len() < PIECE_BYTES as usize / 2 {
                self.fetch_piece(&mut reader).await?;
            }
            if self.screen.reader == Reader::Pipe {
                self.screen.print_piece(&std::mem::take(&mut reader.text))?;
                if reader.fetched >= reader.bytes {
                    return Ok(self.screen.end_line()?);
                }
                continue;
            }
            let (columns, rows) = screen::size();
            // Rows stay free: for what is above the page, and for the question below it.
            let above = columns_above.div_ceil(columns.max(1));
            let end = screenful(&reader.text, rows.saturating_sub(above + 1), columns);
            columns_above = 1;
            self.screen.print_page(&reader.text[..end])?;
            reader.text.drain(..end);
            if reader.text.is_empty() && reader.fetched >= reader.bytes {
                return Ok(());
            }
            let left = reader.bytes - reader.fetched + reader.text.len() as i64;
            let question = format!(
                "-- {} more bytes: Enter continues, q stops --",
                grouped(left.unsigned_abs())
            );
            if !self.lines.confirm_next_page(question, &self.screen).await? {
                return Ok(());
            }
        }
    }

    /// Fetches the next piece into the reader. Returns the message without its parts.
    async fn fetch_piece(&self, reader: &mut MessageReader) -> Result<pb::Message, ChatError> {
        let ask = pb::GetMessageRequest {
            conversation_id: reader.conversation_id.clone(),
            message_id: reader.message_id,
            range: Some(pb::ByteRange {
                offset: reader.fetched,
                length: PIECE_BYTES,
            }),
        };
        let found = self.client.messages().get_message(ask).await?.into_inner();
        let message = found.message.unwrap_or_default();
        let range = found.range.unwrap_or_default();
        reader.bytes = message.text_bytes;
        // An empty range would be requested forever.
        reader.fetched = if range.length > 0 {
            range.offset + range.length
        } else {
            reader.bytes
        };
        reader.text.push_str(&reader.sanitizer.next(&found.text));
        if reader.fetched >= reader.bytes {
            reader.text.push_str(reader.sanitizer.end());
        }
        Ok(message)
    }
}

/// One line about the message: author, turn, tokens, and its summary.
fn description(message: &pb::Message) -> String {
    let who = match message.role() {
        pb::Role::User => "the user's",
        pb::Role::Assistant => "the model's",
        pb::Role::Tool => "a tool's",
        pb::Role::System | pb::Role::Unspecified => "the application's",
    };
    let summary = match &message.summary {
        Some(summary) => format!(
            "; contexts send a summary of {} tokens once the message is cool",
            grouped(summary.tokens)
        ),
        None => String::new(),
    };
    let tokens = message.tokens.unwrap_or_default().tokens;
    format!(
        "message {} is {who}, of turn {}: {} tokens{summary}",
        message.message_id,
        message.turn,
        grouped(tokens)
    )
}
