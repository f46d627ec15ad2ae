//! Further calls for a conversation in a test: usage, single messages, byte ranges, contexts, jobs,
//! compactions. Also figures and checks of a built context.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Built, TestConversation, pb};

impl TestConversation<'_> {
    /// GetContextUsage of this conversation.
    pub async fn usage(&self) -> pb::GetContextUsageResponse {
        let ask = pb::GetContextUsageRequest {
            conversation_id: self.id.clone(),
            ..Default::default()
        };
        self.app
            .contexts()
            .get_context_usage(ask)
            .await
            .expect("the call succeeds")
            .into_inner()
    }

    /// One message with its whole content.
    pub async fn message(&self, message_id: i64) -> pb::Message {
        let ask = pb::GetMessageRequest {
            conversation_id: self.id.clone(),
            message_id,
            ..Default::default()
        };
        self.app
            .messages()
            .get_message(ask)
            .await
            .expect("the message exists")
            .into_inner()
            .message
            .expect("a message")
    }

    /// Reads a range of bytes of a message's plain text. Returns the text and its actual range.
    pub async fn range(
        &self,
        message_id: i64,
        offset: i64,
        length: i64,
    ) -> (String, pb::ByteRange) {
        let range = Some(pb::ByteRange { offset, length });
        let ask = pb::GetMessageRequest {
            conversation_id: self.id.clone(),
            message_id,
            range,
            ..Default::default()
        };
        let got = self
            .app
            .messages()
            .get_message(ask)
            .await
            .expect("the message exists")
            .into_inner();
        (got.text, got.range.expect("a range"))
    }

    /// Builds a context that ends with these messages, which are not stored.
    pub async fn context_with(&self, current_input: Vec<pb::NewMessage>) -> Built {
        self.build(pb::BuildContextRequest {
            current_input,
            ..Default::default()
        })
        .await
        .expect("the context is built")
    }

    /// The jobs of this conversation, in any state.
    pub async fn jobs(&self) -> Vec<pb::Job> {
        let ask = pb::ListJobsRequest {
            conversation_id: self.id.clone(),
            ..Default::default()
        };
        self.app
            .operators()
            .list_jobs(ask)
            .await
            .expect("the list is returned")
            .into_inner()
            .jobs
    }

    /// Runs a worker, requests a checkpoint and waits for it. Jobs of other conversations run too.
    pub async fn compact(&self, request_id: &str, focus: &str) -> pb::CompactResponse {
        let stop = CancellationToken::new();
        let worker = self.app.worker();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { worker.run(stop).await }
        });
        let done = self
            .request_compaction(request_id, focus, Duration::from_secs(30))
            .await;
        stop.cancel();
        running.await.expect("the worker stops");
        done
    }

    /// Requests a checkpoint and does not wait for it.
    pub async fn start_compaction(&self, request_id: &str) -> pb::CompactResponse {
        self.request_compaction(request_id, "", Duration::ZERO)
            .await
    }

    async fn request_compaction(
        &self,
        request_id: &str,
        focus: &str,
        wait: Duration,
    ) -> pb::CompactResponse {
        let ask = pb::CompactRequest {
            conversation_id: self.id.clone(),
            request_id: request_id.into(),
            focus: focus.into(),
            wait: Some(wait.try_into().expect("a short time")),
            ..Default::default()
        };
        self.app
            .contexts()
            .compact(ask)
            .await
            .expect("the compaction is requested")
            .into_inner()
    }
}

impl Built {
    /// The sum of tokens of the messages in this segment.
    pub fn tokens_of(&self, segment: pb::Segment) -> u64 {
        self.0
            .messages
            .iter()
            .filter(|message| message.segment() == segment)
            .map(|message| message.tokens)
            .sum()
    }

    /// The repairs of the context: kind and message id.
    pub fn repairs(&self) -> Vec<(pb::RepairKind, i64)> {
        self.0
            .repairs
            .iter()
            .map(|repair| (repair.kind(), repair.message_id))
            .collect()
    }

    /// Asserts that each tool call is answered once, before the next message that is neither an
    /// assistant nor a tool message, and that each result has a call.
    pub fn assert_tools_paired(&self) {
        let mut waiting: Vec<String> = Vec::new();
        for message in &self.0.messages {
            for part in message.parts.iter().filter_map(|part| part.part.as_ref()) {
                match part {
                    pb::part::Part::ToolUse(call) => waiting.push(call.id.clone()),
                    pb::part::Part::ToolResult(result) => {
                        let place = waiting.iter().position(|id| *id == result.tool_use_id);
                        waiting.remove(place.expect("a result follows its call"));
                    }
                    _ => {}
                }
            }
            let answering = matches!(message.role(), pb::Role::Assistant | pb::Role::Tool);
            assert!(
                waiting.is_empty() || answering,
                "calls {waiting:?} are not followed directly by their results"
            );
        }
        assert!(waiting.is_empty(), "calls {waiting:?} are not answered");
    }
}
