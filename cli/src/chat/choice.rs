//! Which conversation a few letters mean.

use anneal_proto::v1 as pb;

/// Letters of an id that need no titles to go by.
const ID_LETTERS: usize = 36;

/// What was found.
#[derive(Debug, PartialEq)]
pub(super) enum Choice<'a> {
    One(&'a pb::Conversation),
    /// More than one begins so.
    Several(Vec<&'a pb::Conversation>),
    None,
}

/// The conversation whose title or id begins so, small and capital letters alike. A whole title or id comes before all that
/// only begin with it.
pub(super) fn choose<'a>(prefix: &str, among: &'a [pb::Conversation]) -> Choice<'a> {
    let wanted = prefix.to_lowercase();
    let whole = |conversation: &&pb::Conversation| {
        conversation.title.to_lowercase() == wanted || conversation.conversation_id == wanted
    };
    let begins = |conversation: &&pb::Conversation| {
        conversation.title.to_lowercase().starts_with(&wanted) || conversation.conversation_id.starts_with(&wanted)
    };
    let mut found: Vec<_> = among.iter().filter(whole).collect();
    if found.is_empty() {
        found = among.iter().filter(begins).collect();
    }
    match found.as_slice() {
        [] => Choice::None,
        [one] => Choice::One(one),
        _ => Choice::Several(found),
    }
}

/// Whether this may be a whole id, which names a conversation of any agent and user.
pub(super) fn is_whole_id(text: &str) -> bool {
    text.len() == ID_LETTERS && text.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}

/// Letters of an id, from eight on, that tell all these apart.
pub(super) fn letters_needed(among: &[pb::Conversation]) -> usize {
    let mut ids: Vec<&str> = among.iter().map(|conversation| conversation.conversation_id.as_str()).collect();
    ids.sort_unstable();
    let shared = ids.windows(2).map(|pair| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count());
    shared.max().map_or(8, |shared| (shared + 1).max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(id: &str, title: &str) -> pb::Conversation {
        pb::Conversation { conversation_id: id.into(), title: title.into(), ..Default::default() }
    }

    fn among() -> Vec<pb::Conversation> {
        vec![
            conversation("0a12", "My project"),
            conversation("0b34", "my project, again"),
            conversation("0c56", "港口"),
            conversation("0c57", "Experiments"),
        ]
    }

    #[test]
    fn a_beginning_of_a_title_or_an_id_is_enough() {
        let among = among();
        for (prefix, index) in [("exp", 3), ("EXP", 3), ("港", 2), ("0a", 0), ("0C56", 2), ("my project,", 1)] {
            assert_eq!(choose(prefix, &among), Choice::One(&among[index]), "{prefix}");
        }
        assert_eq!(choose("nothing", &among), Choice::None);
        assert_eq!(choose("project", &among), Choice::None, "the middle does not count");
    }

    #[test]
    fn several_are_named_but_a_whole_title_is_meant_itself() {
        let among = among();
        assert_eq!(choose("my", &among), Choice::Several(vec![&among[0], &among[1]]));
        assert_eq!(choose("MY PROJECT", &among), Choice::One(&among[0]));
    }

    #[test]
    fn ids_are_shown_with_as_many_letters_as_tell_them_apart() {
        assert_eq!(letters_needed(&[]), 8);
        assert_eq!(letters_needed(&[conversation("0123456789aa", ""), conversation("0123456789ab", "")]), 12);
        assert_eq!(letters_needed(&[conversation("aaaaaaaaaaaa", ""), conversation("bbbbbbbbbbbb", "")]), 8);
    }
}
