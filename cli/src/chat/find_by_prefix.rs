//! Finds a conversation by a prefix of its title or id.

use anneal_proto::v1 as pb;

/// Characters of a complete id.
const ID_CHARACTERS: usize = 36;
/// Characters of an id that are shown in place of the complete id, if they suffice to tell the
/// conversations apart.
pub(super) const SHORT_ID_CHARACTERS: usize = 8;

/// The result of a search.
#[derive(Debug, PartialEq)]
pub(super) enum Choice<'a> {
    One(&'a pb::Conversation),
    /// Several conversations have the prefix.
    Several(Vec<&'a pb::Conversation>),
    None,
}

/// The conversation whose title or id has this prefix, ignoring case. A complete title or id wins
/// over prefixes.
pub(super) fn choose<'a>(prefix: &str, candidates: &'a [pb::Conversation]) -> Choice<'a> {
    let wanted = prefix.to_lowercase();
    let is_complete = |conversation: &&pb::Conversation| {
        conversation.title.to_lowercase() == wanted || conversation.conversation_id == wanted
    };
    let has_prefix = |conversation: &&pb::Conversation| {
        conversation.title.to_lowercase().starts_with(&wanted)
            || conversation.conversation_id.starts_with(&wanted)
    };
    let mut found: Vec<_> = candidates.iter().filter(is_complete).collect();
    if found.is_empty() {
        found = candidates.iter().filter(has_prefix).collect();
    }
    match found.as_slice() {
        [] => Choice::None,
        [one] => Choice::One(one),
        _ => Choice::Several(found),
    }
}

/// Whether the text has the form of a complete id.
pub(super) fn is_complete_id(text: &str) -> bool {
    text.len() == ID_CHARACTERS
        && text
            .chars()
            .all(|character| character.is_ascii_hexdigit() || character == '-')
}

/// The length of id prefixes that are unique among these conversations, at least
/// [`SHORT_ID_CHARACTERS`].
pub(super) fn unique_prefix_length(candidates: &[pb::Conversation]) -> usize {
    let mut ids: Vec<&str> = candidates
        .iter()
        .map(|conversation| conversation.conversation_id.as_str())
        .collect();
    ids.sort_unstable();
    let shared_lengths = ids.windows(2).map(|pair| {
        pair[0]
            .bytes()
            .zip(pair[1].bytes())
            .take_while(|(a, b)| a == b)
            .count()
    });
    shared_lengths.max().map_or(SHORT_ID_CHARACTERS, |shared| {
        (shared + 1).max(SHORT_ID_CHARACTERS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(id: &str, title: &str) -> pb::Conversation {
        pb::Conversation {
            conversation_id: id.into(),
            title: title.into(),
            ..Default::default()
        }
    }

    fn candidates() -> Vec<pb::Conversation> {
        vec![
            conversation("0a12", "My project"),
            conversation("0b34", "my project, again"),
            conversation("0c56", "港口"),
            conversation("0c57", "Experiments"),
        ]
    }

    #[test]
    fn a_prefix_of_a_title_or_an_id_is_enough() {
        let candidates = candidates();
        for (prefix, index) in [
            ("exp", 3),
            ("EXP", 3),
            ("港", 2),
            ("0a", 0),
            ("0C56", 2),
            ("my project,", 1),
        ] {
            assert_eq!(
                choose(prefix, &candidates),
                Choice::One(&candidates[index]),
                "{prefix}"
            );
        }
        assert_eq!(choose("nothing", &candidates), Choice::None);
        assert_eq!(
            choose("project", &candidates),
            Choice::None,
            "words in the middle of a title do not match"
        );
    }

    #[test]
    fn an_ambiguous_prefix_finds_several_and_a_complete_title_one() {
        let candidates = candidates();
        assert_eq!(
            choose("my", &candidates),
            Choice::Several(vec![&candidates[0], &candidates[1]])
        );
        assert_eq!(
            choose("MY PROJECT", &candidates),
            Choice::One(&candidates[0])
        );
    }

    #[test]
    fn ids_are_shown_with_a_unique_prefix() {
        assert_eq!(unique_prefix_length(&[]), 8);
        assert_eq!(
            unique_prefix_length(&[
                conversation("0123456789aa", ""),
                conversation("0123456789ab", "")
            ]),
            12
        );
        assert_eq!(
            unique_prefix_length(&[
                conversation("aaaaaaaaaaaa", ""),
                conversation("bbbbbbbbbbbb", "")
            ]),
            8
        );
    }
}
