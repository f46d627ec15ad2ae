//! Two scopes share a session key only if they mean the same chat.

use anneal_core::session_key::{ALIASES, ChatType, SessionKey, SessionScope};
use proptest::prelude::*;

/// Parts of keys that could be confused with one another if they were not escaped. The empty part
/// is there twice, so that it is drawn more often.
const PARTS: [&str; 17] = [
    "",
    "",
    "a",
    "A",
    "b",
    ":",
    "::",
    "%",
    "%3A",
    "%253A",
    "a:b",
    "thread",
    "group",
    "direct",
    "x:thread:y",
    "\u{1}",
    "\u{85}",
];

fn part() -> impl Strategy<Value = String> {
    prop_oneof![8 => prop::sample::select(&PARTS[..]).prop_map(str::to_owned), 1 => "[^\0]{0,8}"]
}

fn scope() -> impl Strategy<Value = SessionScope> {
    let chat_types = ALIASES
        .iter()
        .map(|(alias, _)| *alias)
        .chain(["", "unheard of"])
        .collect::<Vec<_>>();
    let agent = part().prop_map(|agent| {
        if agent.is_empty() {
            "main".to_owned()
        } else {
            agent
        }
    });
    (
        agent,
        part(),
        part(),
        prop::sample::select(chat_types),
        part(),
        part(),
        part(),
    )
        .prop_map(
            |(agent, channel, account, chat_type, thread, group, sender)| SessionScope {
                agent,
                channel,
                account,
                chat_type: chat_type.to_owned(),
                thread,
                group,
                sender,
            },
        )
}

/// The identity of a chat, computed without a key: agent, channel, account, whether it is a group,
/// the group or else the person, and the thread. `None` if the scope names no chat.
fn meaning(scope: &SessionScope) -> Option<(String, String, String, bool, String, String)> {
    let kind = ChatType::of(&scope.chat_type);
    let grouped = !scope.group.is_empty() && kind != ChatType::Direct;
    // A group's message without a group or thread belongs to no chat.
    let unresolved = matches!(kind, ChatType::Group | ChatType::Thread)
        && scope.group.is_empty()
        && scope.thread.is_empty();
    let owner = if grouped { &scope.group } else { &scope.sender };
    (!unresolved && !owner.is_empty()).then(|| {
        let (agent, channel) = (scope.agent.clone(), scope.channel.to_lowercase());
        (
            agent,
            channel,
            scope.account.clone(),
            grouped,
            owner.clone(),
            scope.thread.clone(),
        )
    })
}

/// Undoes the escaping of a part.
fn unescaped(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits follow"));
            let digits = str::from_utf8(&digits).expect("hexadecimal digits are ASCII");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits are a byte"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("escaping keeps UTF-8")
}

/// The meaning parsed back from a key. A key that can be parsed back has only one meaning.
fn meaning_of_key(key: &SessionKey) -> (String, String, String, bool, String, String) {
    let parts: Vec<String> = key.as_str().split(':').map(unescaped).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let [_, agent, channel, account, rest @ ..] = &parts[..] else {
        panic!("{key:?} is not a session key")
    };
    let (grouped, owner, thread) = match *rest {
        ["thread", group, thread] => (true, group, thread),
        ["group", group] => (true, group, ""),
        ["direct", sender] => (false, sender, ""),
        ["direct", sender, "thread", thread] => (false, sender, thread),
        _ => panic!("{key:?} is not a session key"),
    };
    (
        (*agent).to_owned(),
        (*channel).to_owned(),
        (*account).to_owned(),
        grouped,
        owner.to_owned(),
        thread.to_owned(),
    )
}

fn key(scope: &SessionScope) -> Option<SessionKey> {
    scope.resolve().ok().map(|resolved| resolved.key)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn two_scopes_share_a_key_only_if_they_mean_the_same_chat(one in scope(), other in scope()) {
        prop_assert_eq!(key(&one).is_some(), meaning(&one).is_some());
        if let (Some(key_of_one), Some(key_of_other)) = (key(&one), key(&other)) {
            prop_assert_eq!(key_of_one == key_of_other, meaning(&one) == meaning(&other), "{:?} {:?}", one, other);
            prop_assert!(key_of_one.as_str().starts_with("agent:"));
            prop_assert!(!key_of_one.as_str().chars().any(char::is_control));
        }
    }

    #[test]
    fn the_chat_can_be_parsed_back_from_its_key(scope in scope()) {
        if let Some(key) = key(&scope) {
            prop_assert_eq!(Some(meaning_of_key(&key)), meaning(&scope));
        }
    }
}
