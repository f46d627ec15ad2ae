//! The appends of clients: plain and streamed ones, each retried until there is a final answer;
//! repeated and concurrent ones; and those that misuse a request id.

use pb::{append_large_message_request as large, message_service_client::MessageServiceClient};
use tonic::{Status, transport::Channel};

use super::{
    campaign_state::CampaignState,
    client::Client,
    history::{RecordedAppend, RecordedConversation},
    recount::check_count,
};
use crate::{pb, status_details, user};

/// Size of a streamed chunk, in bytes.
const CHUNK_BYTES: usize = 20_000;

impl Client {
    /// Sends an append until there is a final answer. None if there was none in time.
    pub(super) async fn send(
        &mut self,
        conversation: &RecordedConversation,
        recorded: &RecordedAppend,
    ) -> Option<Result<pb::AppendMessagesResponse, Status>> {
        let first_server = self.first_server();
        send(&self.state, first_server, conversation, recorded).await
    }

    /// Appends the next messages.
    pub(super) async fn append(&mut self, conversation: &RecordedConversation) {
        let messages = self.next_messages();
        let recorded = RecordedAppend::new(self.request_id(), messages);
        let place = conversation.begin_append(&recorded);
        match self.send(conversation, &recorded).await {
            Some(Ok(done)) => self.record_acknowledged(conversation, place, &recorded, &done),
            Some(Err(status)) => self.report_refusal(conversation, "AppendMessages", &status),
            None => {}
        }
    }

    /// Streams one message in chunks.
    pub(super) async fn append_in_pieces(&mut self, conversation: &RecordedConversation) {
        self.sent += 1;
        let text = format!(
            "Note {}. {}",
            self.mark(0),
            "It rained for days. ".repeat(4_000)
        );
        let recorded = RecordedAppend::new(self.request_id(), vec![user(&text)]);
        let place = conversation.begin_append(&recorded);
        let header = large::Header {
            conversation_id: conversation.id.clone(),
            request_id: recorded.request_id.clone(),
            message: Some(user("")),
            ..Default::default()
        };
        let chunks = text
            .as_bytes()
            .chunks(CHUNK_BYTES)
            .map(|chunk| large::Frame::Chunk(chunk.to_vec()));
        let frames: Vec<pb::AppendLargeMessageRequest> =
            std::iter::once(large::Frame::Header(header))
                .chain(chunks)
                .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
                .collect();
        let append = |channel: Channel| {
            let frames = futures::stream::iter(frames.clone());
            async move {
                let done = MessageServiceClient::new(channel)
                    .append_large_message(frames)
                    .await;
                done.map(tonic::Response::into_inner)
            }
        };
        let first_server = self.first_server();
        match self
            .state
            .call_with_retries("AppendLargeMessage", first_server, append)
            .await
        {
            Some(Ok(done)) => {
                self.state.tally.increment("appends in pieces");
                self.record_acknowledged(conversation, place, &recorded, &done);
            }
            Some(Err(status)) => self.report_refusal(conversation, "AppendLargeMessage", &status),
            None => {}
        }
    }

    /// Sends one append twice at the same time. Both answers must have the same message ids.
    pub(super) async fn append_twice_at_once(&mut self, conversation: &RecordedConversation) {
        let messages = self.next_messages();
        let recorded = RecordedAppend::new(self.request_id(), messages);
        let place = conversation.begin_append(&recorded);
        let (server_of_one, server_of_other) = (self.first_server(), self.first_server());
        let (one, other) = tokio::join!(
            send(&self.state, server_of_one, conversation, &recorded),
            send(&self.state, server_of_other, conversation, &recorded)
        );
        match (one, other) {
            (Some(Ok(one)), Some(Ok(other))) => {
                self.check_same_ids("two tries at once", &recorded, &ids(&one), &ids(&other));
                self.record_acknowledged(conversation, place, &recorded, &one);
            }
            (Some(Ok(done)), other) | (other, Some(Ok(done))) => {
                if let Some(Err(status)) = other {
                    self.report_refusal(conversation, "one of two tries at once", &status);
                }
                self.record_acknowledged(conversation, place, &recorded, &done);
            }
            (Some(Err(status)), _) | (_, Some(Err(status))) => {
                self.report_refusal(conversation, "AppendMessages", &status);
            }
            (None, None) => {}
        }
    }

    /// Records the acknowledgement of the append at the index `place` of the history. Checks that
    /// it has an id for each message, that the ids are contiguous and larger than those that were
    /// acknowledged before the append was sent, and that counts are exact.
    pub(super) fn record_acknowledged(
        &self,
        conversation: &RecordedConversation,
        place: usize,
        recorded: &RecordedAppend,
        done: &pb::AppendMessagesResponse,
    ) {
        let ids = ids(done);
        self.state.tally.increment("acknowledged");
        let contiguous = ids.windows(2).all(|pair| pair[1] == pair[0] + 1)
            && ids.len() == recorded.messages.len();
        self.state.findings.demand(contiguous, "order", || {
            format!(
                "{} was given the ids {ids:?} for {} messages",
                recorded.request_id,
                recorded.messages.len()
            )
        });
        let after = conversation.record_acknowledged(place, &ids);
        self.check_counts(conversation, recorded, done);
        self.state.findings.demand(
            ids.first().is_none_or(|first| *first > after),
            "order",
            || {
                format!(
                    "{} was given the ids {ids:?}, and {after} had been acknowledged before it was sent",
                    recorded.request_id
                )
            },
        );
    }

    /// Repeats an acknowledged append. The answer must have the same message ids, exact counts and
    /// say `replayed`. That nothing more is stored is checked at the end of the campaign.
    pub(super) async fn repeat_append(&mut self, conversation: &RecordedConversation) {
        let Some(recorded) = conversation.random_acknowledged(&mut self.random) else {
            return;
        };
        let answer = match self.send(conversation, &recorded).await {
            Some(Ok(answer)) => answer,
            Some(Err(status)) => {
                return self.report_refusal(conversation, "a repeated append", &status);
            }
            None => return,
        };
        self.state.tally.increment("repeated");
        self.check_same_ids("a repeated append", &recorded, &recorded.ids, &ids(&answer));
        self.check_counts(conversation, &recorded, &answer);
        self.state
            .findings
            .demand(answer.replayed, "one effect", || {
                format!(
                    "{} was repeated, but the answer does not say `replayed`",
                    recorded.request_id
                )
            });
    }

    /// Checks the counts of an answer to this append. Messages that were changed since have other
    /// counts, or none.
    fn check_counts(
        &self,
        conversation: &RecordedConversation,
        recorded: &RecordedAppend,
        answer: &pb::AppendMessagesResponse,
    ) {
        let messages = answer.messages.iter().zip(&recorded.messages);
        for (stored, sent) in
            messages.filter(|(stored, _)| conversation.states.is_unchanged(stored.message_id))
        {
            check_count(&self.state, stored.tokens, &sent.parts, || {
                format!(
                    "{}: in an answer, message {}",
                    recorded.request_id, stored.message_id
                )
            });
        }
    }

    fn check_same_ids(&self, what: &str, recorded: &RecordedAppend, one: &[i64], other: &[i64]) {
        self.state.findings.demand(one == other, "one effect", || {
            format!(
                "{what}: {} was given the ids {one:?} and {other:?}",
                recorded.request_id
            )
        });
    }

    /// Sends other messages under a used request id, which must be refused.
    pub(super) async fn reuse_request_id(&mut self, conversation: &RecordedConversation) {
        let Some(mut recorded) = conversation.random_acknowledged(&mut self.random) else {
            return;
        };
        recorded.messages = vec![user("Something else altogether.")];
        let is_refused = match self.send(conversation, &recorded).await {
            Some(Err(status)) => {
                status_details(&status).reason == "REQUEST_ID_REUSED" || !conversation.exists()
            }
            // Nothing is kept of erased messages with which others could be compared.
            Some(Ok(_)) => conversation.states.may_be_erased(&recorded.ids),
            // No answer in time: that is a finding of its own.
            None => true,
        };
        self.state.findings.demand(is_refused, "one effect", || {
            format!(
                "other messages under the used request id {} were not refused as a reuse",
                recorded.request_id
            )
        });
    }
}

/// Sends an append until there is a final answer, beginning with the server of this index. None
/// if there was none in time.
async fn send(
    state: &CampaignState,
    first_server: usize,
    conversation: &RecordedConversation,
    recorded: &RecordedAppend,
) -> Option<Result<pb::AppendMessagesResponse, Status>> {
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation.id.clone(),
        request_id: recorded.request_id.clone(),
        messages: recorded.messages.clone(),
        ..Default::default()
    };
    let append = |channel: Channel| {
        let ask = ask.clone();
        async move {
            MessageServiceClient::new(channel)
                .append_messages(ask)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    state
        .call_with_retries("AppendMessages", first_server, append)
        .await
}

fn ids(done: &pb::AppendMessagesResponse) -> Vec<i64> {
    done.messages
        .iter()
        .map(|message| message.message_id)
        .collect()
}
