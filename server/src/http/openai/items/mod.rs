//! Items and messages, converted both ways.
