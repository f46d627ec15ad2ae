//! The conversation that an argument means: by its id, or by the beginning of its id.

use std::time::SystemTime;

use anneal_proto::v1 as pb;

use crate::{
    client::{Client, failed_call, retry},
    columns::grouped,
    conversation_rows,
    find_by_prefix::{self, Choice, MAX_SEARCH_PAGES, MAX_SEARCHED, MatchedField, SEARCH_PAGE},
    terminal_size,
};

/// The complete id of the conversation whose id is, or begins with, this text. A complete id is not
/// looked up. A beginning must belong to one conversation only of the newest [`MAX_SEARCHED`].
pub(crate) async fn resolve(client: &Client, text: &str) -> anyhow::Result<String> {
    Ok(find(client, text).await?.0)
}

/// Like [`resolve`], for a command that changes something: a beginning is refused if there are
/// conversations that were not examined, because it may belong to one of them too.
pub(crate) async fn resolve_for_change(client: &Client, text: &str) -> anyhow::Result<String> {
    let (id, has_older) = find(client, text).await?;
    anyhow::ensure!(
        !has_older,
        "only the newest {} conversations were examined, and an older id may also begin with {text:?}; give the complete \
         id (of the newest it is {id})",
        grouped(MAX_SEARCHED)
    );
    Ok(id)
}

/// The id that the text means, and whether there are older conversations that were not examined.
async fn find(client: &Client, text: &str) -> anyhow::Result<(String, bool)> {
    if let Some(id) = find_by_prefix::complete_id(text) {
        return Ok((id, false));
    }
    anyhow::ensure!(
        find_by_prefix::is_id_prefix(text),
        "{text:?} is neither an id of a conversation nor the beginning of one; `anneal list` shows the ids"
    );
    let (found, has_older) = search(client, text).await?;
    match find_by_prefix::choose(text, MatchedField::Id, &found) {
        Choice::One(conversation) => Ok((conversation.conversation_id.clone(), has_older)),
        Choice::Several(several) => anyhow::bail!(
            "the ids of {} conversations begin with {text:?}:\n{}",
            several.len(),
            conversation_rows::match_rows(
                &several,
                SystemTime::now(),
                terminal_size::table_columns()
            )
            .trim_end()
        ),
        Choice::None if has_older => anyhow::bail!(
            "conversation not found: of the newest {}, no id begins with {text:?}; give the complete id",
            grouped(MAX_SEARCHED)
        ),
        Choice::None => anyhow::bail!(
            "conversation not found: no id begins with {text:?}; `anneal list` shows the ids"
        ),
    }
}

/// Like [`resolve`], for each of these texts.
pub(crate) async fn resolve_all(client: &Client, texts: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        ids.push(resolve(client, text).await?);
    }
    Ok(ids)
}

/// The conversations whose ids begin with this text, and whether there are older ones that were not
/// examined.
async fn search(client: &Client, text: &str) -> anyhow::Result<(Vec<pb::Conversation>, bool)> {
    let mut found = Vec::new();
    let mut page_token = String::new();
    for _ in 0..MAX_SEARCH_PAGES {
        let ask = pb::ListConversationsRequest {
            page_size: SEARCH_PAGE,
            page_token,
            ..Default::default()
        };
        let page = retry(async || client.conversations().list_conversations(ask.clone()).await)
            .await
            .map_err(|status| failed_call(&status))?;
        found.extend(page.conversations.into_iter().filter(|conversation| {
            conversation
                .conversation_id
                .starts_with(&text.to_lowercase())
        }));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok((found, false));
        }
    }
    Ok((found, true))
}
