//! From any number of items to one text: what does not fit a call is summarised piece by piece, level by level.
//!
//! Why it ends: pieces but the last are more than half full ([`super::pieces`]), and a part with its line counts at most
//! an eighth of the room ([`super::room`]); so a level of T tokens becomes at most T / 4 + an eighth of the room, and
//! one of a single piece becomes one part, which fits beside an earlier summary of three quarters. A refusal by the
//! provider makes the room smaller by at least an eighth, until it is less than can be worked with.

use anneal_core::{
    digest::{self, Digest},
    tokens::Tokens,
};

use crate::{
    extractive::fit::Scale,
    port::{Desk, Purpose, SummaryAsk, SummaryFailure},
    provider::{CallFailure, Model},
};

use super::{
    Frame, PROMPT_VERSION,
    gates::Spoken,
    items::{Item, items},
    pieces::{Piece, Place, piece},
    prompt::{self, Order, Stage},
    room::{CARRIED, Room},
};

/// The earlier summary goes into the last call whole, up to so many quarters of its room.
const EARLIER_QUARTERS: u64 = 3;

/// One summary in the making.
pub(super) struct Run<'a> {
    pub(super) model: &'a Model,
    pub(super) desk: &'a dyn Desk,
    pub(super) ask: &'a SummaryAsk<'a>,
    pub(super) frame: Frame,
    /// What may be asked for letter by letter.
    pub(super) spoken: Spoken<'a>,
    /// The model's window, or what refusals have left of it.
    pub(super) window: Tokens,
    /// What a call is told at most, because the provider refused more.
    cap: u64,
    /// Tokens of the instructions.
    overhead: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Model, desk: &'a dyn Desk, ask: &'a SummaryAsk<'a>, frame: Frame) -> Self {
        let overhead = overhead(ask);
        let spoken = Spoken::of(ask);
        Self { model, desk, ask, frame, spoken, window: model.window(), cap: u64::MAX, overhead }
    }

    /// The summary's text.
    pub(super) async fn summary(mut self) -> Result<String, SummaryFailure> {
        let mut earlier: Vec<Item<'a>> =
            self.ask.previous.map(Item::earlier).into_iter().filter(|item| !item.text.trim().is_empty()).collect();
        let mut said = items(self.ask);
        loop {
            let room = self.room()?.whole;
            let Some(before) = self.fits(&earlier, room * EARLIER_QUARTERS / 4) else {
                earlier = self.level(&earlier).await?;
                continue;
            };
            if self.fits(&said, room - before).is_none() {
                said = self.level(&said).await?;
                continue;
            }
            let everything: Vec<Item<'a>> = earlier.iter().chain(&said).cloned().collect();
            let (all, end) = piece(&everything, Place::default(), room, Scale(self.ask.measure));
            // Counted together, in longer stretches, they may be more than they were one by one.
            if !end.is_end(&everything) {
                said = self.level(&said).await?;
                continue;
            }
            match self.whole(&all).await {
                Err(SummaryFailure::Call(CallFailure::Overflow { window, prompt, rule })) => {
                    self.shrink(CallFailure::Overflow { window, prompt, rule }, window, all.tokens)?;
                }
                written => return written,
            }
        }
    }

    /// What the items count, if they fit the room together.
    fn fits(&self, items: &[Item<'_>], room: u64) -> Option<u64> {
        let (all, end) = piece(items, Place::default(), room, Scale(self.ask.measure));
        end.is_end(items).then_some(all.tokens)
    }

    /// The parts of these items, in order. What is too short to have a part stays as it is.
    async fn level(&mut self, items: &[Item<'a>]) -> Result<Vec<Item<'a>>, SummaryFailure> {
        let mut parts = Vec::new();
        let mut at = Place::default();
        while !at.is_end(items) {
            let room = self.room()?;
            let (told, next) = piece(items, at, room.piece, Scale(self.ask.measure));
            if told.tokens <= CARRIED {
                parts.extend(told.slices.iter().map(|slice| slice.item.stretch(slice.range.clone())));
                at = next;
                continue;
            }
            match self.kept_part(&told, room).await {
                Ok(text) => {
                    parts.push(Item::part(told.slices.iter().map(|slice| slice.item), text));
                    at = next;
                }
                Err(SummaryFailure::Call(CallFailure::Overflow { window, prompt, rule })) => {
                    self.shrink(CallFailure::Overflow { window, prompt, rule }, window, told.tokens)?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(parts)
    }

    /// The part of a piece: what an earlier run has kept, else what the model writes now, which is kept.
    async fn kept_part(&self, piece: &Piece<'_>, room: Room) -> Result<String, SummaryFailure> {
        let target = room.part(piece.tokens);
        let key = self.key(piece, target);
        if let Some(text) = self.desk.recall(&key).await {
            return Ok(text);
        }
        let text = self.part(piece, target).await?;
        self.desk.keep(&key, &text).await;
        Ok(text)
    }

    /// Everything that the model's answer depends on, but the random string of the marks.
    fn key(&self, piece: &Piece<'_>, target: u64) -> Digest {
        let purpose = match self.ask.purpose {
            Purpose::Range => "range",
            Purpose::Message => "message",
        };
        digest::of_fields([
            b"part".as_slice(),
            &PROMPT_VERSION.to_be_bytes(),
            self.model.name().as_bytes(),
            self.model.served_as().as_bytes(),
            purpose.as_bytes(),
            &target.to_be_bytes(),
            self.ask.focus.unwrap_or_default().as_bytes(),
            piece.lines().as_bytes(),
        ])
    }

    fn room(&self) -> Result<Room, SummaryFailure> {
        // By the ask's target, not by what the quoted words leave of it: pieces, and with them the parts that were kept,
        // must not change with the length of a quote.
        Room::of(self.model, self.window, self.overhead, self.ask.target.get(), self.cap).ok_or_else(|| {
            let rule = "too small for a summary's instructions";
            CallFailure::Overflow { window: Some(self.window), prompt: None, rule }.into()
        })
    }

    /// Makes the room smaller after the provider refused `told` tokens: to the window that it names, where that is
    /// enough, else to two thirds of what was told. The refusal itself is the error where nothing is left to work with.
    fn shrink(&mut self, refusal: CallFailure, named: Option<Tokens>, told: u64) -> Result<(), SummaryFailure> {
        self.window = self.window.min(named.unwrap_or(self.window));
        let enough = |run: &Self| run.room().is_ok_and(|room| room.piece <= told - told / 8);
        if !enough(self) {
            self.cap = told * 2 / 3;
        }
        self.room().map(|_| ()).map_err(|_| refusal.into())
    }
}

/// Tokens of everything that a call says besides its lines, at most.
fn overhead(ask: &SummaryAsk<'_>) -> u64 {
    let target = ask.target.get();
    let scale = Scale(ask.measure);
    let of = |stage| {
        let order = Order { stage, target, output: target, must_keep: Vec::new(), refused: None };
        let prompt = prompt::empty(ask, &order);
        scale.weigh(&prompt.system) + scale.weigh(&prompt.user)
    };
    of(Stage::Whole).max(of(Stage::Part)) + super::room::MUST_KEEP + super::room::ASIDE
}
