//! The title that a conversation's messages give, after one of them was changed.

use anneal_core::{
    caller::{Caller, ConversationId},
    title,
};

use crate::{connection::BoundedConnection, error::StoreError};

/// How many messages the second and each further statement reads. The first one reads one message,
/// which nearly always gives the title.
const MESSAGES: i64 = 16;

/// How much of a text is read: characters of its JSON. A title is made from its first visible
/// characters. A text without any in this beginning gives no title here, as if it had none at all.
const TEXT_CHARACTERS: i32 = 8_192;

/// The title that the conversation would have if only the messages that stand had been appended;
/// empty if none of them gives one.
pub(super) async fn of_standing_messages(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<String, StoreError> {
    let (mut after, mut limit): (i64, i64) = (0, 1);
    loop {
        let rows = sqlx::query_file!(
            "sql/standing_title_sources.sql",
            caller.tenant().0,
            id.0,
            after,
            limit,
            TEXT_CHARACTERS,
        )
        .fetch_all(&mut *db)
        .await?;
        let texts = rows.iter().filter_map(|row| row.text.as_deref());
        let title = texts
            .filter_map(parse_beginning)
            .find_map(|text| title::of_text(&text));
        if let Some(title) = title {
            return Ok(title);
        }
        let Some(last) = rows.last() else {
            return Ok(String::new());
        };
        (after, limit) = (last.message_id, MESSAGES);
    }
}

/// Parses a JSON string that is perhaps cut off. The end of a cut one may be a part of an escape,
/// which is dropped: at most eleven of the twelve characters of a surrogate pair.
fn parse_beginning(json: &str) -> Option<String> {
    if let Ok(whole) = serde_json::from_str(json) {
        return Some(whole);
    }
    let ends = json.char_indices().rev().map(|(at, _)| at);
    std::iter::once(json.len())
        .chain(ends)
        .take(12)
        .find_map(|end| serde_json::from_str(&format!("{}\"", &json[..end])).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_anywhere_is_parsed_up_to_its_last_whole_character() {
        let text = "a\n\"\\\u{1}é\u{1f600}z";
        for json in [
            serde_json::to_string(text).expect("serializes"),
            r#""a\n\"\\\u0001\u00e9\ud83d\ude00z""#.to_owned(),
        ] {
            assert_eq!(parse_beginning(&json).as_deref(), Some(text));
            for (end, _) in json.char_indices().skip(1) {
                let parsed = parse_beginning(&json[..end]).expect("is parsed");
                assert!(text.starts_with(&parsed), "{}", &json[..end]);
            }
            let without_quote = &json[..json.len() - 1];
            assert_eq!(parse_beginning(without_quote).as_deref(), Some(text));
        }
    }
}
