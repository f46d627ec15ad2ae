//! What is said to the conversation, and what it should come to.

use std::collections::BTreeMap;

use anneal_core::message;
use anneal_tests::{message as said_by, parsed, pb, refusal};
use pb::part::Part;

use crate::{
    materials::{CALL, RESULT, keeps_tools, said},
    world::{Broken, World},
};

impl World<'_> {
    /// The oldest call that has no result yet.
    fn open_call(&self) -> Option<String> {
        let parts = || self.said.iter().flat_map(|message| &message.parts).filter_map(|part| part.part.as_ref());
        let answered = |id: &str| parts().any(|part| matches!(part, Part::ToolResult(part) if part.tool_use_id == id));
        let mut calls = parts().filter_map(|part| match part {
            Part::ToolUse(part) => Some(part.id.as_str()),
            _ => None,
        });
        calls.find(|id| !answered(id)).map(str::to_owned)
    }

    /// Calls and their first results, as places of messages.
    pub(crate) fn pairs(&self) -> Vec<(i64, i64)> {
        let mut open: BTreeMap<&str, i64> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (place, message) in (1..).zip(&self.said) {
            for part in message.parts.iter().filter_map(|part| part.part.as_ref()) {
                match part {
                    Part::ToolUse(part) => drop(open.entry(&part.id).or_insert(place)),
                    Part::ToolResult(part) => {
                        pairs.extend(open.remove(part.tool_use_id.as_str()).map(|call| (call, place)));
                    }
                    _ => {}
                }
            }
        }
        pairs
    }

    pub(crate) async fn append(&mut self, request: Option<u8>, body: u8, messages: u8) -> Result<(), Broken> {
        // Under a request id the same numbers always say the same.
        let place = request.map_or(self.said.len() + 10, usize::from);
        let open = request.is_none().then(|| self.open_call()).flatten();
        // Who waits for a result asks for nothing new; two calls at once are asked for as before.
        let body = if body == CALL && open.is_some() { RESULT } else { body };
        let first = std::iter::once(said(body, place, open.as_deref()));
        let new: Vec<pb::NewMessage> =
            first.chain((1..usize::from(messages)).map(|n| said(body % 3, place + n, None))).collect();
        let ask = pb::AppendMessagesRequest {
            conversation_id: self.id.to_string(),
            request_id: request.map(|id| format!("r{id}")).unwrap_or_default(),
            messages: new.clone(),
            ..Default::default()
        };
        let answer = self.house.messages().append_messages(ask).await.map(tonic::Response::into_inner);
        let earlier = request.and_then(|id| self.requests.get(&id).cloned());
        match (earlier, answer) {
            (Some((earlier, told)), Ok(answer)) if earlier == new && answer.replayed && told == ids(&answer) => {
                self.note("appends repeated");
            }
            (Some((earlier, told)), Ok(answer)) if earlier == new && told.is_empty() && answer.messages.is_empty() => {
                self.note("appends of nothing repeated");
            }
            (Some((earlier, _)), Err(status)) if earlier != new && refusal(&status).reason == "REQUEST_ID_REUSED" => {
                self.note("request ids reused");
            }
            (None, Ok(answer)) if !answer.replayed => self.appended(request, new, &answer)?,
            (earlier, answer) => return Err(format!("an append after {earlier:?} came to {answer:?}")),
        }
        Ok(())
    }

    /// What is kept is everything, or under such a policy everything but what tools say.
    fn appended(
        &mut self,
        request: Option<u8>,
        new: Vec<pb::NewMessage>,
        answer: &pb::AppendMessagesResponse,
    ) -> Result<(), Broken> {
        let kept = if keeps_tools(self.policy) { new.clone() } else { without_tools(&new) };
        let newest = self.newest().0;
        let wanted: Vec<i64> = (1..=kept.len() as i64).map(|n| newest + n).collect();
        let told = ids(answer);
        if told != wanted || answer.skipped.len() != new.len() - kept.len() {
            return Err(format!("appended as {told:?} without {:?}, expected {wanted:?}", answer.skipped));
        }
        let calls = kept.iter().flat_map(|message| &message.parts);
        if calls.clone().any(|part| matches!(part.part, Some(Part::ToolResult(_)))) {
            self.note("results of tools");
        }
        self.said.extend(kept);
        if let Some(id) = request {
            self.requests.insert(id, (new, told));
        }
        self.note("appends");
        Ok(())
    }
}

fn ids(answer: &pb::AppendMessagesResponse) -> Vec<i64> {
    answer.messages.iter().map(|message| message.message_id).collect()
}

/// Messages without calls and results; the places of those that stay are the core's own decision, tested there.
fn without_tools(new: &[pb::NewMessage]) -> Vec<pb::NewMessage> {
    let all: Vec<message::Message> = new.iter().map(parsed).collect();
    let kept = message::without_tools(&all).into_iter().map(|(place, _)| {
        let parts = new[place].parts.iter().filter_map(|part| part.part.clone());
        said_by(new[place].role(), parts.filter(|part| !matches!(part, Part::ToolUse(_))).collect())
    });
    kept.collect()
}
