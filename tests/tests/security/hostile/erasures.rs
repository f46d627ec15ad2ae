//! Cases of erasures: which messages, users and tenants, and which receipts. None erases anything,
//! because other cases use the same conversation.

use anneal_testkit::id_range;
use tonic::Code;
use uuid::Uuid;

use crate::hostile::{
    ask, ask_about,
    case::{
        Case, ETAG_MISMATCH, INVALID, LAST_MESSAGE_MISMATCH, LIMIT, NO_CONVERSATION, NO_MESSAGE,
        Refusal, answered, refused,
    },
    conversations::UNKNOWN,
};

const NO_ERASURE: Refusal = (Code::NotFound, "ERASURE_NOT_FOUND");

/// Cases of EraseMessages, and of DeleteConversation with a receipt. The conversation has at least
/// four messages, and fewer than 9,000.
pub(crate) fn messages(id: &str) -> Vec<Case> {
    let erase = |message_ids: &[i64]| {
        ask_about!(
            id,
            EraseMessagesRequest {
                message_ids: message_ids
            }
        )
    };
    let range = |first, last| {
        ask_about!(
            id,
            EraseMessagesRequest {
                range: id_range(first, last)
            }
        )
    };
    vec![
        refused("nothing to erase", erase(&[]), INVALID, "message_ids"),
        refused(
            "message 0 is erased",
            erase(&[1, 0]),
            INVALID,
            "message_ids[1]",
        ),
        refused(
            "message i64::MAX is erased",
            erase(&[1, i64::MAX]),
            NO_MESSAGE,
            "message_ids[1]",
        ),
        refused("501 are erased", erase(&[1; 501]), LIMIT, "message_ids"),
        refused(
            "a range backwards is erased",
            range(3, 2),
            INVALID,
            "range.last_message_id",
        ),
        refused(
            "a range beyond the end is erased",
            range(1, 9_000),
            NO_MESSAGE,
            "range.last_message_id",
        ),
        refused("10,001 are erased", range(1, 10_001), LIMIT, "range"),
        refused(
            "ids and a range are erased",
            ask_about!(
                id,
                EraseMessagesRequest {
                    message_ids: [1],
                    range: id_range(1, 1)
                }
            ),
            INVALID,
            "range",
        ),
        refused(
            "an erasure with another etag",
            ask_about!(
                id,
                EraseMessagesRequest {
                    message_ids: [1],
                    etag: "987654321"
                }
            ),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "an erasure after another message than expected",
            ask_about!(
                id,
                EraseMessagesRequest {
                    message_ids: [1],
                    expected_last_message_id: 987_654_i64
                }
            ),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused(
            "an erasure in an unknown conversation",
            ask_about!(UNKNOWN, EraseMessagesRequest { message_ids: [1] }),
            NO_CONVERSATION,
            "",
        ),
        refused(
            "an unknown conversation is deleted with a receipt",
            ask_about!(
                UNKNOWN,
                DeleteConversationRequest {
                    with_receipt: true,
                    request_id: "r"
                }
            ),
            NO_CONVERSATION,
            "",
        ),
    ]
}

/// Cases of users, tenants and receipts.
pub(crate) fn users_and_receipts() -> Vec<Case> {
    let user = |user_id: &str| ask!(EraseUserRequest { user_id: user_id });
    let tenant = |name: &str| {
        ask!(EraseTenantRequest {
            confirm_tenant: name
        })
    };
    let receipt = |id: &str| ask!(GetErasureRequest { erasure_id: id });
    vec![
        refused("no user", user(""), INVALID, "user_id"),
        refused("a user with NUL", user("a\0b"), INVALID, "user_id"),
        refused(
            "a user of 129 bytes",
            user(&"u".repeat(129)),
            LIMIT,
            "user_id",
        ),
        refused(
            "a user and a request id of 129 bytes",
            ask!(EraseUserRequest {
                user_id: "u",
                request_id: "r".repeat(129)
            }),
            LIMIT,
            "request_id",
        ),
        answered(
            "a dry run of a user who has nothing",
            ask!(EraseUserRequest {
                user_id: "'; drop table ai_erasure; --",
                dry_run: true
            }),
        ),
        refused("no tenant", tenant(""), INVALID, "confirm_tenant"),
        refused(
            "another tenant",
            tenant("Default"),
            INVALID,
            "confirm_tenant",
        ),
        refused(
            "a tenant of 1 MiB",
            tenant(&"t".repeat(1 << 20)),
            INVALID,
            "confirm_tenant",
        ),
        answered(
            "a dry run of the tenant",
            ask!(EraseTenantRequest {
                confirm_tenant: "default",
                dry_run: true
            }),
        ),
        refused("no receipt", receipt(""), INVALID, "erasure_id"),
        refused(
            "a receipt without dashes",
            receipt(&UNKNOWN.replace('-', "")),
            INVALID,
            "erasure_id",
        ),
        refused(
            "an unknown receipt",
            receipt(&Uuid::nil().to_string()),
            NO_ERASURE,
            "",
        ),
        refused(
            "receipts of a user of 129 bytes",
            ask!(ListErasuresRequest {
                user_id: "u".repeat(129)
            }),
            LIMIT,
            "user_id",
        ),
        refused(
            "a page of -1 receipts",
            ask!(ListErasuresRequest { page_size: -1 }),
            INVALID,
            "page_size",
        ),
        refused(
            "receipts with a token that is none",
            ask!(ListErasuresRequest { page_token: "////" }),
            INVALID,
            "page_token",
        ),
    ]
}
