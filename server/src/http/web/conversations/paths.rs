//! Paths of the pages of a conversation.

use std::fmt::Write as _;

/// The page of a conversation.
pub(in crate::http::web) fn conversation(id: &str) -> String {
    format!("/conversations/{}", encode(id))
}

/// The X-ray of a conversation.
pub(in crate::http::web) fn xray(id: &str) -> String {
    format!("{}/xray", conversation(id))
}

/// The newest messages of a conversation, at their end.
pub(in crate::http::web) fn end(id: &str) -> String {
    format!("{}#end", conversation(id))
}

/// The page of a conversation, at this message.
pub(in crate::http::web) fn at(id: &str, message: i64) -> String {
    format!("{}#m{message}", conversation(id))
}

/// A message of a conversation.
pub(in crate::http::web) fn message(conversation_id: &str, message: i64) -> String {
    format!("{}/messages/{message}", conversation(conversation_id))
}

/// The events of a turn.
pub(in crate::http::web) fn turn_events(conversation_id: &str, request_id: &str) -> String {
    let base = conversation(conversation_id);
    format!("{base}/turns/{}/events", encode(request_id))
}

/// A query of these parameters, without those that are empty. Empty: there are none.
pub(in crate::http::web) fn query(parameters: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        query.push_str(&encode(value));
    }
    query
}

/// The text, percent-encoded but for characters that stand for themselves everywhere in a URL.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string can be written to");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_values_of_others_stay_inside_their_place() {
        assert_eq!(conversation("../a?b#c"), "/conversations/..%2Fa%3Fb%23c");
        let query = query(&[("text", "a&b=ü"), ("agent", ""), ("page", "1")]);
        assert_eq!(query, "?text=a%26b%3D%C3%BC&page=1");
    }
}
