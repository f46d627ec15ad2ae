//! `/show`: a message as it was said, page by page.

use anneal_proto::v1 as pb;

use super::{
    Chat,
    columns::{grouped, screenful},
    screen::{self, Reader},
    trouble::Trouble,
};
use crate::paint::Pieces;

/// Bytes that are fetched at once: a few screens.
const PIECE: i64 = 64 * 1024;

/// A message that is being read.
struct Reading {
    conversation_id: String,
    message_id: i64,
    /// Bytes of the message's text that were fetched, and that there are.
    fetched: i64,
    bytes: i64,
    /// What was fetched and is not printed yet.
    text: String,
    pieces: Pieces,
}

impl Chat {
    /// Prints the message; a person is asked between two pages.
    pub(super) async fn show(&mut self, message_id: i64) -> Result<(), Trouble> {
        let mut reading = Reading {
            conversation_id: self.place.id()?,
            message_id,
            fetched: 0,
            bytes: 0,
            text: String::new(),
            pieces: Pieces::default(),
        };
        let about = self.fetch(&mut reading).await?;
        self.screen.note(&head(&about))?;
        loop {
            if reading.fetched < reading.bytes && reading.text.len() < PIECE as usize / 2 {
                self.fetch(&mut reading).await?;
            }
            if self.screen.reader == Reader::Pipe {
                self.screen.piece(&std::mem::take(&mut reading.text))?;
                if reading.fetched >= reading.bytes {
                    return Ok(self.screen.end_line()?);
                }
                continue;
            }
            let (columns, rows) = screen::size();
            let end = screenful(&reading.text, rows.saturating_sub(2), columns);
            self.screen.page(&reading.text[..end])?;
            reading.text.drain(..end);
            if reading.text.is_empty() && reading.fetched >= reading.bytes {
                return Ok(());
            }
            let left = reading.bytes - reading.fetched + reading.text.len() as i64;
            let question = format!("-- {} bytes more: Enter goes on, q ends --", grouped(left.unsigned_abs()));
            if !self.lines.go_on(question, &self.screen).await? {
                return Ok(());
            }
        }
    }

    /// Fetches the next piece; returns what is known of the message.
    async fn fetch(&self, reading: &mut Reading) -> Result<pb::Message, Trouble> {
        let ask = pb::GetMessageRequest {
            conversation_id: reading.conversation_id.clone(),
            message_id: reading.message_id,
            range: Some(pb::ByteRange { offset: reading.fetched, length: PIECE }),
        };
        let found = self.client.messages().get_message(ask).await?.into_inner();
        let message = found.message.unwrap_or_default();
        let range = found.range.unwrap_or_default();
        reading.bytes = message.text_bytes;
        // A range without bytes would be asked for for ever.
        reading.fetched = if range.length > 0 { range.offset + range.length } else { reading.bytes };
        reading.text.push_str(&reading.pieces.next(&found.text));
        if reading.fetched >= reading.bytes {
            reading.text.push_str(reading.pieces.end());
        }
        Ok(message)
    }
}

fn head(message: &pb::Message) -> String {
    let who = match message.role() {
        pb::Role::User => "the user's",
        pb::Role::Assistant => "the model's",
        pb::Role::Tool => "a tool's",
        pb::Role::System | pb::Role::Unspecified => "the application's",
    };
    let summary = match &message.summary {
        Some(summary) => format!("; contexts send a summary of {} once it is cool", grouped(summary.tokens)),
        None => String::new(),
    };
    let tokens = message.tokens.unwrap_or_default().tokens;
    format!("message {} is {who}, of turn {}: {} tokens{summary}", message.message_id, message.turn, grouped(tokens))
}
