//! What no model's text may be: judged against what the call was told. Every gate is linear in text and source.
//!
//! A gate that is wrong costs one more call, and then an extractive summary; a text that should not have passed stands in
//! every later context. So gates look for what is plainly wrong, and each says what it lets pass.

mod copies;
mod grounded;
mod hollow;
mod identifiers;
mod loops;
mod marks;
mod scripts;
mod units;

use crate::port::Unfit;

use super::{pieces::Piece, prompt::Order};

pub(super) use identifiers::{Spoken, must_keep};

/// What is wrong with the text, by the first gate that refuses it; the words quoted behind it count only where something must be in the
/// summary.
pub(super) fn unfit(text: &str, quote: &str, boundary: &str, piece: &Piece<'_>, order: &Order) -> Option<Unfit> {
    let misses = |string: &String| !text.contains(string.as_str()) && !quote.contains(string.as_str());
    let gates: [(Unfit, &dyn Fn() -> bool); 8] = [
        (Unfit::RoleMarks, &|| marks::has(text, boundary)),
        (Unfit::SaysNothing, &|| hollow::is(text, piece, order.target)),
        (Unfit::Loops, &|| loops::has(text)),
        (Unfit::OtherScript, &|| scripts::differ(text, piece)),
        (Unfit::Copies, &|| copies::is(text, piece)),
        (Unfit::SpeaksOfForm, &|| grounded::speaks_of_form(text, piece)),
        (Unfit::Invents, &|| grounded::invents(text, piece)),
        (Unfit::MissesIdentifiers, &|| order.must_keep.iter().any(misses)),
    ];
    gates.into_iter().find_map(|(unfit, finds)| finds().then_some(unfit))
}
