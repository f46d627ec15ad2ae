//! Reads the messages of a conversation page by page.

use anneal_proto::v1 as pb;
use tonic::{Code, Status};

use crate::client::{Client, retry};

/// Messages per page. The server ends a page at 4 MiB of content and summaries, unless its first
/// message alone has more.
const PAGE: i32 = 100;

/// The messages of a conversation, oldest first. One page is in memory.
pub(crate) struct MessagePages {
    client: Client,
    conversation_id: String,
    include_withdrawn: bool,
    /// Id of the last message of the previous page; 0 before the first.
    after_message_id: i64,
    /// Whether the last page was returned.
    is_at_end: bool,
}

impl MessagePages {
    /// Starts at the first message of the conversation.
    pub(crate) fn of(client: &Client, conversation_id: &str) -> Self {
        Self {
            client: client.clone(),
            conversation_id: conversation_id.to_owned(),
            include_withdrawn: false,
            after_message_id: 0,
            is_at_end: false,
        }
    }

    /// The same pages with withdrawn messages, too.
    pub(crate) fn with_withdrawn(self) -> Self {
        Self {
            include_withdrawn: true,
            ..self
        }
    }

    /// The next page; None after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<pb::ListMessagesResponse>, Status> {
        if self.is_at_end {
            return Ok(None);
        }
        let page = match self.fetch_page(PAGE, Content::Full).await {
            // The server may lack the memory for a page, but not for one message. Then the page has
            // one message.
            Err(status) if may_smaller_answer_succeed(&status) => {
                self.fetch_page(1, Content::Full).await
            }
            page => page,
        };
        page.map(|page| Some(self.advance_past(page)))
    }

    /// Like [`Self::next`]. If even a page of one message is too large for an answer, the message
    /// comes without its parts. If the server is only overloaded, the call fails: later it would
    /// return the parts.
    pub(crate) async fn next_or_without_parts(
        &mut self,
    ) -> Result<Option<pb::ListMessagesResponse>, Status> {
        match self.next().await {
            Err(status) if is_too_large(&status) => {
                let page = self.fetch_page(1, Content::WithoutParts).await?;
                Ok(Some(self.advance_past(page)))
            }
            next => next,
        }
    }

    fn advance_past(&mut self, page: pb::ListMessagesResponse) -> pb::ListMessagesResponse {
        self.is_at_end = page.next_page_token.is_empty();
        self.after_message_id = page
            .messages
            .last()
            .map_or(self.after_message_id, |last| last.message_id);
        page
    }

    async fn fetch_page(
        &self,
        page_size: i32,
        content: Content,
    ) -> Result<pb::ListMessagesResponse, Status> {
        let ask = pb::ListMessagesRequest {
            conversation_id: self.conversation_id.clone(),
            page_size,
            after_message_id: self.after_message_id,
            without_content: content == Content::WithoutParts,
            include_withdrawn: self.include_withdrawn,
            ..Default::default()
        };
        retry(async || self.client.messages().list_messages(ask.clone()).await).await
    }
}

/// Whether messages are fetched with their parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Full,
    WithoutParts,
}

/// Whether a smaller answer may succeed: the answer was too large, or the server lacked the memory
/// for it or was overloaded otherwise (`RESOURCE_EXHAUSTED`).
fn may_smaller_answer_succeed(status: &Status) -> bool {
    is_too_large(status) || status.code() == Code::ResourceExhausted
}

/// Whether the answer was larger than the server sends (`ANSWER_TOO_LARGE`), or than this client
/// decodes. No other refusal has the code `OUT_OF_RANGE`.
pub(crate) fn is_too_large(status: &Status) -> bool {
    status.code() == Code::OutOfRange
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_without_parts_only_if_it_is_too_large() {
        let too_large = Status::out_of_range("the answer has 70000000 bytes");
        assert!(is_too_large(&too_large) && may_smaller_answer_succeed(&too_large));
        let overloaded = Status::resource_exhausted("the server is overloaded");
        assert!(!is_too_large(&overloaded) && may_smaller_answer_succeed(&overloaded));
    }
}
