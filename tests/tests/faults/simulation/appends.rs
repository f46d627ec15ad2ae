//! The append operation and its expected result.

use anneal_core::message;
use anneal_testkit::{parsed, pb, status_details};
use pb::part::Part;

use crate::simulation::{
    conversation::{SimulatedConversation, Violation},
    messages::{ExpectedMessage, State},
    policies_and_messages::{CALL, MarkedMessage, RESULT, keeps_tools, new_message},
};

impl SimulatedConversation<'_> {
    /// Id of the oldest tool call that stands and has no result that stands.
    fn unanswered_call(&self) -> Option<String> {
        let parts = || {
            self.standing()
                .flat_map(|(_, version)| &version.message.parts)
                .filter_map(|part| part.part.as_ref())
        };
        let answered = |id: &str| {
            parts().any(|part| matches!(part, Part::ToolResult(part) if part.tool_use_id == id))
        };
        let mut calls = parts().filter_map(|part| match part {
            Part::ToolUse(part) => Some(part.id.as_str()),
            _ => None,
        });
        calls.find(|id| !answered(id)).map(str::to_owned)
    }

    /// The messages of an append. With a request id, the same parameters always make the same
    /// messages.
    fn messages_to_append(
        &mut self,
        request: Option<u8>,
        body: u8,
        messages: u8,
    ) -> Vec<MarkedMessage> {
        // Without a request id, the number is at least 10, so the message differs from those with
        // one.
        let number = request.map_or(self.messages.len() + 10, usize::from);
        let unanswered = request.is_none().then(|| self.unanswered_call()).flatten();
        // While a call has no result, an append without a request id adds that call's result
        // instead of a further call.
        let body = if body == CALL && unanswered.is_some() {
            RESULT
        } else {
            body
        };
        let mut new = Vec::new();
        for n in 0..usize::from(messages) {
            let mark = match request {
                Some(request) => format!("zr{request}p{n}z"),
                None => self.next_mark(),
            };
            // `body % 3` is the kind of a text.
            new.push(if n == 0 {
                new_message(body, number, unanswered.as_deref(), mark)
            } else {
                new_message(body % 3, number + n, None, mark)
            });
        }
        new
    }

    /// Performs `Operation::Append` and compares the answer with the expected one.
    pub(crate) async fn append(
        &mut self,
        request: Option<u8>,
        body: u8,
        messages: u8,
    ) -> Result<(), Violation> {
        let new = self.messages_to_append(request, body, messages);
        let ask = pb::AppendMessagesRequest {
            conversation_id: self.id.to_string(),
            request_id: request.map(|id| format!("r{id}")).unwrap_or_default(),
            messages: new.iter().map(|new| new.message.clone()).collect(),
            ..Default::default()
        };
        let answer = self
            .app
            .messages()
            .append_messages(ask)
            .await
            .map(tonic::Response::into_inner);
        let earlier = request.and_then(|id| self.requests.get(&id).cloned());
        // Once a message of an append is erased, nothing tells its messages from others.
        let is_forgotten = earlier.as_ref().is_some_and(|(_, acknowledged)| {
            let mut acknowledged = acknowledged.iter();
            acknowledged.any(|id| self.message(*id).state == State::Erased)
        });
        match (earlier, answer) {
            (Some((earlier, acknowledged)), Ok(answer))
                if (earlier == new || is_forgotten)
                    && answer.replayed
                    && acknowledged == ids(&answer) =>
            {
                self.record_event("appends repeated");
            }
            // The policy stores no tool messages, and the append had no others. Nothing was stored,
            // not even the request id.
            (Some((earlier, acknowledged)), Ok(answer))
                if earlier == new && acknowledged.is_empty() && answer.messages.is_empty() =>
            {
                self.record_event("appends of nothing repeated");
            }
            (Some((earlier, _)), Err(status))
                if earlier != new
                    && !is_forgotten
                    && status_details(&status).reason == "REQUEST_ID_REUSED" =>
            {
                self.record_event("request ids reused");
            }
            (None, Ok(answer)) if !answer.replayed => self.record_append(request, new, &answer)?,
            (earlier, answer) => {
                return Err(format!("an append after {earlier:?} returned {answer:?}"));
            }
        }
        Ok(())
    }

    /// Checks the ids that an append returned, and adds its messages to the expected ones. Tool
    /// messages are expected only if the policy stores them.
    fn record_append(
        &mut self,
        request: Option<u8>,
        new: Vec<MarkedMessage>,
        answer: &pb::AppendMessagesResponse,
    ) -> Result<(), Violation> {
        let expected_messages = if keeps_tools(self.policy) {
            new.clone()
        } else {
            without_tools(&new)
        };
        let last = self.last_message_id().0;
        let expected_ids: Vec<i64> = (1..=expected_messages.len() as i64)
            .map(|n| last + n)
            .collect();
        let acknowledged = ids(answer);
        if acknowledged != expected_ids
            || answer.skipped.len() != new.len() - expected_messages.len()
        {
            return Err(format!(
                "appended as {acknowledged:?} without {:?}, expected {expected_ids:?}",
                answer.skipped
            ));
        }
        let mut parts = expected_messages.iter().flat_map(|new| &new.message.parts);
        if parts.any(|part| matches!(part.part, Some(Part::ToolResult(_)))) {
            self.record_event("results of tools");
        }
        self.messages
            .extend(expected_messages.into_iter().map(ExpectedMessage::new));
        if let Some(id) = request {
            self.requests.insert(id, (new, acknowledged));
        }
        self.record_event("appends");
        Ok(())
    }
}

fn ids(answer: &pb::AppendMessagesResponse) -> Vec<i64> {
    answer
        .messages
        .iter()
        .map(|message| message.message_id)
        .collect()
}

/// The messages without tool calls and results. Which messages stay is decided by the core, which
/// has its own tests.
fn without_tools(new: &[MarkedMessage]) -> Vec<MarkedMessage> {
    let all: Vec<message::Message> = new.iter().map(|new| parsed(&new.message)).collect();
    let kept = message::without_tools(&all).into_iter();
    kept.map(|(index, message)| MarkedMessage {
        message: message.into(),
        mark: new[index].mark.clone(),
    })
    .collect()
}
