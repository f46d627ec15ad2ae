//! Conversations and their items. Every conversation of the caller's tenant can be reached here,
//! whichever API has created it.
//!
//! - `create`, `get`, `update`, `delete`: conversations
//! - `add_items`, `list_items`, `get_item`, `delete_item`: their items
//! - `conversation`: what these endpoints share
//! - `page`: which items of the messages that were read are on a page

mod add_items;
mod conversation;
mod create;
mod delete;
mod delete_item;
mod get;
mod get_item;
mod list_items;
mod page;
mod update;

use axum::routing;

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[
    ("/v1/conversations", || {
        routing::post(create::create_conversation)
    }),
    ("/v1/conversations/{id}", || {
        routing::get(get::get_conversation)
            .post(update::update_conversation)
            .delete(delete::delete_conversation)
    }),
    ("/v1/conversations/{id}/items", || {
        routing::get(list_items::list_items).post(add_items::add_items)
    }),
    ("/v1/conversations/{id}/items/{item}", || {
        routing::get(get_item::get_item).delete(delete_item::delete_item)
    }),
];
