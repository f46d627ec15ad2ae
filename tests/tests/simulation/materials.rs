//! What the conversations are made of: settings under which little is enough for a checkpoint, and things to say.

use anneal_core::{
    policy::{PolicyOverrides, Profile, TokenThreshold},
    tokens::Tokens,
};
use anneal_tests::prose;

/// The settings with this number, of four.
pub(crate) fn policy(number: u8) -> PolicyOverrides {
    let large = Some(Tokens::new(150));
    let few =
        PolicyOverrides { max_message_count: Some(5), large_message_threshold: large, ..PolicyOverrides::default() };
    match number {
        0 => few,
        1 => PolicyOverrides { max_message_count: Some(8), hot_zone_radius: Some(1), ..few },
        2 => PolicyOverrides {
            token_threshold: Some(TokenThreshold::Tokens(Tokens::new(400))),
            max_message_count: Some(0),
            ..few
        },
        _ => PolicyOverrides { profile: Some(Profile::Agents), ..PolicyOverrides::default() },
    }
}

/// Something to say: small, middling, large; another at each place.
pub(crate) fn text(body: u8, place: usize) -> String {
    prose(17 * usize::from(body) + place, [1, 3, 12][usize::from(body) % 3])
}
