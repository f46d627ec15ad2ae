//! Finds a conversation by a prefix of its title or id.

use anneal_proto::v1 as pb;
use uuid::Uuid;

/// Conversations that a search fetches per call.
pub(crate) const SEARCH_PAGE: i32 = 500;
/// Most pages of a search.
pub(crate) const MAX_SEARCH_PAGES: usize = 20;
/// Most conversations that a search examines.
pub(crate) const MAX_SEARCHED: u64 = 10_000;
/// Characters of an id that are shown in place of the complete id, if they suffice to tell the
/// conversations apart.
pub(crate) const SHORT_ID_CHARACTERS: usize = 8;

/// The result of a search.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice<'a> {
    One(&'a pb::Conversation),
    /// Several conversations have the prefix.
    Several(Vec<&'a pb::Conversation>),
    None,
}

/// The fields of a conversation that a prefix is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchedField {
    Id,
    TitleOrId,
}

/// The conversation of which one of these fields has this prefix, ignoring case. A complete title
/// or id wins over prefixes.
pub(crate) fn choose<'a>(
    prefix: &str,
    field: MatchedField,
    candidates: &'a [pb::Conversation],
) -> Choice<'a> {
    let wanted = prefix.to_lowercase();
    let title = |conversation: &pb::Conversation| match field {
        MatchedField::Id => None,
        MatchedField::TitleOrId => Some(conversation.title.to_lowercase()),
    };
    let is_complete = |conversation: &&pb::Conversation| {
        title(conversation).is_some_and(|title| title == wanted)
            || conversation.conversation_id == wanted
    };
    let has_prefix = |conversation: &&pb::Conversation| {
        title(conversation).is_some_and(|title| title.starts_with(&wanted))
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

/// The id in the form in which the server writes it, if the text is a complete id.
pub(crate) fn complete_id(text: &str) -> Option<String> {
    Uuid::try_parse(text).ok().map(|id| id.to_string())
}

/// Whether the text may be the beginning of an id.
pub(crate) fn is_id_prefix(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|character| character.is_ascii_hexdigit() || character == '-')
}

/// The length of id prefixes that are unique among these conversations, at least
/// [`SHORT_ID_CHARACTERS`].
pub(crate) fn unique_prefix_length(candidates: &[pb::Conversation]) -> usize {
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
                choose(prefix, MatchedField::TitleOrId, &candidates),
                Choice::One(&candidates[index]),
                "{prefix}"
            );
        }
        assert_eq!(
            choose("nothing", MatchedField::TitleOrId, &candidates),
            Choice::None
        );
        assert_eq!(
            choose("project", MatchedField::TitleOrId, &candidates),
            Choice::None,
            "words in the middle of a title do not match"
        );
    }

    #[test]
    fn an_ambiguous_prefix_finds_several_and_a_complete_title_one() {
        let candidates = candidates();
        assert_eq!(
            choose("my", MatchedField::TitleOrId, &candidates),
            Choice::Several(vec![&candidates[0], &candidates[1]])
        );
        assert_eq!(
            choose("MY PROJECT", MatchedField::TitleOrId, &candidates),
            Choice::One(&candidates[0])
        );
    }

    #[test]
    fn a_search_by_id_ignores_titles() {
        let candidates = [conversation("0a12", "0b"), conversation("0b34", "0a12")];
        for (prefix, index) in [("0b", 1), ("0A1", 0), ("0a12", 0)] {
            assert_eq!(
                choose(prefix, MatchedField::Id, &candidates),
                Choice::One(&candidates[index]),
                "{prefix}"
            );
        }
    }

    #[test]
    fn a_complete_id_is_accepted_in_any_notation() {
        let id = "0199a1b2-0000-7000-8000-0000000000ab";
        for text in [
            id,
            "0199A1B2-0000-7000-8000-0000000000AB",
            "0199a1b20000700080000000000000ab",
        ] {
            assert_eq!(complete_id(text).as_deref(), Some(id), "{text}");
        }
        assert_eq!(complete_id("0199a1b2"), None);
        assert!(is_id_prefix("0199a1b2-0") && !is_id_prefix("") && !is_id_prefix("port"));
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
