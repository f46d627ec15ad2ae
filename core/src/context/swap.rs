//! Which cool large messages a context sends as their summaries.

use super::{Body, Material, TailMessage};
use crate::{
    boundary::Boundary,
    cooling::{self, Candidate, Place, Stepped},
    digest::Digest,
    message::{MessageId, Role, outline, plain_text_bytes},
    policy::Cooling,
    render::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// What is known of the context around the tail before it is put together.
pub(super) struct Around {
    /// Where the context starts.
    pub(super) boundary: Boundary,
    /// Digest of the system prompt that is sent.
    pub(super) system_prompt: Digest,
    /// Tokens of everything but the tail, framing included.
    pub(super) tokens: Tokens,
    /// What the whole may count at most.
    pub(super) budget: Option<Tokens>,
    /// What it will be rendered as.
    pub(super) format: Format,
    /// The turn that coolness is measured from.
    pub(super) current_turn: i32,
}

/// Swaps what is to be swapped in this context. Returns for each message whether it is cool.
///
/// With strict cooling the store has brought cool messages as their summaries already. With stepped cooling it brings those
/// that an earlier step has swapped; the others come with their summary beside them, and are swapped all together or not.
pub(super) fn swap(material: &mut Material, around: &Around) -> Vec<bool> {
    let policy = material.policy;
    let places: Vec<Place> =
        material.tail.iter().map(|message| Place { turn: message.turn, role: message.role }).collect();
    let ages = cooling::calls_since_cool(&places, around.current_turn, &policy);
    if policy.cooling == Cooling::Stepped && step(material, around, &ages) {
        for (message, age) in material.tail.iter_mut().zip(&ages) {
            if age.is_some() {
                message.swap();
            }
        }
    }
    ages.into_iter().map(|age| age.is_some()).collect()
}

fn step(material: &Material, around: &Around, ages: &[Option<u64>]) -> bool {
    let candidates: Vec<Candidate> =
        material.tail.iter().zip(ages).filter_map(|(message, age)| candidate(message, (*age)?, material)).collect();
    let Some(oldest) = candidates.first() else { return false };
    let sent = |message: &&TailMessage| message.id > oldest.id && Some(message.id) < material.last_call();
    let behind: Tokens = material.tail.iter().filter(sent).map(TailMessage::framed).sum();
    let saved_behind: Tokens = candidates[1..]
        .iter()
        .filter(|candidate| Some(candidate.id) < material.last_call())
        .map(|candidate| candidate.saved)
        .sum();
    let stepped = Stepped {
        rewritten: behind.less(saved_behind),
        prices: material.policy.prices,
        free: breaks_anyway(material, around) || is_over(material, around),
    };
    cooling::decide(&candidates, &stepped)
}

/// A cool large message that has its summary and is still sent as it was said.
fn candidate(message: &TailMessage, calls: u64, material: &Material) -> Option<Candidate> {
    let ready = message.ready.as_ref()?;
    let large = cooling::is_large(message.tokens, &material.policy);
    (large && matches!(message.body, Body::Original(_))).then(|| Candidate {
        id: message.id,
        saved: message.tokens.less(ready.tokens),
        calls,
    })
}

/// Whether the provider's cache is lost whatever is swapped: the context begins otherwise than the last one, or the last
/// call is so old that the provider has forgotten it.
fn breaks_anyway(material: &Material, around: &Around) -> bool {
    let Some(before) = &material.prefix else { return true };
    before.boundary != around.boundary.after() || before.system_prompt != around.system_prompt || material.is_cold()
}

/// Whether the budget would cut something if nothing were swapped. Near its edge this says yes too early, for what repairs
/// and marks will add is not known yet: a swap is the gentler cut.
fn is_over(material: &Material, around: &Around) -> bool {
    let tail: Tokens = material.tail.iter().map(TailMessage::framed).sum();
    let summaries = material.tail.iter().filter(|message| matches!(message.body, Body::Summary { .. })).count() as u64;
    let repairs = if around.format == Format::Neutral { 0 } else { 64 + 8 * material.tail.len() as u64 };
    let added = Tokens::new(MARK * summaries + repairs);
    around.budget.is_some_and(|budget| around.tokens + tail + added > budget)
}

/// Tokens that a mark around a summary counts at most, without the tool calls in it.
const MARK: u64 = 32;

impl Material {
    /// The newest assistant message of the tail: everything before it was sent in the last call.
    pub(super) fn last_call(&self) -> Option<MessageId> {
        self.tail.iter().rev().find(|message| message.role == Role::Assistant).map(|message| message.id)
    }

    /// Whether the last call is older than a provider keeps its cache.
    pub(super) fn is_cold(&self) -> bool {
        self.idle_seconds.is_some_and(|idle| idle > i64::from(self.policy.cache_ttl_seconds))
    }
}

impl TailMessage {
    /// Tokens as it is sent, framing included.
    fn framed(&self) -> Tokens {
        let tokens = match &self.body {
            Body::Original(_) => self.tokens,
            Body::Summary { tokens, .. } => *tokens,
        };
        tokens + FRAMING_PER_MESSAGE
    }

    /// Lets the summary stand for the original, where there is one.
    pub(super) fn swap(&mut self) {
        let Body::Original(parts) = &self.body else { return };
        let Some(ready) = self.ready.take() else { return };
        self.body = Body::Summary {
            original_bytes: plain_text_bytes(parts) as u64,
            outline: outline(parts),
            text: ready.text,
            tokens: ready.tokens,
        };
    }
}
