//! Conversions between protobuf and the domain.
//!
//! - [`parse`]: from protobuf to the domain; refuses bad input with its field
//! - [`policy`]: policies, both ways
//! - [`reply`]: from the domain to protobuf

pub(crate) mod parse;
pub(crate) mod policy;
pub(crate) mod reply;
