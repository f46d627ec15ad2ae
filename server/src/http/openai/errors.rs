//! The error object of the protocol.
