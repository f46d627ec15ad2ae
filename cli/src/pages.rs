//! Messages of a conversation from a server, a page at a time.

use anneal_proto::v1 as pb;
use tonic::{Code, Status};

use crate::client::{Client, patiently};

/// Messages of a page; the server ends a page at 4 MiB of text.
const PAGE: i32 = 100;

/// The messages of a conversation, oldest first; only one page is held.
pub(crate) struct Pages {
    client: Client,
    conversation: String,
    after: i64,
    ended: bool,
}

impl Pages {
    /// Of this conversation, from its first message on.
    pub(crate) fn of(client: &Client, conversation: &str) -> Self {
        Self { client: client.clone(), conversation: conversation.to_owned(), after: 0, ended: false }
    }

    /// The next page; None after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<pb::ListMessagesResponse>, Status> {
        if self.ended {
            return Ok(None);
        }
        let page = match self.page(PAGE, Content::Whole).await {
            // Pictures within messages are no text, and may fill an answer: then one message at a time.
            Err(status) if too_large(&status) => self.page(1, Content::Whole).await,
            page => page,
        };
        page.map(|page| Some(self.passed(page)))
    }

    /// The same; a message that fits no answer comes without its parts.
    pub(crate) async fn next_or_figures(&mut self) -> Result<Option<pb::ListMessagesResponse>, Status> {
        match self.next().await {
            Err(status) if too_large(&status) => {
                let page = self.page(1, Content::Figures).await?;
                Ok(Some(self.passed(page)))
            }
            next => next,
        }
    }

    fn passed(&mut self, page: pb::ListMessagesResponse) -> pb::ListMessagesResponse {
        self.ended = page.next_page_token.is_empty();
        self.after = page.messages.last().map_or(self.after, |last| last.message_id);
        page
    }

    async fn page(&self, page_size: i32, content: Content) -> Result<pb::ListMessagesResponse, Status> {
        let ask = pb::ListMessagesRequest {
            conversation_id: self.conversation.clone(),
            page_size,
            after_message_id: self.after,
            without_content: content == Content::Figures,
            ..Default::default()
        };
        patiently(async || self.client.messages().list_messages(ask.clone()).await).await
    }
}

/// What is asked for of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Whole,
    Figures,
}

/// Whether an answer was above what one may have.
fn too_large(status: &Status) -> bool {
    matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
}
