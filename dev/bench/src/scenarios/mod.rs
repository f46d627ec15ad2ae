//! The measurements, one file per scenario.

pub(crate) mod append;
pub(crate) mod context;
pub(crate) mod count;
pub(crate) mod dead_model;
pub(crate) mod footprint;
pub(crate) mod isolation;
pub(crate) mod jobs;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod overload;
pub(crate) mod resolve;
pub(crate) mod start;
pub(crate) mod write_cost;
