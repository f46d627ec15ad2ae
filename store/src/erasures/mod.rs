//! Erasures: rows of `ai_erasure`. A row is the work that is left, and then the receipt, which is
//! kept. Messages are erased in `changes/erase.rs`, a conversation in `conversation`, in the
//! transaction that stores the receipt. The conversations of a user or of a tenant are deleted in
//! steps. A step is one transaction, which locks the row, so that an erasure needs no lease: a step
//! that ends early is rolled back, and no two steps of one erasure run at once.
//!
//! - `receipt`: the types, and the receipt of what one transaction has erased.
//! - `row_counts`: how many rows of conversations each table has.
//! - `measure`: how many conversations a user or a tenant has.
//! - `begin`: counts what an erasure of a user or of a tenant would delete, or begins it.
//! - `deletion`: deletes conversations, and counts what is deleted.
//! - `step`: the steps.
//! - `conversation`: deletes one conversation, with a receipt.
//! - `list`: reads erasures.

mod begin;
mod conversation;
mod deletion;
mod list;
mod measure;
mod receipt;
mod row_counts;
mod step;

pub use begin::{ErasureAsk, ErasureSubject};
pub use list::{ErasurePage, ErasurePosition};
pub use receipt::{Erasure, ErasureKind, ErasureState};
pub use step::{ErasureRound, ErasureStep};

pub(crate) use receipt::{Receipt, insert_receipt, message_receipt_id};
pub(crate) use row_counts::RowCounts;
