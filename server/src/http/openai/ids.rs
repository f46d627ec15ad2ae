//! The ids of conversations, responses and items.
