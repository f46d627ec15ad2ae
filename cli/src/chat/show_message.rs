//! `/show`: prints an original message, page by page.

use anneal_proto::v1 as pb;
use unicode_width::UnicodeWidthStr as _;

use super::{Chat, errors::ChatError, screen::Reader};
use crate::{
    columns::{grouped, screenful},
    sanitize::StreamSanitizer,
    terminal_size::{self, TerminalSize},
};

/// Bytes fetched per call. A screen shows about 2,000.
const PIECE_BYTES: i64 = 64 * 1024;

/// A message that is being shown.
struct ShownMessage {
    conversation_id: String,
    message_id: i64,
    /// Bytes fetched so far.
    fetched: i64,
    /// Bytes of the whole message; 0 before the first piece.
    total: i64,
    /// Fetched text that is not printed yet.
    unprinted: String,
    sanitizer: StreamSanitizer,
}

impl Chat {
    /// Prints the message. Asks a person before each further page.
    pub(super) async fn show_message(&mut self, message_id: i64) -> Result<(), ChatError> {
        let mut shown = ShownMessage {
            conversation_id: self.target.id()?,
            message_id,
            fetched: 0,
            total: 0,
            unprinted: String::new(),
            sanitizer: StreamSanitizer::default(),
        };
        let message = self.fetch_piece(&mut shown).await?;
        let description = description(&message);
        self.screen.print_note(&description)?;
        // The width of the text above a page. Above the first page it is the description. Above a
        // later page, one column stands for the last row of the page before, which stays.
        let mut columns_above = description.width();
        loop {
            if shown.fetched < shown.total && shown.unprinted.len() < PIECE_BYTES as usize / 2 {
                self.fetch_piece(&mut shown).await?;
            }
            if self.screen.reader == Reader::Pipe {
                self.screen
                    .print_piece(&std::mem::take(&mut shown.unprinted))?;
                if shown.fetched >= shown.total {
                    return Ok(self.screen.end_line()?);
                }
                continue;
            }
            let TerminalSize { columns, rows } = terminal_size::size();
            // Some rows stay free: for the text above the page, and one for the question below it.
            let rows_above = columns_above.div_ceil(columns.max(1));
            let end = screenful(
                &shown.unprinted,
                rows.saturating_sub(rows_above + 1),
                columns,
            );
            columns_above = 1;
            self.screen.print_page(&shown.unprinted[..end])?;
            shown.unprinted.drain(..end);
            if shown.unprinted.is_empty() && shown.fetched >= shown.total {
                return Ok(());
            }
            let bytes_left = shown.total - shown.fetched + shown.unprinted.len() as i64;
            let question = format!(
                "-- {} more bytes: Enter continues, q stops --",
                grouped(bytes_left.unsigned_abs())
            );
            if !self.lines.confirm_next_page(question, &self.screen).await? {
                return Ok(());
            }
        }
    }

    /// Fetches the next piece into `shown`. Returns the message without its parts.
    async fn fetch_piece(&self, shown: &mut ShownMessage) -> Result<pb::Message, ChatError> {
        let ask = pb::GetMessageRequest {
            conversation_id: shown.conversation_id.clone(),
            message_id: shown.message_id,
            range: Some(pb::ByteRange {
                offset: shown.fetched,
                length: PIECE_BYTES,
            }),
            ..Default::default()
        };
        let found = self.client.messages().get_message(ask).await?.into_inner();
        let message = found.message.unwrap_or_default();
        let range = found.range.unwrap_or_default();
        shown.total = message.text_bytes;
        // An empty range would be requested forever.
        shown.fetched = if range.length > 0 {
            range.offset + range.length
        } else {
            shown.total
        };
        shown.unprinted.push_str(&shown.sanitizer.next(&found.text));
        if shown.fetched >= shown.total {
            shown.unprinted.push_str(shown.sanitizer.end());
        }
        Ok(message)
    }
}

/// One line about the message: author, turn, tokens, and its summary.
fn description(message: &pb::Message) -> String {
    let author = match message.role() {
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
    let stopped = if message.stopped {
        "; it was stopped before its end"
    } else {
        ""
    };
    let tokens = message.tokens.unwrap_or_default().tokens;
    format!(
        "message {} is {author}, of turn {}: {} tokens{stopped}{summary}",
        message.message_id,
        message.turn,
        grouped(tokens)
    )
}
